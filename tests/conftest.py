"""Set up before any test module is imported."""

import os
import tempfile

# Ultralytics reads these once, on import, and then writes a settings file: not into anyone's home.
os.environ["YOLO_OFFLINE"] = "true"
os.environ["YOLO_AUTOINSTALL"] = "false"
os.environ["YOLO_CONFIG_DIR"] = tempfile.mkdtemp(prefix="perdure-tests-")
