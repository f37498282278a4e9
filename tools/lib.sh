# shellcheck shell=bash
# What the tools share: where the repository is, how to speak, and which Python to take.

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=$REPO/build
export REPO BUILD

say() { printf '%s\n' "$@" >&2; }

die() {
  say "error: $*"
  exit 1
}

# python_of MINOR...: the first interpreter that is one of these (3.11 3.12 ...) and really runs.
python_of() {
  local minor candidate
  for minor in "$@"; do
    for candidate in "python$minor" python3 "$HOME"/.pyenv/versions/"$minor".*/bin/python3; do
      candidate=$(command -v "$candidate" 2>/dev/null) || continue
      # A pyenv shim exists for every version and runs only the chosen one: ask it who it is.
      [ "$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$minor" ] || continue
      "$candidate" -c 'import sys; print(sys.executable)'
      return 0
    done
  done
  return 1
}
