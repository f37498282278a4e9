# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Composes and parses gridd.conf, the configuration file of the license client in a vGPU guest (pure).

Source: NVIDIA Virtual GPU Client Licensing User Guide, "Configuration Parameters for vGPU Software on Linux"; NVIDIA's cloud-native-docs,
install-gpu-operator-vgpu. An empty file is valid.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ..schema.coercion import is_blank
from ..schema.messages import join_words
from ..schema.types import Integer, integer_between
from .token import HOST, MAX_PORT

# The values of FeatureType, with the products that they request.
FEATURE_TYPES: dict[int, str] = {
    0: "no license",
    1: "NVIDIA vGPU",
    2: "NVIDIA RTX Virtual Workstation",
    4: "NVIDIA Virtual Compute Server",
}
# With this value, the client requests the product that fits its vGPU type, so the same value is suitable for all nodes of the cluster.
AUTOMATIC = 1
# The class of a vGPU type is the letter at the end of its name: virtual workstation (Q), compute (C), virtual PC (B), virtual applications (A).
_FITTING: dict[str, tuple[int, ...]] = {"Q": (2, 1), "C": (1, 4), "B": (1,), "A": (1,)}
# A vGPU type such as A100-10C, A100-1-5CME or T4-1B4, alone or at the end of a GPU's product name.
_PROFILE = re.compile(r"-[0-9]+(?P<kind>[QCBA])(?:ME|4)?(?:-SHARED)?$")
# The parameters that results and diffs show.
SHOWN = ("FeatureType", "ProxyServerAddress", "ProxyServerPort", "ServerAddress", "ServerPort")
_LICENSED = join_words([f"{value} ({product})" for value, product in FEATURE_TYPES.items() if value], "or")


def _unknown_feature_type(value: int) -> str | None:
    if value == 0:
        return f"requests no license, but each vGPU type needs one; use {_LICENSED}"
    return None if value in FEATURE_TYPES else f"is not known; use {_LICENSED}"


_PORTS = f"use a port from 1 to {MAX_PORT}"
_FEATURE_TYPE = Integer((_unknown_feature_type,))
_PORT = integer_between(1, MAX_PORT, _PORTS, _PORTS)
# The content of a new file.
HEADER = "# Managed by accel.gpu\n"


@dataclass(frozen=True)
class GriddOptions:
    """The declared parameters; None means that a parameter is not declared."""

    feature_type: int | None = None
    proxy_address: str | None = None
    proxy_port: int | None = None

    @property
    def parameters(self) -> dict[str, str]:
        """The declared parameters by their names in the file."""
        values = {
            "FeatureType": self.feature_type,
            "ProxyServerAddress": self.proxy_address,
            "ProxyServerPort": self.proxy_port,
        }
        return {name: str(value) for name, value in values.items() if value is not None}

    @classmethod
    def from_params(cls, params: t.Mapping[str, t.Any]) -> GriddOptions:
        """Create the object from the options of a module. An empty string counts as not declared; problems() reports invalid values."""
        given = {name: None if is_blank(params[name]) else params[name] for name in cls.__dataclass_fields__}
        return cls(
            _FEATURE_TYPE.coerce(given["feature_type"]), given["proxy_address"], _PORT.coerce(given["proxy_port"])
        )

    def problems(self) -> list[str]:
        """The problems in the options; each begins with the name of the option."""
        texts: list[str] = []
        for name, field in (("feature_type", _FEATURE_TYPE), ("proxy_port", _PORT)):
            if getattr(self, name) is not None:
                texts += field.problems(getattr(self, name), name)
        if self.proxy_address is not None and not HOST.fullmatch(self.proxy_address):
            texts.append("proxy_address: is not a host; use a name or an address without scheme, user and port")
        if (self.proxy_address is None) != (self.proxy_port is None):
            missing = "proxy_port" if self.proxy_port is None else "proxy_address"
            texts.append(f"{missing}: is missing; proxy_address and proxy_port must be set together")
        return texts


def profile_class(product: str) -> str | None:
    """The class (Q, C, B or A) of a vGPU type, or of a GPU product name that ends with a vGPU type; None for any other string."""
    match = _PROFILE.search(product)
    return match["kind"] if match else None


def mismatch(feature_type: int | None, kind: str) -> str:
    """Why vGPU types of a class get no license with this FeatureType, as a sentence without the period; empty if they get one."""
    if feature_type is None or feature_type in _FITTING[kind]:
        return ""
    needed = " or ".join(f"{value} ({FEATURE_TYPES[value]})" for value in _FITTING[kind])
    requested = FEATURE_TYPES.get(feature_type, "an unknown product")
    return f"FeatureType={feature_type} requests {requested}, but vGPU types of class {kind} require {needed}"


def with_parameters(text: str, parameters: t.Mapping[str, str]) -> str:
    """The content of the file with these parameters; all other lines are kept."""
    present = parse(text)
    pending = {name: value for name, value in parameters.items() if present.get(name) != value}
    if not pending:
        return text
    changed = frozenset(pending)
    lines = []
    for line in text.removesuffix("\n").split("\n") if text else []:
        name = next(iter(parse(line)), "")
        if name not in changed:
            lines.append(line)
        elif name in pending:
            lines.append(f"{name}={pending.pop(name)}")
    lines += [f"{name}={value}" for name, value in pending.items()]
    return "\n".join(lines) + "\n"


def is_managed(text: str) -> bool:
    """Whether the collection has generated the file."""
    return text.startswith(HEADER.rstrip())


def parse(text: str) -> dict[str, str]:
    """The parameters of a file, as strings; lines in any other format are ignored."""
    parameters: dict[str, str] = {}
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if equals and re.fullmatch(r"[A-Za-z]+", name.strip()):
            parameters[name.strip()] = value.strip().strip('"')
    return parameters


def feature_type_of(text: str) -> int | None:
    """The FeatureType of a file; None if it is missing or not valid."""
    value = parse(text).get("FeatureType", "")
    return int(value) if value.isascii() and value.isdecimal() and len(value) <= 4 else None


def shown(text: str) -> dict[str, str]:
    """The parameters that results and diffs may show."""
    return {name: value[:100] for name, value in parse(text).items() if name in SHOWN}


def warnings(text: str) -> list[str]:
    """A sentence for each parameter that has no effect with the NVIDIA License System."""
    parameters = parse(text)
    texts = []
    if parameters.get("ServerAddress"):
        texts.append(
            "gridd.conf has ServerAddress, a parameter of the legacy license server, which current drivers do not support. Remove it."
        )
    path = parameters.get("ClientConfigTokenPath", "")
    if path and path.rstrip("/") != "/etc/nvidia/ClientConfigToken":
        texts.append(
            "gridd.conf has ClientConfigTokenPath, but the driver container has the token in /etc/nvidia/ClientConfigToken. Remove it."
        )
    return texts
