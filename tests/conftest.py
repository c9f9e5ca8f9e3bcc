"""Set up before any test module is imported."""

import atexit
import os
import shutil
import tempfile

import hypothesis
import pytest

# What builders assert says what it compared, as in the tests themselves.
pytest.register_assert_rewrite("tests.builders")

# How long an example takes says how busy the machine is. A test that hangs has its own time limit.
# The gate tries the same examples each time: what it says is about the change. New ones are looked
# for with `make explore`.
hypothesis.settings.register_profile("perdure", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=2_000)
hypothesis.settings.load_profile("perdure")

# Ultralytics reads these once, on import, and then writes a settings file: not into anyone's home.
os.environ["YOLO_OFFLINE"] = "true"
os.environ["YOLO_AUTOINSTALL"] = "false"
os.environ["YOLO_CONFIG_DIR"] = tempfile.mkdtemp(prefix="perdure-tests-")
atexit.register(shutil.rmtree, os.environ["YOLO_CONFIG_DIR"], ignore_errors=True)

import perdure.datasets.imaging  # noqa: E402, F401  before Ultralytics replaces Pillow's Image.open
