# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines the base class of the Magnum modules, with the connection options of openstack.cloud and clients for the services of one cloud."""

from __future__ import annotations

import functools
import typing as t

from ...catalog.secrets import NOT_SHOWN
from ...common.errors import ServiceError
from ...common.module import ArgumentSpec, BaseModule, merge_specs
from .client import Magnum
from .errors import OpenStackError, explain
from .nova_glance import Glance, Nova
from .session import CloudOptions, Session, enable_logging

# The options have the same names as in openstack.cloud.
CONNECTION: ArgumentSpec = {
    "cloud": {"type": "raw"},
    "auth": {"type": "dict", "no_log": True},
    "auth_type": {"type": "str"},
    "region_name": {"type": "str"},
    "api_timeout": {"type": "int"},
    "validate_certs": {"type": "bool", "aliases": ["verify"]},
    "ca_cert": {"type": "str", "aliases": ["cacert"]},
    "client_cert": {"type": "str", "aliases": ["cert"]},
    "client_key": {"type": "str", "no_log": True, "aliases": ["key"]},
    "interface": {
        "type": "str",
        "choices": ["admin", "internal", "public"],
        "default": "public",
        "aliases": ["endpoint_type"],
    },
    "sdk_log_path": {"type": "str"},
    "sdk_log_level": {"type": "str", "choices": ["INFO", "DEBUG"], "default": "INFO"},
}
WAIT: ArgumentSpec = {
    "wait": {"type": "bool", "default": True},
    "wait_timeout": {"type": "int", "default": 3600, "aliases": ["timeout"]},
    "wait_sleep": {"type": "int", "default": 5},
}


class MagnumModule(BaseModule):
    """The base class of modules that send requests to a cloud with Magnum. It provides the connection options."""

    def __init__(self, argument_spec: ArgumentSpec, **kwargs: t.Any) -> None:
        """Compose the argument spec without sending a request."""
        super().__init__(merge_specs(CONNECTION, argument_spec), **kwargs)

    def shown_params(self) -> dict[str, t.Any]:
        """The options to print. A cloud that is given as a map is hidden, because it contains credentials."""
        shown = super().shown_params()
        if isinstance(shown.get("cloud"), dict):
            shown["cloud"] = NOT_SHOWN
        return shown

    @functools.cached_property
    def session(self) -> Session:
        """The session with the cloud. Raises ConnectionProblem if the cloud's configuration cannot be used."""
        options = CloudOptions.from_params(self.params)
        self.no_log_values.update(options.secrets)
        enable_logging(self.params["sdk_log_path"], self.params["sdk_log_level"])
        return Session(options, self.user_agent)

    @functools.cached_property
    def magnum(self) -> Magnum:
        """The client for clusters and node groups."""
        return Magnum(self.session)

    @functools.cached_property
    def nova(self) -> Nova:
        """The client for flavors, keypairs and limits."""
        return Nova(self.session)

    @functools.cached_property
    def glance(self) -> Glance:
        """The client for images."""
        return Glance(self.session)

    def explain_error(self, error: ServiceError) -> str:
        """The error message, with the cloud, the region and the project."""
        return (
            explain(error, self.session.origin) if isinstance(error, OpenStackError) else super().explain_error(error)
        )
