# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether this user may evict pods: one question for all namespaces, and further ones only for a user with permissions by namespace."""

from __future__ import annotations

import typing as t
from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.objects import MissingPermission
from ansible_collections.accel.gpu.plugins.module_utils.nodes.drain import require_permission_to_evict
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import PodOnNode

PODS = {"n1": [PodOnNode("b", "x", "1"), PodOnNode("a", "y", "2")], "n2": [PodOnNode("b", "z", "3")]}


def asked(*granted: str) -> tuple[list[str], str]:
    """The namespaces of the questions, and the message, if the user may evict pods in these namespaces."""
    namespaces: list[str] = []

    def create(dummy: str, body: t.Any, **options: t.Any) -> dict[str, t.Any]:
        namespaces.append(body["spec"]["resourceAttributes"]["namespace"])
        return {"status": {"allowed": namespaces[-1] in granted}}

    try:
        require_permission_to_evict(mock.Mock(create=create), PODS)
    except MissingPermission as error:
        return namespaces, error.message
    return namespaces, ""


@pytest.mark.parametrize(
    ("granted", "namespaces"), [(["", "a", "b"], [""]), (["a", "b"], ["", "a", "b"]), (["b"], ["", "a"])]
)
def test_the_namespaces_that_are_asked_for(granted: list[str], namespaces: list[str]) -> None:
    assert asked(*granted)[0] == namespaces


def test_the_message_names_the_namespace_and_the_nodes() -> None:
    assert asked("a")[1].endswith('in the namespace "b", which the drain of n1, n2 needs')
    assert asked("b")[1].endswith('in the namespace "a", which the drain of n1 needs')
    assert asked("a", "b")[1] == ""
