"""Prints the seconds that Datumaro takes to import a YOLO folder. Runs in .venv-peers, without
anything of Perdure.
"""

import sys
import time

from datumaro.components.dataset import Dataset


def main(folder: str, images: str, boxes: str) -> None:
    started = time.perf_counter()
    # It reads on demand: only who asks for the boxes has them.
    counts = [len(item.annotations) for item in Dataset.import_from(folder, "yolo")]
    took = time.perf_counter() - started
    assert (len(counts), sum(counts)) == (int(images), int(boxes)), (len(counts), sum(counts))
    sys.stdout.write(f"{took}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
