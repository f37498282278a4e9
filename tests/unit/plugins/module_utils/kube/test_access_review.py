# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The question for a permission, and the message if it is missing."""

from __future__ import annotations

from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.connection import explain
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.objects import MissingPermission, Permission

EVICT = Permission("create", "pods/eviction")


@pytest.mark.parametrize(("status", "granted"), [({"allowed": True}, True), ({"allowed": False}, False), ({}, False)])
def test_the_server_is_asked_for_the_subresource(status: dict[str, bool], granted: bool) -> None:
    client = mock.Mock(create=mock.Mock(return_value={"status": status}))
    assert EVICT.is_granted(client, "team") is granted
    (dummy, body), options = client.create.call_args
    attributes = {"namespace": "team", "verb": "create", "group": "", "resource": "pods", "subresource": "eviction"}
    assert (body["spec"], options) == ({"resourceAttributes": attributes}, {"dry_run": True})


def test_without_an_answer_the_permission_may_exist() -> None:
    denied = 'forbidden: User "u" cannot create resource "selfsubjectaccessreviews"'
    assert EVICT.is_granted(mock.Mock(create=mock.Mock(side_effect=ApiError(denied, status=403))))
    with pytest.raises(ApiError, match="gone"):
        EVICT.is_granted(mock.Mock(create=mock.Mock(side_effect=ApiError("gone", status=503))))


@pytest.mark.parametrize(
    ("namespace", "role"), [("", "a ClusterRole"), ("team", "a Role in namespace team or a ClusterRole")]
)
def test_the_message_has_the_purpose_and_the_missing_rule(namespace: str, role: str) -> None:
    error = MissingPermission(EVICT, namespace, "which the drain of a needs")
    explanation = explain(error, mock.Mock(origin="kubeconfig k"))
    assert explanation.startswith('This user cannot create resource "pods/eviction" in API group "" ')
    assert explanation.endswith(
        f'which the drain of a needs (kubeconfig k). The user needs {role} with the rule apiGroups: [""], resources: ["pods/eviction"], '
        'verbs: ["create"].'
    )
    assert (error.code, error.fails_every_request) == (403, True)
