# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Behavior of VKS that public sources do not document: the modules succeed with every alternative, or fail with a clear message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.modules import (
    vks_catalog_info,
    vks_cluster_info,
    vks_kubeconfig,
    vks_nodegroup,
)
from lab.vks import contract
from tests.helpers.vks_modules import CLUSTER, Account, Object

ALTERNATIVES = [(name, other) for name, guess in contract.load().guesses.items() for other in guess.alternatives]
GROUP = {
    "flavor": "g3-standard-16x128-1A40",
    "disk_type": "SSD",
    "ssh_key": "lab",
    "security_groups": ["gpu-nodes"],
}
TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
# Each change, and the resulting settings in the service.
CHANGES: dict[str, tuple[Object, Object]] = {
    "create": (
        {**GROUP, "node_count": 2, "node_labels": {"a": "1", "b": "1"}, "node_taints": [TAINT], "tags": {"t": "1"}},
        {"numNodes": 2, "labels": {"a": "1", "b": "1"}, "taints": {"nvidia.com/gpu": ""}, "tags": {"t": "1"}},
    ),
    "relabel": (
        {"node_labels": {"a": "2", "b": None}, "node_taints": [{**TAINT, "value": "x"}], "tags": {"t": "2"}},
        {"labels": {"a": "2"}, "taints": {"nvidia.com/gpu": "x"}, "tags": {"t": "2"}},
    ),
    "bare": ({"node_labels": {"a": None}, "node_taints": [{**TAINT, "state": "absent"}]}, {"labels": {}, "taints": {}}),
    "grow": ({"node_count": 3}, {"numNodes": 3}),
    "autoscale": (
        {"min_node_count": 1, "max_node_count": 4},
        {"numNodes": 3, "autoScaleConfig": {"minSize": 1, "maxSize": 4}},
    ),
    "narrow": (
        {"min_node_count": 0, "max_node_count": 2},
        {"numNodes": 2, "autoScaleConfig": {"minSize": 0, "maxSize": 2}},
    ),
    "fix": ({"node_count": 1}, {"numNodes": 1, "autoScaleConfig": None}),
    "zero": ({"node_count": 0}, {"numNodes": 0}),
    "delete": ({"state": "absent"}, {}),
}
# What is impossible with this behavior of the service, and the resulting message.
REFUSED = {
    ("zero-nodes", "refused"): {"zero": "numNodes must be greater than or equal to 1"},
    ("zero-min", "refused"): {"narrow": "minSize must be greater than or equal to 1"},
}


@pytest.fixture
def quick(account: Account) -> Account:
    """An account whose operations take no time, with the maximum delays of those guesses that are about delays."""
    account.set("delay", "0.05")
    return account


def test_the_table_of_guesses_is_complete() -> None:
    guesses = contract.load().guesses
    assert len(ALTERNATIVES) == sum(len(guess.alternatives) for guess in guesses.values()) > len(guesses)
    assert set(REFUSED) <= set(ALTERNATIVES)


@pytest.mark.sampled(6)
@pytest.mark.usual(10)
@pytest.mark.parametrize(
    ("guess", "alternative"), ALTERNATIVES, ids=[f"{guess}={other}" for guess, other in ALTERNATIVES]
)
def test_the_lifecycle_of_a_group_with_every_guess(quick: Account, guess: str, alternative: str) -> None:
    quick.set(guess, alternative)
    refusals = REFUSED.get((guess, alternative), {})
    for change, (options, after) in CHANGES.items():
        args: dict[str, Any] = {
            "cluster": CLUSTER,
            "name": "train",
            "confirm": [CLUSTER],
            "wait_sleep": 1,
            "wait_timeout": 90,
            **options,
        }
        done = quick.run(vks_nodegroup.main, **args)
        if change in refusals:
            assert refusals[change] in done["msg"], change
            continue
        assert not done.get("failed"), (change, done["msg"])
        assert done["changed"] is (change != "narrow" or "narrow" not in refusals)
        start = quick.mark()
        again = quick.run(vks_nodegroup.main, **args)
        assert (again["changed"], quick.writes(start)) == (False, []), (change, again["diff"])
        live = quick.groups().get("train")
        if live is None:
            assert change == "delete"
            continue
        assert {field: _plain(field, live.get(field)) for field in after} == after, change


@pytest.mark.sampled(4, group="lookups")
@pytest.mark.parametrize(
    ("guess", "alternative"), ALTERNATIVES, ids=[f"{guess}={other}" for guess, other in ALTERNATIVES]
)
def test_infos_with_every_guess(quick: Account, guess: str, alternative: str, tmp_path: Path) -> None:
    quick.set(guess, alternative)
    (cluster,) = quick.run(vks_cluster_info.main)["clusters"]
    assert (cluster["name"], cluster["node_count"]) == (CLUSTER, 2)
    offer = quick.run(vks_catalog_info.main, cluster=CLUSTER)["catalog"]
    assert {flavor["model"] for flavor in offer["flavors"]} >= {"RTX-2080-Ti", "RTX-4090", "A40", "L40S"}
    assert {flavor["gpus"] for flavor in offer["flavors"]} == {1, 2, 4, 8}
    assert [zone["name"] for zone in offer["zones"]][:3] == ["HCM03-1A", "HCM03-1B", "HCM03-1C"]
    assert {subnet["name"] for subnet in offer["subnets"]} >= {"a", "b", "c"}
    dest = tmp_path / "kubeconfig"
    args: Object = {"cluster": CLUSTER, "dest": str(dest), "wait_sleep": 1, "wait_timeout": 20}
    assert quick.run(vks_kubeconfig.main, **args)["changed"] is True
    assert dest.stat().st_mode & 0o777 == 0o600
    assert "current-context" in dest.read_text()
    assert quick.run(vks_kubeconfig.main, **args)["changed"] is False


def _plain(field: str, value: Any) -> Any:
    """Without the service's own labels and taints and the mark of the group, and with taints by their keys."""
    if field == "taints":
        return {taint["key"]: taint.get("value") or "" for taint in value or []}
    if field in ("labels", "tags"):
        return {
            key: reported
            for key, reported in (value or {}).items()
            if not key.startswith(("vks.vngcloud.vn/", "vng.", "accel.gpu/nodegroup-mark"))
        }
    return value
