# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses the image of a program that fits a node's driver and GPUs (pure)."""

from __future__ import annotations

import typing as t

from ..catalog import cuda

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node


def choose_image(images: t.Mapping[str, str], node: Node) -> str:
    """The image with the newest CUDA version that the node's driver and GPUs support.

    If no image fits, or if the driver's version is unknown, the image with the oldest version is returned, which has the lowest requirements for the driver.
    """
    driver, compute = cuda.parse_version(node.cuda), cuda.parse_version(node.compute)
    by_version = {cuda.parse_version(text) or (0, 0): image for text, image in images.items()}
    fitting = [
        version for version in by_version if driver is not None and version <= driver and cuda.runs_on(version, compute)
    ]
    return by_version[max(fitting)] if fitting else by_version[min(by_version)]
