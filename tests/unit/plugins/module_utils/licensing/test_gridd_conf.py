# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gridd.conf: the FeatureType for a vGPU type, the parameters of a proxy, and files that others have written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.licensing import token
from ansible_collections.accel.gpu.plugins.module_utils.licensing.token import GriddOptions


def test_a_new_file() -> None:
    options = GriddOptions(1, "proxy.example.com", 3128)
    text = token.with_parameters(token.GRIDD_CONF_HEADER, options.parameters)
    assert text == "# Managed by accel.gpu\nFeatureType=1\nProxyServerAddress=proxy.example.com\nProxyServerPort=3128\n"
    assert token.is_managed_gridd_conf(text)
    assert token.shown_gridd_conf(text) == {
        "FeatureType": "1",
        "ProxyServerAddress": "proxy.example.com",
        "ProxyServerPort": "3128",
    }
    assert token.feature_type_of(text) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "FeatureType=1\n"),
        ("a", "a\nFeatureType=1\n"),
        ("FeatureType=4", "FeatureType=1\n"),
        ("\n\n FeatureType = 4 \r\nb\n\n", "\n\nFeatureType=1\nb\n\n"),
        ("FeatureType=1\nEnableUI=TRUE\nFeatureType=4\n", "FeatureType=1\nEnableUI=TRUE\n"),
        ('FeatureType="1"', 'FeatureType="1"'),
        ("# FeatureType=4\n", "# FeatureType=4\nFeatureType=1\n"),
    ],
)
def test_a_parameter_is_set_in_a_file(text: str, expected: str) -> None:
    assert token.with_parameters(text, {"FeatureType": "1"}) == expected


@given(
    st.lists(st.one_of(st.sampled_from(["FeatureType=4", "EnableUI=TRUE", "#", ""]), st.text(max_size=8))).map(
        "\n".join
    ),
    st.dictionaries(st.sampled_from(["FeatureType", "ProxyServerPort"]), st.sampled_from("124")),
)
def test_any_file_keeps_its_other_lines(text: str, parameters: dict[str, str]) -> None:
    actual = token.with_parameters(text, parameters)
    assert token.parse_gridd_conf(actual) == {**token.parse_gridd_conf(text), **parameters}
    assert token.with_parameters(actual, parameters) == actual

    def others(content: str) -> list[str]:
        return [
            line
            for line in content.rstrip("\n").split("\n")
            if not token.parse_gridd_conf(line).keys() & parameters.keys()
        ]

    if parameters:
        assert [line for line in others(actual) if line] == [line for line in others(text) if line]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (GriddOptions(), None),
        (GriddOptions(4, "10.0.0.1", 3128), None),
        (GriddOptions(feature_type=3), "feature_type: 3 is not known"),
        (GriddOptions(None, "a\nFeatureType=0", 1), "proxy_address: is not a host"),
        (GriddOptions(None, "http://user:word@proxy", 1), "proxy_address: is not a host"),
        (GriddOptions(None, "proxy", 70000), "proxy_port: 70000 is not allowed: use a port from 1 to 65535"),
        (GriddOptions(None, "proxy", None), "proxy_port: is missing"),
        (GriddOptions(None, None, 1), "proxy_address: is missing"),
    ],
)
def test_problems(options: GriddOptions, problem: str | None) -> None:
    problems = options.problems()
    assert (problems == []) if problem is None else problems[0].startswith(problem)
    assert not any("word" in text for text in problems)


def test_a_foreign_file() -> None:
    text = "# manual\n FeatureType = 4 \nServerAddress=old.example.com\nnonsense\nClientConfigTokenPath=/tmp/x\n"
    assert token.feature_type_of(text) == 4
    assert not token.is_managed_gridd_conf(text)
    assert len(token.gridd_conf_warnings(text)) == 2
    assert token.shown_gridd_conf(text) == {"FeatureType": "4", "ServerAddress": "old.example.com"}
    assert token.gridd_conf_warnings("ClientConfigTokenPath=/etc/nvidia/ClientConfigToken/\n") == []


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    token.feature_type_of(text)
    token.gridd_conf_warnings(text)
    token.shown_gridd_conf(text)
