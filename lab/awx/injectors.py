# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the credentials of a job become files, environment variables and extra variables (pure).

Sources at tag 24.6.1: awx/main/models/credential/__init__.py (inject_credential), awx/main/models/credential/injectors.py for AWX's own types.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .rules import render
from .store import Row, Store


@dataclass
class Injected:
    """Files by name below /runner/env, environment variables, and extra variables."""

    files: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)

    def add_file(self, name: str, content: str) -> str:
        """Add a file, and return its path in the container."""
        self.files[name] = content
        return f"/runner/env/{name}"


def inject(store: Store, credentials: Iterable[int]) -> Injected:
    """Return what a job gets from its credentials."""
    injected = Injected()
    for number in credentials:
        credential = store.row("credentials", number)
        kind = store.row("credential_types", credential["credential_type"])
        if kind["managed"]:
            _OWN.get(kind["name"], _nothing)(injected, credential["inputs"], f"tmp{number}")
        else:
            _custom(injected, kind, credential["inputs"], f"tmp{number}")
    return injected


def _custom(injected: Injected, kind: Row, inputs: Row, prefix: str) -> None:
    """Unset optional texts are empty."""
    context: Row = {
        each["id"]: inputs.get(each["id"], False if each.get("type") == "boolean" else "")
        for each in kind["inputs"].get("fields", [])
    }
    names: Any = {}
    for name, template in kind["injectors"].get("file", {}).items():
        part = name.removeprefix("template").removeprefix(".")
        path = injected.add_file(f"{prefix}{part}", render(template, context))
        names = path if not part else {**names, part: path}
    context["tower"] = {"filename": names}
    for name, template in kind["injectors"].get("env", {}).items():
        injected.environment[name] = render(template, context)
    for name, template in kind["injectors"].get("extra_vars", {}).items():
        injected.variables[name] = render(template, context)


def _nothing(injected: Injected, inputs: Row, name: str) -> None:
    """Types of other purposes inject nothing into a job."""


def _kubernetes(injected: Injected, inputs: Row, name: str) -> None:
    verified = bool(inputs.get("verify_ssl")) and bool(inputs.get("ssl_ca_cert"))
    injected.environment |= {
        "K8S_AUTH_HOST": inputs.get("host", ""),
        "K8S_AUTH_API_KEY": inputs.get("bearer_token", ""),
        "K8S_AUTH_VERIFY_SSL": str(verified),
    }
    if verified:
        injected.environment["K8S_AUTH_SSL_CA_CERT"] = injected.add_file(name, inputs["ssl_ca_cert"])


def _openstack(injected: Injected, inputs: Row, name: str) -> None:
    login = {
        "auth_url": inputs.get("host"),
        "username": inputs.get("username"),
        "password": inputs.get("password"),
        "project_name": inputs.get("project"),
    }
    login |= {key: inputs[key] for key in ("project_domain_name", "domain") if inputs.get(key)}
    cloud = {
        "auth": login,
        "verify": inputs.get("verify_ssl", True),
        **({"region_name": inputs["region"]} if inputs.get("region") else {}),
    }
    injected.environment["OS_CLIENT_CONFIG_FILE"] = injected.add_file(name, json.dumps({"clouds": {"devstack": cloud}}))


def _vmware(injected: Injected, inputs: Row, name: str) -> None:
    injected.environment |= {
        "VMWARE_HOST": inputs.get("host", ""),
        "VMWARE_USER": inputs.get("username", ""),
        "VMWARE_PASSWORD": inputs.get("password", ""),
        "VMWARE_VALIDATE_CERTS": "False",
    }


_OWN = {"OpenShift or Kubernetes API Bearer Token": _kubernetes, "OpenStack": _openstack, "VMware vCenter": _vmware}
