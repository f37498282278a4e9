# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads flavors, keypairs, limits and images from Nova and Glance, because Magnum itself checks none of them reliably."""

from __future__ import annotations

import functools

from .errors import OpenStackError
from .session import Session
from .transport import Object, Service

# The first microversion that returns extra specs in the flavor (Nova 18.0, Rocky).
_EXTRA_SPECS = {"OpenStack-API-Version": "compute 2.61"}


class Nova:
    """Reads flavors, keypairs and limits."""

    def __init__(self, session: Session) -> None:
        """Store the arguments without sending a request."""
        self._service = Service(session, "compute", "Nova")

    @functools.cached_property
    def flavors(self) -> list[Object]:
        """All flavors of the project, with `extra_specs` if the user is allowed to read them."""
        try:
            return self._service.pages(
                "/flavors/detail", "flavors", lambda at: self._service.send("GET", at, headers=_EXTRA_SPECS)
            )
        except OpenStackError as error:
            if error.status != 406:
                raise
        return [
            {**flavor, **self._read(f"/flavors/{flavor['id']}/os-extra_specs")}
            for flavor in self._service.pages("/flavors/detail", "flavors")
        ]

    def _read(self, path: str) -> Object:
        """The response, or an empty map if the user is not allowed to read it."""
        try:
            return self._service.send("GET", path).json()
        except OpenStackError as error:
            if not error.forbidden:
                raise
            return {}

    def flavor(self, name: str) -> Object | None:
        """The flavor with this name or id, or None if it does not exist."""
        return next((flavor for flavor in self.flavors if name in (flavor["id"], flavor["name"])), None)

    @functools.cached_property
    def keypairs(self) -> list[str]:
        """The names of the user's keypairs."""
        return sorted(entry["keypair"]["name"] for entry in self._service.pages("/os-keypairs", "keypairs"))

    @functools.cached_property
    def limits(self) -> Object:
        """The project's absolute limits and usage, or an empty map if the user is not allowed to read them."""
        return dict(self._read("/limits").get("limits", {}).get("absolute", {}))


class Glance:
    """Reads images."""

    def __init__(self, session: Session) -> None:
        """Store the arguments without sending a request."""
        self._service = Service(session, "image", "Glance", "/v2")

    @functools.cached_property
    def images(self) -> list[Object]:
        """All images of the project."""
        return self._service.pages("/images", "images")

    def named(self, name: str) -> list[Object]:
        """The images with this name or id. The names of images are not unique."""
        return [image for image in self.images if name in (image["id"], image["name"])]
