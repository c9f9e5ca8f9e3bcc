"""Images without labels: background as a rule, and lost labels where most images have none."""

from collections.abc import Sequence
from typing import Final

from perdure.datasets.findings import Findings

# Pictures of nothing are a minority in sets that people make; when labels were lost on the way,
# as a rule a whole folder of them was.
MAX_UNLABELLED_SHARE: Final = 0.5


def report_unlabelled(
    missing: Sequence[str], total: int, rule: str, where: str, findings: Findings
) -> None:
    """Record the images without labels, all in one: an error where they are most of `total`.

    `rule` says what an image must have, and `where` what to look at when labels were lost.
    """
    counted = f"{len(missing)} of {total} images"
    if len(missing) > MAX_UNLABELLED_SHARE * total:
        findings.error("files.labels-missing", missing[0], counted, rule, where)
    elif missing:
        advice = "they count as background; add label files where that is wrong"
        findings.warning("files.background", missing[0], counted, rule, advice)
