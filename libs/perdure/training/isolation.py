"""Keep libraries to themselves: no network, no installs, no file outside the attempt's folder, and
no core kept busy with waiting.
"""

import os
import sys
from pathlib import Path
from typing import Final

import perdure.datasets.imaging  # noqa: F401  before Ultralytics replaces Pillow's Image.open

# How long a thread spins for the others before it sleeps. By default (300,000) a step takes ten
# times as long as soon as another process wants the same cores; without spinning, half as long
# again on an idle machine. With this number both are within about a tenth of the better.
SPIN_COUNT: Final = 1000

_FIXED: Final = {
    "YOLO_OFFLINE": "true",  # no version checks, no usage events, no downloads
    "YOLO_AUTOINSTALL": "false",  # a missing package is an error, not something to fetch
    "YOLO_VERBOSE": "false",
}


def isolate(folder: Path) -> None:
    """Point the settings and caches of Ultralytics, torch and matplotlib into `folder`.

    They read these variables on import, and Ultralytics then writes a settings file. CPU threads
    spin only briefly, as torch's OpenMP library reads when it is loaded. Raises RuntimeError when
    Ultralytics has been imported already.
    """
    if "ultralytics" in sys.modules:
        raise RuntimeError("isolate() came too late: Ultralytics has been imported already")
    os.environ.update(_FIXED)
    os.environ["YOLO_CONFIG_DIR"] = str(folder)
    os.environ["MPLCONFIGDIR"] = str(folder / "matplotlib")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")  # made even if unused
    os.environ.setdefault("GOMP_SPINCOUNT", str(SPIN_COUNT))
