# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Base class of the VKS modules, with the connection options and the clients for an account."""

from __future__ import annotations

import functools
import typing as t

from ansible.module_utils.basic import env_fallback

from ...common.module import ArgumentSpec, BaseModule, merge_specs
from .clusters import VksCluster, find_cluster
from .endpoints import DEFAULT_REGION, ENVIRONMENT, IAM_VERSIONS
from .transport import VksTransport, connect
from .vserver import VServer


def _option(name: str, **more: t.Any) -> dict[str, t.Any]:
    names = ENVIRONMENT.get(name)
    return {"type": "str", **({"fallback": (env_fallback, list(names))} if names else {}), **more}


CONNECTION: ArgumentSpec = {
    "client_id": _option("client_id"),
    "client_secret": _option("client_secret", no_log=True),
    "region": _option("region", default=DEFAULT_REGION),
    "iam_url": _option("iam_url"),
    "iam_version": _option("iam_version", choices=list(IAM_VERSIONS)),
    "vks_url": _option("vks_url"),
    "vserver_url": _option("vserver_url"),
    "project_id": _option("project_id"),
    "validate_certs": {"type": "bool", "default": True},
    "ca_cert": {"type": "path"},
    "request_timeout": {"type": "int", "default": 30},
}
WAIT: ArgumentSpec = {
    "wait": {"type": "bool", "default": True},
    "wait_timeout": {"type": "int", "default": 3600, "aliases": ["timeout"]},
    "wait_sleep": {"type": "int", "default": 15},
}


class VksModule(BaseModule):
    """A module that sends requests to VNG Cloud's Kubernetes service."""

    def __init__(self, argument_spec: ArgumentSpec, **kwargs: t.Any) -> None:
        """Compose the argument spec; a module's own options override the shared ones of the same name."""
        super().__init__(merge_specs(CONNECTION, argument_spec), **kwargs)

    @functools.cached_property
    def transport(self) -> VksTransport:
        """The transport for requests to the services; raises InvalidOptions."""
        return connect(self.params, self.user_agent)

    @functools.cached_property
    def vserver(self) -> VServer:
        """The client for the resources of the account's project."""
        return VServer(self.transport, self.params["project_id"])

    def cluster(self, name: str) -> VksCluster:
        """The cluster with this name or id; raises InvalidOptions."""
        return find_cluster(self.transport, name)
