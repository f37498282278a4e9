# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks whether the license client in a driver pod can reach a license server: name resolution, port and TLS (pure).

NVIDIA's driver images contain curl (gpu-driver-container rhel9/Dockerfile and ubuntu24.04/install.sh). The manual page of curl documents the exit codes.
The certificate is not checked, because the license client uses the key in the token, not the certificate, to decide whether it trusts the server.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from . import gridd_conf

if t.TYPE_CHECKING:
    from .token import LicenseService

DNS, TCP, TLS, PROXY, UNKNOWN = "dns", "tcp", "tls", "proxy", "unknown"
_MAX_SECONDS = 10
_DEFAULT_PORT = 443
# The maximum number of servers to check. A highly available license server has fewer addresses.
_MAX_SERVERS = 8
_TIMES = "%{time_namelookup} %{time_connect} %{time_appconnect}"
_RESOLVE_PROXY, _RESOLVE, _CONNECT, _TIMEOUT, _RECEIVE, _PROXY_HANDSHAKE = 5, 6, 7, 28, 56, 97
_NOT_FOUND = (126, 127)
_MAX_TEXT = 200


@dataclass(frozen=True)
class Server:
    """A host and a port from the token."""

    host: str
    port: int

    @property
    def address(self) -> str:
        """Host and port as one string."""
        return _address(self.host, str(self.port))


@dataclass(frozen=True)
class ServiceCheck:
    """The result of checking one license server from one node. `layer` is the layer that failed; empty if none failed. `message` describes the failure."""

    address: str
    layer: str = ""
    message: str = ""

    @property
    def failed(self) -> bool:
        """Whether it is certain that the server cannot be reached."""
        return self.layer not in ("", UNKNOWN)

    def as_dict(self) -> dict[str, t.Any]:
        """The result in the format that modules return; `reachable` is null if the check could not determine it."""
        reachable = None if self.layer == UNKNOWN else not self.layer
        return {"address": self.address, "reachable": reachable, "layer": self.layer or None, "message": self.message}


def servers_of(services: t.Iterable[LicenseService]) -> list[Server]:
    """The license servers that provide the services of a token, without duplicates."""
    named = dict.fromkeys(Server(service.host, service.port or _DEFAULT_PORT) for service in services)
    return list(named)[:_MAX_SERVERS]


def proxy_of(config: str) -> str:
    """The proxy from gridd.conf that the license client uses; empty if gridd.conf contains none."""
    parameters = gridd_conf.parse(config)
    host, port = parameters.get("ProxyServerAddress", "").strip("[]"), parameters.get("ProxyServerPort", "")
    return _address(host, port) if host and port.isdecimal() else ""


def _address(host: str, port: str) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_command(server: Server, proxy: str) -> list[str]:
    """The command that checks a server. Like the license client, the command ignores the proxy in the environment."""
    way = ["--proxy", f"http://{proxy}"] if proxy else ["--noproxy", "*"]
    options = ["-sSkg", "-o", "/dev/null", "-m", str(_MAX_SECONDS), "-w", _TIMES]
    return ["curl", *options, *way, f"https://{server.address}/"]


def evaluate_check(server: Server, proxy: str, exit_code: int | None, output: str, error: str) -> ServiceCheck:
    """Evaluate the command's output. A server that has completed the TLS handshake counts as reachable, regardless of its response."""
    resolved, connected, encrypted = _times(output)
    text = _text(error) or f"exit code {exit_code}"
    if exit_code == 0 or encrypted:
        return ServiceCheck(server.address)
    if exit_code is None or exit_code in _NOT_FOUND:
        return unknown_check(server, text)
    if proxy and (exit_code in (_RESOLVE_PROXY, _CONNECT, _RECEIVE, _PROXY_HANDSHAKE) or not connected):
        remedy = "Check gpu_licensing_proxy_address and gpu_licensing_proxy_port, and verify that the proxy allows connections to this server"
        return ServiceCheck(
            server.address, PROXY, f"{server.address} cannot be reached through the proxy {proxy} ({text}). {remedy}."
        )
    if exit_code == _RESOLVE or (exit_code == _TIMEOUT and not resolved and ":" not in server.host):
        remedy = "Check the DNS servers of the node and of the cluster, and the name of the license server in the token"
        return ServiceCheck(server.address, DNS, f"The name {server.host} cannot be resolved ({text}). {remedy}.")
    if exit_code == _CONNECT or not connected:
        remedy = (
            "Allow the connection in firewalls and network policies, and check the route and whether nodes need a proxy (gpu_licensing_proxy_address). The "
            "port is 443 in CLS, and 443 or 8082 in DLS"
        )
        return ServiceCheck(server.address, TCP, f"Cannot connect to {server.address} ({text}). {remedy}.")
    remedy = "Check that this is the port of the license server, and that no firewall intercepts TLS"
    return ServiceCheck(
        server.address, TLS, f"{server.address} accepts connections, but the TLS handshake fails ({text}). {remedy}."
    )


def unknown_check(server: Server, text: str) -> ServiceCheck:
    """The result for a server that could not be checked, for example because the image has no curl."""
    return ServiceCheck(server.address, UNKNOWN, f"{server.address} could not be checked from the node: {text}.")


def are_unreachable(checks: t.Collection[ServiceCheck]) -> bool:
    """Whether no license server can be reached; one reachable server is sufficient for a license."""
    return bool(checks) and all(check.failed for check in checks)


def _times(output: str) -> tuple[bool, bool, bool]:
    """Whether the name was resolved, the connection was established, and the TLS handshake was completed."""
    try:
        resolved, connected, encrypted = (float(word.replace(",", ".")) > 0 for word in output.split())
    except ValueError:
        return False, False, False
    return resolved, connected, encrypted


def _text(error: str) -> str:
    """The last line of an error, without its prefix and the period at its end."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    text = lines[-1] if lines else ""
    dummy, separator, rest = text.partition(") ")
    return (rest if text.startswith("curl: (") and separator else text)[:_MAX_TEXT].rstrip(".")
