#!/bin/sh
# Installs the packages that a file names, and what they need, at the versions of the lock file
# beside it and no others. Further arguments are wheels to install with them.
#   install-locked.sh /needs/control.txt [WHEEL...]
set -eu
names=$1
shift
lock=$(dirname "$names")/requirements.lock
pip install --quiet --constraint "$lock" --requirement "$names" "$@"
pip check
# A dependency that the lock file does not know would come in another version with each build.
unlocked=$(pip freeze | grep -v ' @ file:' | grep -vixF -f "$lock" || true)
[ -z "$unlocked" ] || {
    echo "not in requirements.lock (make lock writes it anew): $unlocked" >&2
    exit 1
}
