# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mode `none`: each pod gets whole GPUs."""

from __future__ import annotations

from ..catalog.names import NONE_MODE
from .base import SharingMode


class WholeGpus(SharingMode):
    """The mode without sharing."""

    name = NONE_MODE
    page_name = "whole GPUs"


NONE = WholeGpus()
