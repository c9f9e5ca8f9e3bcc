#!/usr/bin/env bash
# Makes the virtual environment and installs exactly requirements.lock and this project into it.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
venv=${VENV:-.venv}

need_debian() { # program-or-check, packages...
    local what=$1; shift
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "setup: installing $* ($what is missing)"
        apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@" >/dev/null
    else
        echo "$what is missing. On Debian or Ubuntu: sudo apt-get install $*" >&2
        exit 1
    fi
}

command -v "$python" >/dev/null || need_debian "Python 3.11 or newer" python3 python3-venv
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "Perdure needs Python 3.11 or newer; $python is $("$python" --version). Name another: make PYTHON=python3.11 setup" >&2
    exit 1
}
"$python" -c 'import ensurepip, venv' 2>/dev/null || need_debian "Python's venv module" python3-venv
command -v setpriv >/dev/null || [ "$(id -u)" != 0 ] || need_debian "setpriv" util-linux

# A half-made environment is made anew.
[ -x "$venv/bin/pip" ] || { rm -rf "$venv"; "$python" -m venv "$venv"; }
echo "setup: installing the packages of requirements.lock into $venv: 6.5 GB, some minutes the first time ..."
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.lock
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
echo "setup: ready, $venv/bin/perdure (to type only perdure: source $venv/bin/activate)"
