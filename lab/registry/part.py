# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Container registries as a part of a lab: three instances of the distribution registry, and toxiproxy in front of two."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

from .. import build, pki
from ..cloud_settings import CloudFault
from ..errors import LabError
from ..files import write_private
from ..layout import DEFAULT_FLEET, Lab
from ..part import LabPart
from . import layout, logins

_TOOLS = ("registry", "toxiproxy")


class Registry(LabPart):
    """A registry without TLS and login, one with both, and a pull-through cache of the first one."""

    name = layout.NAME
    cloud = layout.NAME
    # The part has no machines of its own.
    fleet = DEFAULT_FLEET

    def build(self, lab: Lab) -> None:
        """Build the registry and toxiproxy."""
        build.ensure(_TOOLS)

    def prepare(self, lab: Lab) -> None:
        """Write the configuration; the certificates and passwords are created once per lab."""
        authority = layout.authority(lab)
        authority.parent.mkdir(exist_ok=True)
        pki.create_authority(authority, f"{lab.name}-registry", self.folder(lab) / "server")
        logins.create(lab)
        for registry in layout.REGISTRIES:
            write_private(layout.config(lab, registry), json.dumps(self._settings(lab, registry), indent=2))
        proxies = [
            {
                "name": proxy,
                "listen": layout.address(lab, proxy),
                "upstream": layout.address(lab, registry),
                "enabled": True,
            }
            for proxy, registry in layout.PROXIES.items()
        ]
        (self.folder(lab) / "toxiproxy.json").write_text(json.dumps(proxies, indent=2))
        # For `registry garbage-collect`.
        link = lab.bin / "registry"
        link.unlink(missing_ok=True)
        link.symlink_to(self._program("registry") / "registry")

    def environment(self, lab: Lab) -> dict[str, str]:
        """Return the variables of lab/compose/registry.yaml."""
        return {f"LAB_TOOL_{tool.upper()}": str(self._program(tool)) for tool in _TOOLS}

    def inject(self, lab: Lab, fault: CloudFault) -> None:
        """Reject every fault: those of the network are injected through toxiproxy's API."""
        raise LabError(f"unknown fault '{fault.name}': use the API of toxiproxy, $LAB_TOXIPROXY")

    def exports(self, lab: Lab) -> dict[str, str]:
        """Return the addresses (host:port), the certificate authority and the login of registry-tls."""
        services = (*layout.REGISTRIES, *layout.PROXIES)
        return {
            **{f"LAB_{service.upper().replace('-', '_')}": layout.address(lab, service) for service in services},
            "LAB_TOXIPROXY": layout.address(lab, layout.TOXIPROXY),
            "LAB_REGISTRY_CA": str(layout.authority(lab)),
            "LAB_REGISTRY_USER": logins.USERS[0],
            "LAB_REGISTRY_PASSWORD_FILE": str(logins.password_file(lab)),
        }

    def _settings(self, lab: Lab, registry: str) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "version": "0.1",
            # The access log (lab/registry/requests.py), and the line that says that the registry listens.
            "log": {"level": "info", "accesslog": {"disabled": False}},
            # Without a cache in memory, content that a garbage collection deletes is gone at once.
            "storage": {
                "filesystem": {"rootdirectory": str(self.state(lab) / registry)},
                "delete": {"enabled": True},
                "maintenance": {"uploadpurging": {"enabled": False}},
            },
            "http": {"addr": layout.address(lab, registry), "secret": secrets.token_hex(16)},
        }
        if registry == layout.TLS:
            files = {"certificate": "server.crt", "key": "server.key"}
            settings["http"]["tls"] = {key: str(self.folder(lab) / name) for key, name in files.items()}
            settings["auth"] = {"htpasswd": {"realm": "lab", "path": str(logins.htpasswd(lab))}}
        if registry == layout.CACHE:
            settings["proxy"] = {"remoteurl": f"http://{layout.address(lab, layout.PLAIN)}"}
        return settings

    def _program(self, tool: str) -> Path:
        return build.ensure([tool])[tool] / "bin"
