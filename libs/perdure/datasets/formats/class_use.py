"""Whether the classes of a data set are used, and by how many boxes."""

from perdure.datasets.findings import Findings, Severity


def check_use(
    classes: tuple[str, ...], used: set[int], file: str, advice: str, findings: Findings
) -> None:
    """Record classes without a box; a data set without any box is an error, with `advice`.

    `file` is where the classes are named, "" where nothing names them.
    """
    if not used:
        if findings.number_of(Severity.ERROR):
            return  # boxes may be missing because of those errors
        rule = "a data set must have at least one box"
        findings.error("label.none", file, "", rule, advice)
        return
    unused = [name for index, name in enumerate(classes) if index not in used]
    if unused:
        findings.warning(
            "classes.unused",
            file,
            ", ".join(unused),
            "every class must have boxes",
            "the model cannot learn these: label some, or remove the names",
        )
