# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the credentials of a job become files, environment variables and extra variables.

AWX's own types are those of the package awx-plugins-core, which newer releases of AWX use; for the types here, it does the same as AWX 24.6.1. Custom types:
awx/main/models/credential/__init__.py (inject_credential) at tag 24.6.1.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import awx_plugins.credentials.plugins as plugins
from awx_plugins.interfaces._temporary_private_credential_api import Credential

from .rules import render
from .store import Row, Store

# AWX's own types that the operations, projects and execution environments use, by name.
MANAGED: dict[str, Any] = {
    kind.name: kind
    for kind in (
        plugins.kubernetes_bearer_token,
        plugins.openstack,
        plugins.vmware,
        plugins.scm,
        plugins.registry,
        plugins.galaxy_api_token,
    )
}
# The plugins read this setting from AWX, whose default it is (awx/settings/defaults.py).
_SETTINGS = {"VMWARE_VALIDATE_CERTS": "False"}


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


class _Credential(Credential):
    """A credential whose unset inputs have the defaults of its type, as in AWX (Credential.get_input)."""

    def __init__(self, kind: Any, inputs: Row) -> None:
        super().__init__(inputs)
        self._defaults = {each["id"]: each["default"] for each in kind.inputs["fields"] if "default" in each}

    def get_input(self, field_name: str, default: Any = None) -> Any:
        """Return an input, the caller's default, or that of the type."""
        return super().get_input(field_name, self._defaults.get(field_name) if default is None else default)


def inject(store: Store, credentials: Iterable[int]) -> Injected:
    """Return what a job gets from its credentials."""
    injected = Injected()
    for number in credentials:
        credential = store.row("credentials", number)
        kind = store.row("credential_types", credential["credential_type"])
        if kind["managed"]:
            _managed(injected, MANAGED[kind["name"]], credential["inputs"])
        else:
            _custom(injected, kind, credential["inputs"], f"tmp{number}")
    return injected


def _managed(injected: Injected, kind: Any, inputs: Row) -> None:
    """Types for other purposes than jobs inject nothing."""
    if kind.custom_injectors is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "env")
        written.mkdir()
        environment: dict[str, str] = {}
        kind.custom_injectors(_Credential(kind, inputs), environment, folder)
        injected.files |= {path.name: path.read_text() for path in written.iterdir()}
    injected.environment |= {name: _SETTINGS.get(name, value) for name, value in environment.items()}


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
