#!/bin/sh
# Make .venv with the locked versions of everything: with uv if there is one, else with venv and pip.
set -eu
cd "$(dirname "$0")/.."

with_uv() {
    UV_PROJECT_ENVIRONMENT=.venv uv sync --quiet --frozen --all-extras && return
    echo "install: the addresses in uv.lock cannot be reached, asking the configured index instead" >&2
    uv venv --quiet --clear --python '>=3.11' .venv
    uv pip install --quiet --python .venv/bin/python --requirement requirements.lock
    uv pip install --quiet --python .venv/bin/python --no-deps --editable .
}

with_pip() {
    python=$(find_python) || {
        echo "install: no Python 3.11 or newer with the venv module was found." >&2
        echo "install: install one (Debian, Ubuntu: apt install python3-venv), or uv, or set PYTHON=/path/to/python." >&2
        exit 1
    }
    "$python" -m venv --clear .venv
    export PIP_DISABLE_PIP_VERSION_CHECK=1
    .venv/bin/python -m pip install --quiet --quiet --requirement requirements.lock
    .venv/bin/python -m pip install --quiet --quiet --no-deps --editable .
}

find_python() {
    for candidate in ${PYTHON:-python3 python python3.14 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

if command -v uv >/dev/null; then
    echo "install: .venv with uv"
    with_uv
else
    echo "install: .venv with venv and pip (this takes a minute; uv would be faster)"
    with_pip
fi
