# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which layer fails between a node and a license server, from the output of curl."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.licensing.token import (
    DNS,
    PROXY,
    TCP,
    TLS,
    UNKNOWN_LAYER,
    Server,
    ServiceCheck,
    are_unreachable,
    check_command,
    evaluate_check,
    parse_token,
    proxy_of,
    servers_of,
)
from tests.helpers.license_tokens import make_token

HOST = Server("dls.example.com", 443)
NONE, NAME, CONNECTED, ALL = "0.0 0.0 0.0", "0.1 0.0 0.0", "0.1 0.2 0.0", "0,1 0,2 0,3"


def test_the_servers_of_a_token_and_the_commands() -> None:
    token = parse_token(make_token(hosts=["a.example.com", "fd00::1"]))
    assert {server.host for server in servers_of(token.services)} == {"a.example.com", "fd00::1"}
    assert Server("fd00::1", 443).address == "[fd00::1]:443"
    assert check_command(HOST, "")[-3:] == ["--noproxy", "*", "https://dls.example.com:443/"]
    assert check_command(HOST, "proxy:3128")[-3:-1] == ["--proxy", "http://proxy:3128"]
    assert proxy_of("FeatureType=1\nProxyServerAddress=proxy\nProxyServerPort=3128\n") == "proxy:3128"
    for address in ("fd00::1", "[fd00::1]"):
        assert proxy_of(f"ProxyServerAddress={address}\nProxyServerPort=3128\n") == "[fd00::1]:3128"
    assert proxy_of("FeatureType=1\n") == ""


@pytest.mark.parametrize(
    ("code", "output", "error", "layer", "text"),
    [
        (0, ALL, "", "", ""),
        (52, ALL, "curl: (52) Empty reply from server", "", ""),
        (28, ALL, "curl: (28) Operation timed out", "", ""),
        (6, NONE, "curl: (6) Could not resolve host: dls.example.com", DNS, "The name dls.example.com cannot be resolved (Could not resolve host: dls.example.com). Check the DNS"),
        (28, NONE, "curl: (28) Resolving timed out after 10000 milliseconds", DNS, "cannot be resolved"),
        (7, NAME, "curl: (7) Failed to connect: Connection refused", TCP, "Cannot connect to dls.example.com:443 (Failed to connect: Connection refused). Allow the connection"),
        (28, NAME, "curl: (28) Connection timed out", TCP, "Cannot connect to"),
        (35, CONNECTED, "curl: (35) wrong version number", TLS, "accepts connections, but the TLS handshake fails (wrong version number)"),
        (28, CONNECTED, "", TLS, "the TLS handshake fails (exit code 28)"),
        (127, "", "curl: command not found", UNKNOWN_LAYER, "could not be checked from the node: curl: command not found."),
        (None, "", "", UNKNOWN_LAYER, "could not be checked"),
    ],
)  # fmt: skip
def test_layers(code: int | None, output: str, error: str, layer: str, text: str) -> None:
    actual = evaluate_check(HOST, "", code, output, error)
    assert (actual.layer, actual.address) == (layer, "dls.example.com:443")
    assert text in actual.message
    assert actual.as_dict()["reachable"] == {"": True, UNKNOWN_LAYER: None}.get(layer, False)


@pytest.mark.parametrize(
    ("code", "output", "layer"),
    [(5, NONE, PROXY), (7, NAME, PROXY), (28, NAME, PROXY), (56, CONNECTED, PROXY), (35, CONNECTED, TLS), (0, ALL, "")],
)
def test_layers_with_a_proxy(code: int, output: str, layer: str) -> None:
    actual = evaluate_check(HOST, "proxy:3128", code, output, "curl: (56) CONNECT tunnel failed, response 403")
    assert actual.layer == layer
    assert ("the proxy proxy:3128 (CONNECT tunnel failed, response 403)" in actual.message) == (layer == PROXY)


def test_one_of_several_servers_is_enough() -> None:
    failed, unknown = ServiceCheck("a:1", TCP, "no"), ServiceCheck("b:1", UNKNOWN_LAYER, "no")
    assert are_unreachable([failed, failed])
    assert not are_unreachable([failed, ServiceCheck("b:1")])
    assert not are_unreachable([failed, unknown])
    assert not are_unreachable([])
