#!/usr/bin/env bash
# Writes requirements.lock: what pip resolves for all extras in a fresh environment, with the headless OpenCV.
set -euo pipefail
cd "$(dirname "$0")/.."
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
"${PYTHON:-python3}" -m venv "$fresh"
"$fresh/bin/pip" install --quiet '.[all]'
{
    sed -n '/^#/p' requirements.lock
    "$fresh/bin/pip" freeze | grep -v '^perdure @' | sed 's/^opencv-python==/opencv-python-headless==/' | LC_ALL=C sort -f
} > requirements.lock.new
mv requirements.lock.new requirements.lock
