"""Preprocessing, the ONNX session, suppression and mAP: shared by publisher and inference."""

import os

# ONNX Runtime (1.32) gathers data about process and machine in ~/.cache, and sends it off.
# It reads this once, when its library is loaded: every import of it in Perdure comes after here.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
