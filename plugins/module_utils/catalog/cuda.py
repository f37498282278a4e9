# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CUDA versions, and the GPUs that each version supports."""

from __future__ import annotations

import re

# Major and minor number of a CUDA version or compute capability.
Version = tuple[int, int]

# The key for an image that is used with every CUDA version.
ANY_VERSION = "0.0"

# The lowest compute capability of each major version (CUDA Toolkit release notes, "Deprecated Architectures").
_MIN_COMPUTE: dict[int, Version] = {11: (3, 5), 12: (5, 0), 13: (7, 5)}
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.\d{1,4})*", re.ASCII)


def parse_version(text: str) -> Version | None:
    """The first two numbers of a version; None for other text."""
    match = _VERSION.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else None


def runs_on(cuda: Version, compute: Version | None) -> bool:
    """Whether programs built for a CUDA version run on GPUs with a compute capability; an unknown capability (None) counts as supported."""
    return compute is None or compute >= _MIN_COMPUTE.get(cuda[0], (0, 0))
