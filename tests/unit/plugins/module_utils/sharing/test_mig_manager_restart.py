# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A MIG manager that does not start again after its restart: the message has the reason."""

from __future__ import annotations

import threading
from typing import Any, cast
from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import WaitTimeout
from ansible_collections.accel.gpu.plugins.module_utils.sharing import verification
from tests.helpers.fleet import node

Object = dict[str, Any]


def manager(uid: str, **status: Any) -> Object:
    return {"metadata": {"name": f"mig-{uid}", "uid": uid}, "spec": {"nodeName": "n1"}, "status": status}


def test_a_mig_manager_that_does_not_start_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    ready = manager("old", conditions=[{"type": "Ready", "status": "True"}])
    failing = manager("new", containerStatuses=[{"name": "nvidia-mig-manager", "state": waiting}])
    client = mock.Mock()
    client.list.side_effect = [[ready], *[[ready, failing]] * 100]
    monkeypatch.setattr(verification, "_TIMEOUT", 0.01)
    monkeypatch.setattr(verification, "_INTERVAL", 0.01)
    lease = mock.Mock(lost=threading.Event())
    with pytest.raises(WaitTimeout) as error:
        verification.restart_mig_manager(cast("Any", client), "gpu-operator", [node()], lease)
    expected = "on n1; pod mig-new container nvidia-mig-manager: ErrImagePull (not found) on node n1: check its pods"
    assert expected in str(error.value)
