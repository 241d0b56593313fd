#!/bin/sh
# Sets up everything that `make quickstart` and `make test` need. Safe to run again: a second run
# changes nothing and takes about a second.
#
#   1. uv, from pip, where it is missing
#   2. the locked Python packages, in .venv (nvcc of CUDA 13.0 is one of them)
#   3. g++ and bubblewrap, from apt-get, where it may; else a sentence says what to install
#
# With the word `tests` also chromium, likewise: the run viewer's tests use it, and nothing else does.
set -eu
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 3; }
have() { command -v "$1" >/dev/null 2>&1; }

# --- system packages --------------------------------------------------------------------------

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

may_install() {
    have apt-get && { [ "$(id -u)" = 0 ] || { have sudo && sudo -n true 2>/dev/null; }; }
}

# apt_install PACKAGE...: installs what it can; the caller looks at what is there afterwards.
apt_install() {
    may_install || return 0
    say "installing with apt-get: $*"
    as_root apt-get update -qq >&2 || say "apt-get update failed; trying with the lists there are"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y -qq \
        --no-install-recommends "$@" >&2 || say "apt-get could not install: $*"
}

# --- uv -----------------------------------------------------------------------------------------

# Prints the path of uv; installs it by pip when there is none. A Python that belongs to the system's
# package manager (PEP 668) is left alone: uv then goes into .tools/ of this folder.
find_uv() {
    for candidate in uv .tools/bin/uv "$HOME/.local/bin/uv"; do
        if "$candidate" --version >/dev/null 2>&1; then command -v "$candidate"; return; fi
    done
    have python3 || die "python3 is missing: install Python 3.11 or 3.12 with pip, then run this again"
    python3 -m pip --version >/dev/null 2>&1 || apt_install python3-pip
    python3 -m pip --version >/dev/null 2>&1 ||
        die "uv and pip are both missing: install python3-pip (or uv: docs.astral.sh/uv), then run this again"
    say "installing uv with pip"
    export PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1
    python3 -m pip install --quiet uv >/dev/null 2>&1 || true
    for candidate in uv "$HOME/.local/bin/uv"; do
        if "$candidate" --version >/dev/null 2>&1; then command -v "$candidate"; return; fi
    done
    python3 -m pip install --quiet --target .tools --upgrade uv >&2 ||
        die "pip could not install uv: is the package index reachable? (set PIP_INDEX_URL for a mirror)"
    command -v .tools/bin/uv
}

# --- packages -----------------------------------------------------------------------------------

# Extras that the user added (uv sync --extra verl) stay: --inexact removes nothing. Compiled once
# here (10 s), not by the ten processes of RL that import the same packages at once (40 s).
sync_packages() {
    unset VIRTUAL_ENV || true
    export UV_PROJECT_ENVIRONMENT=.venv UV_HTTP_TIMEOUT="${UV_HTTP_TIMEOUT:-300}"
    [ -x .venv/bin/python ] || {
        rm -rf .venv  # what a killed run may have left
        say "installing the locked packages (about 6 GB on disk, 1 to 5 minutes)"
    }
    tries=1
    until "$uv" sync --frozen --inexact --compile-bytecode --quiet --group dev --group train; do
        [ "$tries" -lt 3 ] || die "uv sync failed $tries times: the reason stands above (network, disk or Python version)"
        tries=$((tries + 1))
        say "uv sync failed; trying again ($tries of 3), with the system's certificates"
        export UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1
        sleep 2
    done
}

uv=$(find_uv)
sync_packages
.venv/bin/python -m compileall -q src || true  # for whoever has PYTHONDONTWRITEBYTECODE set

missing() {
    have g++ || printf 'g++ '
    have bwrap || printf 'bubblewrap '
}

if [ -n "$(missing)" ] && [ ! -e .venv/.apt-tried ]; then
    # shellcheck disable=SC2046  # a list of package names
    apt_install $(missing)
    : >.venv/.apt-tried  # once a clone: without a network each try costs minutes
fi
[ -z "$(missing)" ] || say "not installed: $(missing)- an administrator installs them with your system's \
package manager (Debian, Ubuntu: apt-get install $(missing)), then run this again"
have bwrap || say "without bubblewrap the judge takes the next sandbox there is, which is weaker, and names it \
in every verdict"
have g++ || die "without g++ nothing can be compiled: stopping here"
.venv/bin/cuda-rl tasks list >/dev/null 2>&1 || true  # drawn once and kept: later lists take no time
have uv || say "uv is at $uv: to use it in this shell, run: export PATH=\"$(cd "$(dirname "$uv")" && pwd):\$PATH\""

if [ "${1:-}" = tests ] && [ -z "${CUDA_RL_CHROMIUM:-}" ] && ! have chromium; then
    [ -e .venv/.apt-tried-chromium ] || apt_install chromium
    : >.venv/.apt-tried-chromium
    have chromium || say "without chromium the run viewer's tests in a browser are skipped: install it with \
your system's package manager (Debian: apt-get install chromium), or set CUDA_RL_CHROMIUM to one"
fi
