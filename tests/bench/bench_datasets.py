"""How fast a data set is checked, and the memory that takes; one JSON line each.

The limit is strict decoding of the same files on as many threads: a check decodes every image, and
should cost little more. The peers are Ultralytics' own scan of images and labels, and Datumaro's
import; neither decodes an image, looks for duplicates, or hashes anything.
"""

import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import simplejpeg

IMAGES = int(os.environ.get("BENCH_IMAGES", "5000"))
WIDTH, HEIGHT = 1280, 720
BOXES_PER_IMAGE = 5
BOXES = 200_000
TURNS = 3
PEERS = Path(__file__).parents[2] / ".venv-peers/bin/python"  # made by `make bench`
SEED = 7


def figure(name: str, value: float, unit: str, peer: str, peer_value: float) -> None:
    line = {
        "name": name,
        "value": round(value, 2),
        "unit": unit,
        "peer": peer,
        "peer_value": round(peer_value, 2),
        "ratio": round(value / peer_value, 3),
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def write_images(folder: Path) -> None:
    """IMAGES files in YOLO form, of soft shapes with some noise, as photographs have it."""
    rng = np.random.default_rng(SEED)
    (folder / "images").mkdir(parents=True)
    (folder / "labels").mkdir()
    (folder / "data.yaml").write_text("train: images\nnames: [a, b, c]\n")
    noise = rng.integers(-12, 13, (HEIGHT, WIDTH, 3), dtype=np.int16)
    for number in range(IMAGES):
        coarse = rng.integers(0, 256, (9, 16, 3), dtype=np.uint8)
        soft = cv2.resize(coarse, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)
        pixels = np.clip(soft + np.roll(noise, number, axis=1), 0, 255).astype(np.uint8)
        data = simplejpeg.encode_jpeg(pixels, quality=90)
        (folder / f"images/{number:05}.jpg").write_bytes(data)
        rows = rng.random((BOXES_PER_IMAGE, 4)) * [0.5, 0.5, 0.2, 0.2] + [0.25, 0.25, 0.05, 0.05]
        text = "".join(f"{number % 3} {x:.6f} {y:.6f} {w:.6f} {h:.6f}\n" for x, y, w, h in rows)
        (folder / f"labels/{number:05}.txt").write_text(text)


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def decode_all(folder: Path) -> None:
    def decode(path: Path) -> None:
        simplejpeg.decode_jpeg(path.read_bytes(), strict=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(decode, sorted((folder / "images").iterdir())):
            pass


def check_all(folder: Path) -> None:
    from perdure.datasets.check import check_folder

    result = check_folder(folder)
    assert result.images == IMAGES, result.findings[:3]


def scan_all(folder: Path) -> None:
    """What Ultralytics does with a data set before it trains, without its cache."""
    from multiprocessing.pool import ThreadPool

    from ultralytics.data.utils import verify_image_label

    images = sorted((folder / "images").iterdir())
    jobs = [
        (str(image), str(folder / f"labels/{image.stem}.txt"), "", False, 3, 0, 0, False)
        for image in images
    ]
    with ThreadPool(os.cpu_count()) as pool:
        found = list(pool.imap(verify_image_label, jobs))
    assert sum(bool(row[0]) for row in found) == IMAGES, found[0]


def seconds_of_datumaro(folder: Path) -> float:
    script = Path(__file__).with_name("datumaro_import.py")
    command = [PEERS, script, folder, str(IMAGES), str(IMAGES * BOXES_PER_IMAGE)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def coco_of_many_boxes(folder: Path) -> Path:
    """BOXES boxes on 2,000 small images, as one COCO file."""
    rng = np.random.default_rng(SEED)
    folder.mkdir()
    for number in range(2000):
        pixels = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        (folder / f"{number}.png").write_bytes(cv2.imencode(".png", pixels)[1].tobytes())
    boxes = rng.random((BOXES, 4)) * [15, 15, 10, 10] + [0, 0, 1, 1]
    annotations = [
        {"id": n, "image_id": n % 2000, "category_id": n % 7, "bbox": [float(v) for v in box]}
        for n, box in enumerate(boxes)
    ]
    images = [{"id": n, "file_name": f"{n}.png", "width": 32, "height": 32} for n in range(2000)]
    categories = [{"id": n, "name": f"class {n}"} for n in range(7)]
    value = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "annotations.json").write_text(json.dumps(value))
    return folder


def peak_mib(queue: "multiprocessing.Queue[float]", folder: str | None) -> None:
    """The peak memory of a process that checks `folder`, or only imports what that needs."""
    from perdure.datasets.check import check_folder

    if folder is not None:
        result = check_folder(Path(folder))
        assert result.boxes == BOXES, result.findings[:3]
    # Not getrusage: its figure begins with the peak of the process that started this one.
    status = Path("/proc/self/status").read_text()
    queue.put(int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]) / 1024)


def peak_of(folder: Path | None) -> float:
    context = multiprocessing.get_context("spawn")
    queue: multiprocessing.Queue[float] = context.Queue()
    process = context.Process(target=peak_mib, args=(queue, str(folder) if folder else None))
    process.start()
    try:
        return queue.get(timeout=300)
    finally:
        process.join(30)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary, "images")
        write_images(folder)
        decode_all(folder)  # the files are in memory from here on
        # In turns, and the best of each: other work on the machine comes and goes.
        turns = [
            (seconds(lambda: decode_all(folder)), seconds(lambda: check_all(folder)))
            for _ in range(TURNS)
        ]
        decoding, checking = (min(times) for times in zip(*turns, strict=True))
        figure(
            "check and hash",
            IMAGES / checking,
            "images/s",
            "strict decoding alone",
            IMAGES / decoding,
        )
        peers = {
            "Ultralytics' scan": seconds(lambda: scan_all(folder)),
            "Datumaro's import": seconds_of_datumaro(folder),
        }
        for peer, took in peers.items():
            figure("check and hash", IMAGES / checking, "images/s", peer, IMAGES / took)
        many = coco_of_many_boxes(Path(temporary, "coco"))
        figure("peak memory, 200k boxes", peak_of(many), "MiB", "imports alone", peak_of(None))


if __name__ == "__main__":
    main()
