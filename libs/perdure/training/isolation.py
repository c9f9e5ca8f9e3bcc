"""Keep libraries to themselves: no network, no installs, no file outside the attempt's folder."""

import os
import sys
from pathlib import Path
from typing import Final

import perdure.datasets.imaging  # noqa: F401  before Ultralytics replaces Pillow's Image.open

_FIXED: Final = {
    "YOLO_OFFLINE": "true",  # no version checks, no usage events, no downloads
    "YOLO_AUTOINSTALL": "false",  # a missing package is an error, not something to fetch
    "YOLO_VERBOSE": "false",
}


def isolate(folder: Path) -> None:
    """Point the settings and caches of Ultralytics, torch and matplotlib into `folder`.

    They read these variables on import, and Ultralytics then writes a settings file. Raises
    RuntimeError when it has been imported already.
    """
    if "ultralytics" in sys.modules:
        raise RuntimeError("isolate() came too late: Ultralytics has been imported already")
    os.environ.update(_FIXED)
    os.environ["YOLO_CONFIG_DIR"] = str(folder)
    os.environ["MPLCONFIGDIR"] = str(folder / "matplotlib")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")  # made even if unused
