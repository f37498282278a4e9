# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loads the contract from the files in lab/vks/contract: schemas, operations, behaviors, guesses, and their sources."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ..cloud_settings import Setting
from .schema import SchemaField, Schemas

FOLDER = Path(__file__).resolve().parent / "contract"
_PAGE = {
    "items": "[{row}]",
    "total": "integer",
    "page": "integer",
    "pageSize": "integer",
}


@dataclass(frozen=True)
class Operation:
    """One operation: its request and its successful response."""

    name: str
    service: str
    method: str
    path: tuple[str, ...]
    status: int
    sources: tuple[str, ...]
    answer: str | None = None
    rows: str | None = None
    body: str | None = None
    right: str = ""
    text: str = ""
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def writing(self) -> bool:
        """Return whether it changes something."""
        return self.method != "GET" and self.service != "iam"

    def match(self, parts: tuple[str, ...]) -> dict[str, str] | None:
        """Return the values of the path's variables (CLUSTER, GROUP ...), or None for the path of another operation."""
        if len(parts) != len(self.path):
            return None
        arguments = {}
        for expected, given in zip(self.path, parts, strict=True):
            if expected.isupper():
                arguments[expected] = given
            elif expected != given:
                return None
        return arguments


@dataclass(frozen=True)
class Guess:
    """A question that public sources leave open: the alternatives, each with its sources; the first one is the default."""

    text: str
    alternatives: Mapping[str, tuple[str, ...]]

    @property
    def default(self) -> str:
        """The alternative that the fake uses by default."""
        return next(iter(self.alternatives))


@dataclass(frozen=True)
class Behavior:
    """A statement about the behavior of the services, with its sources."""

    text: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class FaultSpec:
    """A fault: its effect, the meaning of its value (empty: it takes none), and whether it can apply to one group."""

    text: str
    value: str = ""
    groups: bool = False
    times: bool = False


@dataclass(frozen=True)
class Contract:
    """The complete contract."""

    sources: Mapping[str, str]
    schemas: Schemas
    operations: Mapping[str, Operation]
    behaviors: Mapping[str, Behavior]
    guesses: Mapping[str, Guess]
    faults: Mapping[str, FaultSpec]

    def route(self, service: str, method: str, path: str) -> tuple[Operation, dict[str, str]] | None:
        """Return the operation of a request and the values of its path's variables, or None if there is none."""
        parts = tuple(path.strip("/").split("/"))
        for operation in self.operations.values():
            if operation.service == service and operation.method == method:
                arguments = operation.match(parts)
                if arguments is not None:
                    return operation, arguments
        return None


# Settings of the fake itself, which are not guesses of the contract.
TUNING = {
    "delay": Setting(
        "0.05..0.15", "duration of an operation in seconds: a number, or LOW..HIGH for a random value per operation"
    ),
    "node-delay": Setting("0.05", "seconds until a new node is ready, in VKS clusters without a Kubernetes API server"),
    "lag": Setting("0.2", "delay of the 'late' alternatives in seconds"),
    "seed": Setting("0", "seed for ids, delays and random choices"),
    "lock-out-after": Setting("5", "number of failed logins after which IAM locks a client out; 0: never"),
    "max-clusters": Setting("20", "quota for clusters in the account"),
    "max-groups": Setting("20", "quota for node groups in a cluster"),
    "max-nodes": Setting("10", "quota for nodes in a node group"),
}


@functools.cache
def load() -> Contract:
    """Return the contract; the files are read once."""
    schemas = {name: _schema(entry) for file in ("schemas", "vserver") for name, entry in _read(file).items()}
    for name, entry in _read("schemas").items():
        if "extends" in entry:
            schemas[name] = {**schemas[entry["extends"]], **schemas[name]}
    operations = {
        name: _operation(name, service, entry)
        for service, named in _read("operations").items()
        for name, entry in named.items()
    }
    guesses = {
        name: Guess(entry["text"], {one: tuple(sources) for one, sources in entry["is"].items()})
        for name, entry in _read("guesses").items()
    }
    behaviors = {name: Behavior(one["text"], tuple(one["from"])) for name, one in _read("behaviors").items()}
    faults = {name: FaultSpec(**entry) for name, entry in _read("faults").items()}
    return Contract(_read("sources"), Schemas(schemas), operations, behaviors, guesses, faults)


def settings() -> dict[str, Setting]:
    """Return the settings of the fake: every guess, and the tuning."""
    guessed = {name: Setting(one.default, one.text, tuple(one.alternatives)) for name, one in load().guesses.items()}
    return {**guessed, **TUNING}


def _read(name: str) -> dict[str, Any]:
    text = (FOLDER / f"{name}.yaml").read_text()
    document: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return document


def _schema(entry: Mapping[str, Any]) -> dict[str, SchemaField]:
    if "page" in entry:
        sources = tuple(entry["from"])
        return {
            name: SchemaField(kind.format(row=entry["page"]), sources, required=True) for name, kind in _PAGE.items()
        }
    return {name: SchemaField.read(one) for name, one in entry.items() if name != "extends"}


def _operation(name: str, service: str, entry: Mapping[str, Any]) -> Operation:
    rest = dict(entry)
    method, dummy, path = rest.pop("ask").partition(" ")
    return Operation(name, service, method, tuple(path.strip("/").split("/")), sources=tuple(rest.pop("from")), **rest)


def as_data() -> dict[str, Any]:
    """Return the contract as JSON-serializable data."""
    contract = load()
    return {
        "sources": dict(contract.sources),
        "schemas": {
            name: {key: vars(one) for key, one in fields.items()} for name, fields in contract.schemas.named.items()
        },
        "operations": {name: vars(one) for name, one in contract.operations.items()},
        "behaviors": {name: vars(one) for name, one in contract.behaviors.items()},
        "guesses": {name: vars(one) for name, one in contract.guesses.items()},
        "faults": {name: vars(one) for name, one in contract.faults.items()},
    }
