# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RuntimeClasses by their handler, and privileged pods of the cluster itself, which may hold a GPU and are left alone."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import (
    classify_pods,
    nvidia_runtime_classes,
    parse_pods,
)
from tests.helpers.fleet import pod

OPERATOR = "gpu-operator"
Object = dict[str, t.Any]
PRIVILEGED: Object = {"securityContext": {"privileged": True}}


def made(spec: Object, metadata: Object | None = None) -> Object:
    """A pod on node n1, with more in its spec and metadata."""
    actual = pod("p", on="n1")
    actual["spec"].update(spec)
    actual["metadata"].update(metadata or {})
    return actual


def test_runtime_classes_are_known_by_their_handler() -> None:
    classes = nvidia_runtime_classes(
        [
            {"metadata": {"name": "gold"}, "handler": "nvidia-cdi"},
            {"metadata": {"name": "sandboxed"}, "handler": "runsc"},
            {"metadata": {"name": "none"}},
        ]
    )
    assert classes == {"gold", "nvidia", "nvidia-cdi", "nvidia-legacy"}
    pods = [made({"runtimeClassName": name}) for name in ("gold", "sandboxed")]
    actual = classify_pods(parse_pods(pods, operator_namespace=OPERATOR, runtime_classes=classes)).gpu_pods
    assert [user.access for user in actual["n1"]] == [("runtimeClassName gold",)]
    assert classify_pods(parse_pods(pods, operator_namespace=OPERATOR)).gpu_pods == {}


DAEMON = {"ownerReferences": [{"kind": "DaemonSet", "name": "ds", "controller": True}]}
SEES_ALL: Object = {"containers": [{"name": "main", **PRIVILEGED}]}


@pytest.mark.parametrize(
    ("item", "ways", "possible", "pausable"),
    [
        # CNI plugins, CSI drivers and node exporters are privileged, and hold no GPU.
        (made(SEES_ALL, DAEMON), (), ("privileged container main",), False),
        (made({**SEES_ALL, "priority": 2_000_001_000}), (), ("privileged container main",), False),
        (made({**SEES_ALL, "priority": 1_000_000}), ("privileged container main",), (), False),
        (made({**SEES_ALL, "runtimeClassName": "nvidia"}, DAEMON), ("runtimeClassName nvidia",), (), False),
        (
            made({"nodeSelector": {"nvidia.com/gpu.deploy.client": "true"}}, DAEMON),
            ("nodeSelector nvidia.com/gpu.deploy.client",),
            (),
            True,
        ),
        (
            made({"nodeSelector": {"nvidia.com/gpu.deploy.client": "true"}}),
            ("nodeSelector nvidia.com/gpu.deploy.client",),
            (),
            False,
        ),
    ],
)
def test_pods_of_the_cluster_itself(
    item: Object, ways: tuple[str, ...], possible: tuple[str, ...], pausable: bool
) -> None:
    [user] = parse_pods([item])["n1"]
    assert (user.access, user.possible_access, user.pausable) == (ways, possible, pausable)
    actual = classify_pods(parse_pods([item], operator_namespace=OPERATOR)).possible_holders
    assert [user.possible_access for user in actual.get("n1", [])] == ([possible] if possible else [])
    assert bool(classify_pods(parse_pods([item], operator_namespace=OPERATOR)).gpu_pods) is bool(ways)
