"""What the probes look for: each kind's limit, with its reason, and its words.

An oddity is what is found of a kind; a warning is one whose share is above the limit. Nothing here
refuses a data set: what looks odd may be what somebody wants.
"""

from dataclasses import dataclass
from typing import Final, Literal

# ---- what counts as odd --------------------------------------------------------------------------

# The longer side of the input that training uses by default.
INPUT_PX: Final = 640
# Of the input, 0.1 % are 20 x 20 pixels: a few cells of the finest feature map (stride 8) ...
TINY_AREA: Final = 0.001
# ... and what is narrower than one cell is mostly missed.
TINY_SIDE_PX: Final = 8
# A box around all of the picture teaches no place: labels of a classification often look so.
FULL_AREA: Final = 0.95
# Sides this far apart are poles and wires, or columns that were swapped.
MAX_BOX_ASPECT: Final = 20.0
# With fewer images, one or two validate: the mean precision of the class is chance.
MIN_IMAGES_OF_CLASS: Final = 10
# From here on a batch of 16 images with 5 boxes each holds less than one box of the rarer class.
MAX_CLASS_RATIO: Final = 100
# A longer side of this is enlarged four times for the input: there is no detail in it to learn.
MIN_LONGER_SIDE_PX: Final = INPUT_PX // 4
# Fitted into a square, such an image leaves three quarters of the input gray.
MAX_IMAGE_ASPECT: Final = 4.0
# Robust standard deviations from the median (Iglewicz and Hoaglin 1993 recommend 3.5) ...
MAX_DEVIATION: Final = 3.5
# ... and besides, what an eye would notice: sets of one kind have deviations of next to nothing.
MIN_BRIGHTNESS_GAP: Final = 40.0  # of 255
MAX_SHARPNESS_SHARE: Final = 1 / 3  # of the median sharpness; a blur of two pixels is below
MIN_STRANGENESS_RATIO: Final = 2.0  # to the median

# ---- how much of it is worth a warning -----------------------------------------------------------

# Ultralytics advises up to 10 % of background images. Three times that is more often a folder of
# labels that was lost than a choice.
MAX_EMPTY: Final = 0.3
# Below this, single odd ones of a large set do no harm, as with images that cannot be decoded.
FEW: Final = 0.01
# Most are steps of a video then: the set has far fewer scenes than images.
MAX_NEAR_DUPLICATES: Final = 0.2
MAX_SMALL_IMAGES: Final = 0.05
MAX_LONG_IMAGES: Final = 0.05
# Recall can hardly be above what is left: a larger input (imgsz) or tiles are worth a thought.
MAX_TINY: Final = 0.25
MAX_FULL: Final = 0.05
# A box drawn twice is a slip; one in a thousand does not move a precision.
MAX_COINCIDENT: Final = 0.001
NONE: Final = 0.0

Counted = Literal["images", "boxes", "classes"]


@dataclass(frozen=True)
class Kind:
    """What is looked for. `told` is the form of a case's value, with it as {}."""

    code: str
    counted: Counted
    limit: float  # the share of all images, boxes or classes up to which it is no warning
    title: str
    problem: str  # what an oddity of it is
    advice: str
    told: str = ""


def percent(share: float) -> str:
    """A share for people: more digits for small ones."""
    return f"{share * 100:.2g} %" if share < 0.1 else f"{share * 100:.0f} %"


