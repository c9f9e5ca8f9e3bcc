"""What commands take that read a data set: the source, and the rules of an import."""

from typing import Annotated

import typer

from perdure.datasets.rules import BoxFormat, FormatName, SixthField

DataSource = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A folder or a zip archive of images and labels, s3://BUCKET/PREFIX, or a zip's "
        "https:// URL.",
    ),
]
Format = Annotated[
    FormatName | None,
    typer.Option("--format", help="The labels' format; without it, it is recognised."),
]
BoxFormatOption = Annotated[
    BoxFormat | None, typer.Option("--box-format", help="What COCO's boxes are: xywh, or xyxy.")
]
SixthFieldOption = Annotated[
    SixthField | None,
    typer.Option(
        "--sixth-field",
        help="What the sixth field of YOLO rows is, confidence or track; it is left out.",
    ),
]
DropDegenerate = Annotated[
    bool, typer.Option("--drop-degenerate", help="Leave out boxes without width or height.")
]
MaxSkipped = Annotated[
    float, typer.Option("--max-skipped", help="Share of images that may be undecodable.")
]
AllowLeakage = Annotated[
    bool, typer.Option("--allow-leakage", help="Accept identical images in train and val.")
]
GroupBy = Annotated[
    str,
    typer.Option(
        "--group-by",
        metavar="REGEX",
        help="Images whose names match alike stay in one split, e.g. '^[^_]+' for a prefix.",
    ),
]
Version = Annotated[
    str, typer.Argument(metavar="VERSION", help="A version, or the beginning of one.")
]
