# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container toolkit's settings for a detected distribution, and what an installed toolkit keeps."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.catalog.distributions import BY_NAME, DISTRIBUTIONS
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.detect import (
    InstalledToolkit,
    declared_change,
    is_confirmed,
    settings_for,
    settings_for_unconfirmed,
    with_settings,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive, plan_warnings
from ansible_collections.accel.gpu.plugins.module_utils.pools.operator_values import with_values, without_values
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import Plan

Env = dict[str, str]
SOCKET = "CONTAINERD_SOCKET"
RKE2 = {SOCKET: "/run/k3s/containerd/containerd.sock"}
THEIRS = {SOCKET: "/run/theirs.sock"}
OLD_K0S = BY_NAME["k0s"].toolkit_variables("v25.3.4")
K0S = BY_NAME["k0s"].toolkit_variables("v25.10.1")


def planned(env: Env | None = None, distribution: str | None = None, **values: t.Any) -> Plan:
    if env:
        values["toolkit"] = {"env": [{"name": name, "value": value} for name, value in env.items()]}
    cluster = {"name": "c", "distribution": distribution, "operator": {"version": "v25.10.1", "values": values}}
    return derive(cluster, {}, [{"name": "p", "match": {"model": "T4"}}])


def variables(env: t.Iterable[dict[str, str]]) -> Env:
    return {entry["name"]: entry["value"] for entry in env}


@pytest.mark.parametrize(
    ("plan", "actual", "env"),
    [
        (planned(), {}, {}),
        (planned(), {"": ["a"]}, {}),
        (planned(), {"kubeadm": ["a"]}, {}),
        (planned(), {"rke2": ["a"]}, RKE2),
        (planned(), {"rke2": ["a"], "k3s": ["b"]}, RKE2),
        (planned(), {"k0s": ["a"]}, K0S),
        (planned(), {"kubeadm": ["a"], "": ["b"]}, {}),
        (planned({"OTHER": "x"}), {"rke2": ["a"]}, RKE2),
        (planned(THEIRS), {"rke2": ["a"]}, {}),
        # Who sets a part of the configuration sets all of it.
        (planned({"RUNTIME_CONFIG": "/etc/mine.toml"}), {"k0s": ["a"]}, {SOCKET: "/run/k0s/containerd.sock"}),
        (planned(toolkit={"enabled": False}), {"rke2": ["a"]}, {}),
        (planned(cdi={"nriPluginEnabled": True}), {"rke2": ["a"]}, {}),
    ],
)
def test_settings_of_a_new_installation(plan: Plan, actual: dict[str, list[str]], env: Env) -> None:
    settings = settings_for(plan, actual)
    assert variables(settings.env) == env
    assert settings.notes == ()


@pytest.mark.parametrize("actual", [{"rke2": ["a"], "k0s": ["b"]}, {"rke2": ["a"], "": ["b"]}])
def test_distributions_with_different_settings(actual: dict[str, list[str]]) -> None:
    settings = settings_for(planned(), actual)
    assert settings.values == {}
    assert "nodes of several distributions" in settings.notes[0]


@pytest.mark.parametrize(
    ("distribution", "installed", "env", "words"),
    [
        # It does not work yet: the settings are applied, and announced.
        ("rke2", InstalledToolkit({}, {}), RKE2, "restarts containerd and with it the RKE2 agent"),
        ("k0s", InstalledToolkit({}, {}, ready_nodes=1), K0S, "is replaced on 1 node(s) and restarts containerd;"),
        # It works without them: it stays.
        (
            "rke2",
            InstalledToolkit({}, {}, ready_nodes=3, working=True),
            {},
            "works on 3 node(s) without the settings for RKE2",
        ),
        ("rke2", InstalledToolkit(THEIRS, THEIRS, ready_nodes=3, working=True), THEIRS, "so it is left unchanged"),
        # The settings of an older release of the operator become those of the new one.
        ("k0s", InstalledToolkit(OLD_K0S, OLD_K0S, "v25.3.4", 2, working=True), K0S, "toolkit.env changes"),
        # Changed manually: what Helm has recorded stays recorded.
        ("rke2", InstalledToolkit(THEIRS, {}, edited_by="kubectl-edit"), {}, "was edited by kubectl-edit"),
        ("rke2", InstalledToolkit(THEIRS, RKE2, edited_by="kubectl-patch"), RKE2, "set gpu_cluster.distribution: rke2"),
    ],
)
def test_settings_of_an_installed_operator(
    distribution: str, installed: InstalledToolkit, env: Env, words: str
) -> None:
    settings = settings_for(planned(), {distribution: ["a"]}, installed)
    assert variables(settings.env) == env
    assert words in " ".join(settings.notes)


@pytest.mark.parametrize(
    ("distribution", "live", "announced"),
    [
        ("rke2", RKE2, False),
        ("rke2", {}, True),
        ("rke2", THEIRS, True),
        ("kubeadm", {}, False),
        ("kubeadm", RKE2, False),
    ],
)
def test_a_declared_distribution_that_changes_the_policy(distribution: str, live: Env, announced: bool) -> None:
    policy = {"spec": {"toolkit": {"env": [{"name": name, "value": value} for name, value in live.items()]}}}
    assert bool(declared_change(planned(distribution=distribution), policy)) == announced
    assert declared_change(planned(distribution=distribution), None) == ()


@pytest.mark.parametrize(
    ("installed", "env"),
    [
        # It works without the settings: it stays, and what Helm has recorded stays recorded.
        (InstalledToolkit({}, {}, ready_nodes=3, working=True), {}),
        (InstalledToolkit(THEIRS, THEIRS, ready_nodes=3, working=True), THEIRS),
        # It does not work, or has settings of the same distribution for an older release: the declaration is applied.
        (InstalledToolkit({}, {}, ready_nodes=1), None),
        (InstalledToolkit(RKE2, RKE2, "v25.3.4", 3, working=True), None),
    ],
)
def test_a_declared_distribution_that_no_node_has(installed: InstalledToolkit, env: Env | None) -> None:
    plan = planned({"OTHER": "x"}, "rke2")
    settings = settings_for_unconfirmed(plan, installed)
    assert settings.replaces_declared == bool(settings.notes) == (env is not None)
    values = with_settings(plan, settings).operator.values
    assert variables(values["toolkit"]["env"]) == {"OTHER": "x", **(RKE2 if env is None else env)}
    if env is not None:
        assert "works on 3 node(s), so it is not changed and does not get the settings for RKE2" in settings.notes[0]
        assert "set these variables in toolkit.env of gpu_cluster.operator.values" in settings.notes[0]


def test_without_the_declared_settings_the_values_are_those_of_no_declaration() -> None:
    settings = settings_for_unconfirmed(planned(distribution="rke2"), InstalledToolkit({}, {}, "", 1, working=True))
    assert with_settings(planned(distribution="rke2"), settings).operator.values == planned().operator.values


@pytest.mark.parametrize(
    ("versions", "confirmed"),
    [
        (["v1.36.4"], False),
        (["v1.36.4", "v1.36.4+k3s1"], False),
        (["v1.36.4", "v1.36.4+rke2r1"], True),
        (["v1.36.4+rke2r1"], True),
        (["", ""], True),
        ([], True),
    ],
)
def test_one_node_confirms_a_declared_distribution(versions: list[str], confirmed: bool) -> None:
    nodes = [Node(str(number), kubelet_version=version) for number, version in enumerate(versions)]
    assert is_confirmed(BY_NAME["rke2"], nodes) == confirmed


def test_a_change_of_the_users_variables_is_announced() -> None:
    policy = {"spec": {"toolkit": {"env": [{"name": SOCKET, "value": "/run/old.sock"}]}}}
    (note,) = declared_change(planned(THEIRS), policy, "rke2")
    assert f"({SOCKET}=/run/theirs.sock)" in note
    assert "the RKE2 agent" in note
    assert declared_change(planned(), policy, "rke2") == ()


def test_a_users_socket_that_does_not_fit_the_declared_distribution() -> None:
    warnings = plan_warnings(planned(THEIRS, "k3s"))
    assert [text for text in warnings if f"{SOCKET}=/run/theirs.sock" in text and "K3s" in text]
    assert not [text for text in plan_warnings(planned(RKE2, "k3s")) if SOCKET in text]


names = st.sampled_from([*K0S, "RUNTIME_CONFIG", "RUNTIME_CONFIG_SOURCE", "OTHER"])


@given(st.sampled_from(DISTRIBUTIONS), st.dictionaries(names, st.just("theirs"), max_size=3))
def test_the_users_variables_are_never_overridden(distribution: t.Any, theirs: Env) -> None:
    declared = planned(theirs, distribution.name).operator.values.get("toolkit", {}).get("env", [])
    assert len({entry["name"] for entry in declared}) == len(declared)
    assert theirs.items() <= variables(declared).items()
    detected = settings_for(planned(theirs), {distribution.name: ["a"]})
    assert {**variables(detected.env), **theirs} == variables(declared)


def test_values_of_a_distribution_are_added_and_removed() -> None:
    values: dict[str, t.Any] = {"toolkit": {"env": [{"name": "OTHER", "value": "x"}]}, "driver": {"version": "580"}}
    added: dict[str, t.Any] = {
        "toolkit": {"env": [{"name": SOCKET, "value": "/run/x"}]},
        "driver": {"manager": {"a": 1}},
        "psp": {"b": 2},
    }
    both = with_values(values, added)
    assert both["toolkit"]["env"] == [*added["toolkit"]["env"], *values["toolkit"]["env"]]
    assert both["driver"] == {"version": "580", "manager": {"a": 1}}
    assert without_values(both, added) == values