KINDS: Final = {
    kind.code: kind
    for kind in (
        Kind(
            "probe.class-one-split",
            "classes",
            NONE,
            "Classes in one split only",
            "classes have boxes in train or in val, but not in both",
            "move images of the class to the other split, or gather more of them",
            "{:.0f} boxes",
        ),
        Kind(
            "probe.class-rare",
            "classes",
            NONE,
            "Rare classes",
            f"classes are on fewer than {MIN_IMAGES_OF_CLASS} images",
            "gather more images of them, or merge or remove the class",
            "on {:.0f} images",
        ),
        Kind(
            "probe.class-imbalance",
            "classes",
            NONE,
            "Unequal classes",
            f"classes have less than 1/{MAX_CLASS_RATIO} of the most frequent one's boxes",
            "gather more images of them; judge a model by the mean over classes",
            "1 box for {:.0f} of the most frequent class",
        ),
        Kind(
            "probe.empty-labels",
            "images",
            MAX_EMPTY,
            "Images without a box",
            "images have no box",
            "look whether there is really nothing on them: a model learns that this is background",
        ),
        Kind(
            "probe.duplicate-images",
            "images",
            FEW,
            "Identical images",
            "images are byte-identical to another one",
            "remove the copies: they weigh more than others",
            "{:.0f} copies",
        ),
        Kind(
            "probe.near-duplicates",
            "images",
            MAX_NEAR_DUPLICATES,
            "Images that look alike",
            "images look like another one: resized, encoded again, or the next frame",
            "take fewer frames of one scene; keep scenes in one split with --group-by",
            "{:.0f} of 64 bits differ",
        ),
        Kind(
            "probe.unlike",
            "images",
            FEW,
            "Images unlike the rest",
            "images look like no other of the set",
            "look whether they belong here",
            "distance {:.2f}",
        ),
        Kind(
            "probe.brightness",
            "images",
            FEW,
            "Unusually dark or bright images",
            "images are far darker or brighter than the others",
            "look whether anything is to be seen on them",
            "mean luma {:.0f} of 255",
        ),
        Kind(
            "probe.contrast",
            "images",
            FEW,
            "Images without contrast",
            "images are of one colour",
            "look whether anything is to be seen on them",
            "contrast {:.1f} of 255",
        ),
        Kind(
            "probe.blur",
            "images",
            FEW,
            "Blurred images",
            "images are far less sharp than the others",
            "look whether the objects can be told on them",
            "sharpness {:.1f}",
        ),
        Kind(
            "probe.image-small",
            "images",
            MAX_SMALL_IMAGES,
            "Small images",
            f"images have a longer side of less than {MIN_LONGER_SIDE_PX} pixels",
            "use the originals; enlarged pictures have no detail",
            "longer side {:.0f} px",
        ),
        Kind(
            "probe.image-aspect",
            "images",
            MAX_LONG_IMAGES,
            "Long and narrow images",
            f"images are more than {MAX_IMAGE_ASPECT:.0f} times as long as wide",
            "cut them into tiles",
            "{:.1f} : 1",
        ),
        Kind(
            "probe.tiny-boxes",
            "boxes",
            MAX_TINY,
            "Tiny boxes",
            f"boxes are below {percent(TINY_AREA)} of the image, or narrower than "
            f"{TINY_SIDE_PX} pixels once it is scaled to {INPUT_PX}",
            "train with a larger imgsz, or cut the images into tiles",
            "{:.4%} of the image",
        ),
        Kind(
            "probe.full-image-boxes",
            "boxes",
            MAX_FULL,
            "Boxes around the whole image",
            f"boxes cover more than {percent(FULL_AREA)} of the image",
            "look whether these are labels of whole images, and not of objects",
            "{:.1%} of the image",
        ),
        Kind(
            "probe.box-aspect",
            "boxes",
            FEW,
            "Long and narrow boxes",
            f"boxes are more than {MAX_BOX_ASPECT:.0f} times as long as wide",
            "look whether columns were swapped, or boxes drawn by a slip",
            "{:.0f} : 1",
        ),
        Kind(
            "probe.box-twice",
            "boxes",
            MAX_COINCIDENT,
            "Objects labelled twice",
            "boxes nearly coincide with another one of their class",
            "remove one of the two",
            "overlap {:.1%}",
        ),
        Kind(
            "probe.box-two-classes",
            "boxes",
            MAX_COINCIDENT,
            "Objects with two classes",
            "boxes nearly coincide with one of another class",
            "decide what the object is: a detector is to give one answer",
            "overlap {:.1%}",
        ),
        Kind(
            "probe.clipped-boxes",
            "boxes",
            FEW,
            "Boxes cut at the border",
            "boxes reached past the image's border, and were cut there",
            "look whether the label files belong to these images, at this size",
        ),
    )
}
