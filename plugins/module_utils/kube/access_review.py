# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks the API server whether this user has a permission (SelfSubjectAccessReview), before a run needs it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .errors import ApiError

if t.TYPE_CHECKING:
    from .client import Client

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True)
class Permission:
    """A verb on a resource of an API group, as in an RBAC rule; the resource can include a subresource, as in pods/eviction."""

    verb: str
    resource: str
    group: str = ""

    def is_granted(self, client: Client, namespace: str = "") -> bool:
        """Whether this user has the permission in the namespace, by default in all namespaces; True if this user is not allowed to ask."""
        resource, dummy, subresource = self.resource.partition("/")
        attributes = {
            "namespace": namespace,
            "verb": self.verb,
            "group": self.group,
            "resource": resource,
            "subresource": subresource,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        try:
            review = client.create(_REVIEWS, body, dry_run=True)
        except ApiError as error:
            # Every user may ask by default (ClusterRole system:basic-user), but an administrator can change that.
            if not error.lacks_right:
                raise
            return True
        return bool(review["status"].get("allowed"))


class MissingPermission(ApiError):
    """The API server has answered that this user lacks a permission; no request that needs the permission was sent."""

    lacks_right = True

    def __init__(self, permission: Permission, namespace: str, purpose: str) -> None:
        """Use the wording of the server's message for a forbidden request, from which explain() derives the missing rule."""
        scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        super().__init__(
            f'This user cannot {permission.verb} resource "{permission.resource}" in API group "{permission.group}" {scope}, {purpose}',
            status=403,
            reason="Forbidden",
            method="POST",
            path=_REVIEWS,
        )
