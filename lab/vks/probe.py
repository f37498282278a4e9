# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares the contract with the live service, for users with an account: `python -m lab.vks.probe`.

It only sends read requests, never requests a kubeconfig, and prints no values: only the response status of each operation,
differences from the contract, and the alternatives of the guesses that the responses show. Environment variables:
GRN_CLIENT_ID, GRN_CLIENT_SECRET, and VKS_URL, VKS_VSERVER_URL, VKS_IAM_URL for regions other than HCM-3.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from . import contract
from .contract import Operation

# GreenNodeHub/greennode-cli 1.12.0, internal/config and internal/login.
_ADDRESSES = {
    "VKS_URL": "https://vks.api.vngcloud.vn",
    "VKS_VSERVER_URL": "https://hcm-3.api.vngcloud.vn/vserver/vserver-gateway",
    "VKS_IAM_URL": "https://iam.api.vngcloud.vn/accounts-api/v2/auth/token",
}
_SKIPPED = ("get-kubeconfig",)
_RULE = re.compile(
    r"unknown field|is required|must not be null|is not an? \w+|is not one of|does not match|is less than|is more than"
)
_ENVELOPES = ("projects", "flavors", "listData", "data", "volumeTypeZones", "volumeTypes")


@dataclass
class Probe:
    """The results: a line for each operation, and the observed alternatives of guesses by name."""

    environment: Mapping[str, str]
    lines: list[str] = field(default_factory=list)
    guesses: dict[str, str] = field(default_factory=dict)
    statuses: set[str] = field(default_factory=set)
    _token: str = ""

    def run(self) -> None:
        """Log in, and send every read request."""
        self._login()
        known: dict[str, str] = {}
        for operation in _in_order(contract.load().operations.values()):
            if not set(operation.path) & {name for name in _VARIABLES if name not in known}:
                self._ask(operation, known)
        status, body = self._get("VKS_URL", "/v1/clusters/k8s-00000000-0000-0000-0000-000000000000")
        if status >= 400 and isinstance(body, dict) and body:
            key, value = next(iter(body.items()))
            self.guesses["error-envelope"] = str(key)
            if key == "error":
                self.guesses["error-envelope"] = "nested" if isinstance(value, dict) else "text"

    def report(self) -> str:
        """Return the results as text, without values."""
        observed = [f"guess {name}: {value}" for name, value in sorted(self.guesses.items())]
        return "\n".join([*self.lines, *observed, f"statuses: {', '.join(sorted(self.statuses)) or 'none'}"])

    def _ask(self, operation: Operation, known: dict[str, str]) -> None:
        path = "/" + "/".join(known.get(part, part) for part in operation.path)
        status, body = self._get("VKS_URL" if operation.service == "vks" else "VKS_VSERVER_URL", path)
        kind = f"[{operation.rows}]" if operation.rows else operation.answer or "any"
        rows = _rows(body) if operation.rows else body
        problems = contract.load().schemas.problems(kind, rows) if status < 300 else []
        differences = sorted({re.sub(r"\[\d+\]", "[]", redact(problem)) for problem in problems})
        self.lines.append(f"{operation.name}: {status}{''.join(f'{chr(10)}  {one}' for one in differences)}")
        if operation.name == "group-events":
            self.guesses["group-events"] = "found" if status < 300 else "not-found"
        if status < 300:
            self._learn(operation.name, status, body, known)

    def _learn(self, name: str, status: int, body: Any, known: dict[str, str]) -> None:
        envelope = f"{name.removeprefix('list-')}-response"
        if envelope in contract.load().guesses:
            self.guesses[envelope] = "bare" if isinstance(body, list) else next(k for k in _ENVELOPES if k in body)
        if name == "list-clusters":
            self.guesses["read-status"] = str(status)
        if name == "get-group":
            self.statuses.add(f"node group {body.get('status')}")
        if name == "list-nodes":
            self.statuses |= {f"node {node.get('status')}" for node in body.get("items", ())}
        for variable, (operation, row_key) in _FOUND.items():
            rows = _rows(body)
            if operation == name and rows:
                known.setdefault(variable, row_key(rows[0]))

    def _login(self) -> None:
        basic = f"{self.environment['GRN_CLIENT_ID']}:{self.environment['GRN_CLIENT_SECRET']}".encode()
        headers = {"Authorization": f"Basic {base64.b64encode(basic).decode()}"}
        form = urlencode({"grant_type": "client_credentials"}).encode()
        status, body = _send(urllib.request.Request(self._address("VKS_IAM_URL"), form, headers))
        self.lines.append(f"token-v2: {status}")
        if status >= 300:
            raise SystemExit("\n".join([*self.lines, "IAM rejected the login; it is not retried"]))
        self._token = body["access_token"]

    def _get(self, base: str, path: str) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self._token}", "User-Agent": "accel-gpu-probe"}
        return _send(urllib.request.Request(f"{self._address(base)}{path}", headers=headers))

    def _address(self, name: str) -> str:
        """Return an address to which secrets can be sent safely."""
        address = self.environment.get(name) or _ADDRESSES[name]
        if not address.startswith(("https://", "http://127.0.0.1:")):
            raise SystemExit(f"{name}: {address} would send secrets unencrypted: use https")
        return address.rstrip("/")


# Path variables: the list operation whose first row provides the value, and how to extract it.
_FOUND: dict[str, tuple[str, Callable[[Any], str]]] = {
    "PROJECT": ("list-projects", lambda row: str(row["projectId"])),
    "CLUSTER": ("list-clusters", lambda row: str(row["id"])),
    "GROUP": ("list-groups", lambda row: str(row["id"])),
    "NETWORK": ("list-networks", lambda row: str(row["id"])),
    "FAMILY": ("list-families", lambda row: str(row["key"])),
    "CODE": ("list-families", lambda row: str(row["condition"]["codes"][0])),
    "VOLUMEZONE": ("list-volume-type-zones", lambda row: str(row["id"])),
}
_VARIABLES = tuple(_FOUND)


def redact(problem: str) -> str:
    """Return a problem without the value: only its position and the violated rule."""
    place, dummy, rest = problem.partition(": ")
    match = _RULE.search(rest)
    return f"{place}: {match[0] if match else 'differs'}"


def _in_order(operations: Any) -> Iterator[Operation]:
    """Return the read operations, with lists before the operations that depend on them."""
    read_operations = [one for one in operations if one.method == "GET" and one.name not in _SKIPPED]
    return iter(sorted(read_operations, key=lambda one: sum(part in _VARIABLES for part in one.path)))


def _rows(body: Any) -> list[Any]:
    if isinstance(body, list):
        return body
    return next((body[key] for key in ("items", *_ENVELOPES) if isinstance(body.get(key), list)), [])


def _send(request: urllib.request.Request) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, content = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, content = error.code, error.read()
    try:
        return status, json.loads(content or b"null")
    except ValueError:
        return status, None


if __name__ == "__main__":
    if not {"GRN_CLIENT_ID", "GRN_CLIENT_SECRET"} <= os.environ.keys():
        sys.exit("GRN_CLIENT_ID or GRN_CLIENT_SECRET is missing: set both environment variables")
    probe = Probe(os.environ)
    probe.run()
    print(probe.report())
