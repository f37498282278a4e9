# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fields of the ClusterPolicy for a GPU operator that OLM installs, derived from gpu_cluster (pure).

OLM has no Helm values; the same settings are fields of the ClusterPolicy.
"""

from __future__ import annotations

from ..catalog.releases import POLICY_PARTS_SINCE, VERSIONED_IMAGES, release_of
from ..schema.types import Document
from . import operator_values

# Components of the chart that are not parts of a ClusterPolicy's spec.
_NOT_IN_POLICY = ("operator", "draDriver")


def policy_values(settings: Document) -> Document:
    """The fields of a new ClusterPolicy's spec for gpu_cluster.operator with all defaults; the user's own fields override them."""
    values = operator_values.operator_values({**settings, "registry": None})
    release = release_of(settings["version"])
    absent = {*_NOT_IN_POLICY, *(part for part, since in POLICY_PARTS_SINCE.items() if release < since)}
    values = {key: value for key, value in values.items() if key not in absent or key in settings["values"]}
    # An operator installed by OLM takes images from its environment. If only a version is set, it builds an image reference without a name, so
    # repository and image must be set as well (gpu-operator internal/image/image.go; issues 202 and 2006).
    for part, (repository, image) in VERSIONED_IMAGES.items():
        if (values.get(part) or {}).get("version"):
            values[part] = {"repository": repository, "image": image, **values[part]}
    return values
