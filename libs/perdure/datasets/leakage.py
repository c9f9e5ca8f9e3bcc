"""Images that tell a model what it will be asked: the same picture twice, in train and in val."""

from perdure.datasets.annotation import SplitName
from perdure.datasets.findings import Fault, Findings, Severity
from perdure.datasets.manifest import Manifest, ManifestImage
from perdure.datasets.rules import ImportRules
from perdure.datasets.split import count_groups, distinct_contents, names_splits


def check_splits(
    manifest: Manifest, named: set[SplitName | None], rules: ImportRules, findings: Findings
) -> None:
    """`named` are the splits that the data set names, before images were skipped."""
    if not names_splits(manifest):
        if {"train", "val"} <= named and manifest.images:
            findings.error(
                "split.too-few-images",
                "",
                "",
                "train and val must each have an image that can be decoded",
                "replace the images that were skipped",
                problem="of train or of val no image can be decoded",
            )
        elif named and not manifest.images and not findings.number_of(Severity.ERROR):
            rule = "one image must train and another one validate"
            advice = "replace the images that were skipped"
            findings.error("split.too-few-images", "", "0 images", rule, advice)
        elif len(distinct_contents(manifest)) == 1:
            rule = "one image must train and another one validate"
            findings.error("split.too-few-images", "", "1 image", rule, "add different images")
        elif manifest.images and count_groups(manifest) == 1:
            rule = "one group of images must train and another one validate"
            advice = "give --group-by a rule by which they differ"
            findings.error("split.too-few-images", "", "1 group", rule, advice)
        return
    in_train = {image.digest: image.path for image in manifest.images if image.split != "val"}
    for image in manifest.images:
        if image.split == "val" and image.digest in in_train:
            findings.add(_leakage(in_train[image.digest], rules), image.path)


def check_groups(manifest: Manifest, findings: Findings) -> None:
    """Images of one group should be in one of the splits that the data set names."""
    first: dict[str, ManifestImage] = {}
    for image in manifest.images if names_splits(manifest) else ():
        if not image.group:
            continue
        other = first.setdefault(image.group, image)
        if (other.split == "val") != (image.split == "val"):
            findings.warning(
                "split.group-divided",
                image.path,
                other.path,
                f"images of one group ({image.group}) must be in one split",
                "move one of the two; or name no splits, and Perdure makes one by groups",
            )


def _leakage(in_train: str, rules: ImportRules) -> Fault:
    if rules.allow_leakage:
        severity, advice = Severity.WARNING, "it was allowed; the validation knows this image"
    else:
        severity = Severity.ERROR
        advice = "remove one of the two files; or accept it, with --allow-leakage"
    return Fault(
        severity,
        "split.leakage",
        in_train,
        "an image must be in train or in val, not in both",
        advice,
        problem="a file in val is byte-identical to one in train",
    )


def check_twins(manifest: Manifest, findings: Findings) -> None:
    """Byte-identical images of one split should be labelled alike."""
    first: dict[tuple[str, SplitName | None], ManifestImage] = {}
    for image in manifest.images:
        twin = first.setdefault((image.digest, image.split), image)
        if twin.boxes != image.boxes:
            findings.warning(
                "label.twin-differs",
                image.path,
                twin.path,
                "the same image must have the same labels",
                "correct the labels of one, or remove it",
            )
