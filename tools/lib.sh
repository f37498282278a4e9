# shellcheck shell=bash
# Shared by the tools: the repository's path, messages, the choice of a Python, and pip's settings.

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=$REPO/build
export REPO BUILD

say() { printf '%s\n' "$@" >&2; }

die() {
  say "error: $*"
  exit 1
}

# python_of MINOR...: prints the path of the first working interpreter of these versions (3.11 3.12 ...).
python_of() {
  local minor candidate
  for minor in "$@"; do
    for candidate in "python$minor" python3 "$HOME"/.pyenv/versions/"$minor".*/bin/python3; do
      candidate=$(command -v "$candidate" 2>/dev/null) || continue
      # A pyenv shim exists for every version but runs only the selected one, so check its version.
      [ "$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$minor" ] || continue
      "$candidate" -c 'import sys; print(sys.executable)'
      return 0
    done
  done
  return 1
}

# pip_settings PYTHON: prints pip's current settings (index, certificates) as a pip.conf, for a pip that sees neither this environment nor this home.
pip_settings() {
  printf '[global]\n'
  "$1" -m pip config list |
    sed -nE "s/^(:env:|user|global|site)\.([a-z-]+)='(.*)'$/\2 = \3/p" | awk '!seen[$1]++'
}
