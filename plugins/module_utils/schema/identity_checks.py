# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the fields of gpu_cluster by which the cluster and the user are known."""

from __future__ import annotations

from ..common.nested import get_nested
from .messages import quote
from .types import Problems
from .views import Document


def renamed_from_another_name(cluster: Document) -> Problems:
    """A cluster is renamed from one name to another."""
    name, former = get_nested(cluster, "name"), get_nested(cluster, "renamed_from")
    if isinstance(name, str) and name == former:
        yield f"gpu_cluster.renamed_from: {quote(name)} is the name that the cluster has now; give the former one, or leave it out"


def groups_have_a_user(cluster: Document) -> Problems:
    """Kubernetes refuses impersonated groups without a user."""
    if get_nested(cluster, "impersonate_groups") and get_nested(cluster, "impersonate_user") is None:
        yield "gpu_cluster.impersonate_user: is missing; Kubernetes impersonates groups only together with a user"


IDENTITY_CHECKS = (renamed_from_another_name, groups_have_a_user)
