# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The progress of node_metadata if nodes fail."""

from __future__ import annotations

import json
import threading
import typing as t
from pathlib import Path
from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import Progress
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node_metadata import node_sets, reconcile


@pytest.mark.parametrize(("check", "verb"), [(False, "changed"), (True, "checked")])
def test_progress_shows_how_many_nodes_are_done_and_how_many_failed(tmp_path: Path, check: bool, verb: str) -> None:
    rejected = ApiError("no", status=422)
    nodes = [{"metadata": {"name": name}} for name in "abc"]

    def patch(path: str, dummy: t.Any, **options: t.Any) -> None:
        if path.endswith("/b"):
            raise rejected

    lines = tmp_path / "progress"
    lines.touch()
    outcome = reconcile(
        mock.Mock(list=mock.Mock(return_value=nodes), strategic_merge=patch, reverted=[]),
        node_sets([{"names": ["a", "b", "c"], "labels": {"team": "x"}}]),
        check=check,
        lease=mock.MagicMock(lost=threading.Event()),
        progress=Progress(str(lines)),
        parallel=1,
    )
    assert (outcome.changed, [*outcome.failures]) == (["a", "c"], ["b"])
    shown = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [(line["text"], line["done"], line["total"]) for line in shown] == [
        (f"nodes {verb}", 1, 3),
        (f"nodes {verb}, 1 failed", 1, 3),
        (f"nodes {verb}, 1 failed", 2, 3),
    ]


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    ("value", "managers_read"), [(None, False), ("x", False), ("old", True)], ids=["new", "unchanged", "replaced"]
)
def test_field_managers_are_read_only_if_entries_of_nodes_are_replaced(
    value: str | None, managers_read: bool, check: bool
) -> None:
    labels = {} if value is None else {"team": value}
    entry = {"manager": "argocd-controller", "fieldsV1": {"f:metadata": {"f:labels": {"f:team": {}}}}}
    client = mock.Mock(reverted=[])
    client.list = mock.Mock(return_value=[{"metadata": {"name": "a", "labels": labels, "managedFields": [entry]}}])
    lease, sets = mock.MagicMock(lost=threading.Event()), node_sets([{"names": ["a"], "labels": {"team": "x"}}])
    reconcile(client, sets, check=check, lease=lease, progress=mock.Mock(), parallel=1)
    with_managers = [call for call in client.list.call_args_list if call.kwargs.get("managed_fields")]
    assert len(with_managers) == len(client.reverted) == int(managers_read)
