# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a list of images as files for skopeo, oc-mirror and OpenShift."""

from __future__ import annotations

import os
import typing as t

from ..catalog.olm import OLM
from ..common import private_file
from ..common.yaml_documents import dump
from .mirrored_images import MirroredImage, copy_list, image_set_configuration, mirror_sets

if t.TYPE_CHECKING:
    from ..pools.plan import Plan


class FileSet:
    """The files in the folder that the user has chosen; if no folder is set, there are no files."""

    def __init__(self, folder: str | None, images: t.Sequence[MirroredImage], plan: Plan, openshift: str) -> None:
        """`openshift` is the version of OpenShift; empty for other clusters."""
        packages = [release for release in (plan.operator, plan.nfd) if release.installer == OLM]
        documents = {
            "imageset-config.yaml": [image_set_configuration(images, packages, openshift)],
            "mirror-sets.yaml": mirror_sets(images),
        }
        texts = {name: "".join(f"---\n{dump(item)}" for item in items) for name, items in documents.items()}
        self._texts = {
            os.path.join(folder, name): text
            for name, text in {"images.txt": copy_list(images), **texts}.items()
            if folder
        }

    @property
    def paths(self) -> list[str]:
        """The paths of the files."""
        return list(self._texts)

    def changes(self) -> dict[str, tuple[str | None, str]]:
        """The current and the new content of each file that differs; the current content is None for a file that does not exist."""
        changes = {}
        for path, text in self._texts.items():
            present = private_file.text_of(path)
            if present != text:
                changes[path] = (present, text)
        return changes

    @staticmethod
    def write(changes: t.Mapping[str, tuple[str | None, str]]) -> None:
        """Write the files that changes() has returned; raises ConnectionProblem."""
        for path, (dummy, text) in changes.items():
            private_file.make_folder(path)
            private_file.write(path, text, keep_mode=True)
