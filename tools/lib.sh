# shellcheck shell=bash
# Shared by the tools: the repository's path, messages, and the choice of a Python.

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
