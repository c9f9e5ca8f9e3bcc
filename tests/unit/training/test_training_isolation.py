"""Ultralytics, once imported, changes nothing about how Perdure reads images."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from pathlib import Path
from perdure.training.isolation import isolate
isolate(Path(sys.argv[1]))
import os
print("spins", os.environ["GOMP_SPINCOUNT"])
import ultralytics
from perdure.datasets.imaging import decode_bytes
from perdure.errors import InvalidDataset
try:
    decode_bytes(b"BM and nothing more", "broken.bmp")
except InvalidDataset as error:
    print(error.message)
"""


def test_a_broken_image_is_refused_as_before(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "broken.bmp" in done.stdout
    assert "spins 1000" in done.stdout  # of both children that compute with torch
