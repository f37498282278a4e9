# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installations by OLM: which of them are managed, and the examples of custom resources."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.installation import (
    Installation,
    csv_of,
    evaluate_olm,
    example_of,
    other_subscriptions,
    read_example,
    subscribed_namespaces,
    with_policies,
)
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive

Object = dict[str, Any]
NAMESPACE, CSV = "nvidia-gpu-operator", "gpu-operator-certified.v25.10.1"
POLICY = {"kind": "ClusterPolicy", "metadata": {"name": "gpu-cluster-policy"}}
RULE, DRIVER = {"kind": "NodeFeatureRule"}, {"kind": "NVIDIADriver"}
HELM = ("gpu-operator", "gpu-operator")


def found(manager: str = "olm", namespace: str = NAMESPACE, **more: Any) -> Installation:
    return Installation(
        "operator", "gpu-operator", namespace, manager, f"OLM, ClusterServiceVersion {CSV}", "v25.3.2", **more
    )


VERDICTS: list[tuple[str, list[Installation], Object, set[str], str, str]] = [
    # what, installations, keys of gpu_cluster.operator, namespaces of our Subscriptions -> verdict, words
    ("nothing", [], {}, set(), "managed", ""),
    ("our Subscription", [found()], {}, {NAMESPACE}, "managed", ""),
    ("another Subscription", [found()], {}, set(), "adopted", ""),
    ("another Subscription that is named", [found()], {"olm": {"channel": "v25.10"}}, set(), "managed", ""),
    ("another Subscription elsewhere", [found(namespace="gpus")], {"namespace": "mine"}, set(), "adopted", ""),
    ("our Subscription elsewhere", [found(namespace="gpus")], {"namespace": "mine"}, {"gpus"}, "problem", "A Subscription cannot be moved"),
    ("our Helm release", [found("helm", release=HELM)], {}, set(), "problem", "Set installer: helm to keep it"),
    ("another Helm release", [found("helm", release=("a", "b"))], {}, set(), "adopted", ""),
    ("Argo CD", [found("argocd")], {"olm": {"channel": "v25.10"}}, {NAMESPACE}, "problem-free", ""),
    ("two", [found(), found(namespace="b")], {}, {NAMESPACE}, "problem", "which conflict"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("installations", "operator", "subscribed", "verdict", "words"),
    [case[1:] for case in VERDICTS],
    ids=[case[0] for case in VERDICTS],
)
def test_what_follows(
    installations: list[Installation], operator: Object, subscribed: set[str], verdict: str, words: str
) -> None:
    plan = derive({"name": "c", "distribution": "openshift", "operator": operator}, {}, [])
    finding = evaluate_olm(installations, plan.operator, {HELM}, subscribed)
    assert words in finding.problem
    result = finding.as_dict()
    if verdict == "problem":
        assert finding.problem
    elif verdict == "managed":
        assert (result["managed"], result["installer"]) == (True, "olm")
        assert result["subscription"]["package"] == "gpu-operator-certified"
        assert result["subscription"]["version"] == "v25.10.1"
    else:
        assert (result["adopted"], result["installer"]) == (True, "")
        assert "subscription" not in result


@pytest.mark.parametrize("channel", [None, "v25.10"])
def test_only_a_declared_channel_is_passed_to_the_module(channel: str | None) -> None:
    """Without one, the module keeps the channel in use or finds one that has the version."""
    olm = {"source": ["certified-operators"], **({"channel": channel} if channel else {})}
    planned = derive({"name": "c", "distribution": "openshift", "operator": {"olm": olm}}, {}, []).operator
    subscription = evaluate_olm([found()], planned, (), ()).as_dict()["subscription"]
    assert subscription == {
        "namespace": NAMESPACE,
        "namespace_labels": {"pod-security.kubernetes.io/enforce": "privileged"},
        "package": "gpu-operator-certified",
        "version": "v25.10.1",
        "channel": channel,
        "source": ["certified-operators"],
        "source_namespace": "openshift-marketplace",
        "approval": "Manual",
        "catalog_image": None,
        "additional_csvs": None,
        "operator_group": None,
        "target_namespaces": None,
        "subscription_config": None,
    }


def test_declared_options_are_passed_to_the_module_as_they_are() -> None:
    """An empty list of target namespaces and an empty configuration have a meaning of their own."""
    olm = {
        "additional_csvs": ["nfd.v4.18.0"],
        "operator_group": "gpu",
        "target_namespaces": [],
        "subscription_config": {},
    }
    planned = derive({"name": "c", "distribution": "openshift", "operator": {"olm": olm}}, {}, []).operator
    assert evaluate_olm([found()], planned, (), ()).as_dict()["subscription"].items() >= olm.items()


@pytest.mark.parametrize("policies", [[], [{"metadata": {"name": "gpu-cluster-policy", "creationTimestamp": "1"}}]])
@pytest.mark.parametrize("installations", [[], [found()]])
def test_neither_a_missing_policy_nor_a_policy_alone_is_a_problem(
    installations: list[Installation], policies: list[Object]
) -> None:
    planned = derive({"name": "c", "distribution": "openshift"}, {}, []).operator
    finding = with_policies(evaluate_olm(installations, planned, (), set()), policies, planned)
    assert not finding.problem


@pytest.mark.parametrize(
    ("examples", "kind", "expected"),
    [
        ([POLICY], "ClusterPolicy", POLICY),
        # The order differs from release to release (v25.3: the policy alone; v26.7: with GPUCluster and NVIDIADriver).
        ([DRIVER, {"kind": "GPUCluster"}, POLICY], "ClusterPolicy", POLICY),
        ([RULE], "ClusterPolicy", None),
        ([POLICY, {**POLICY, "spec": {}}], "ClusterPolicy", POLICY),
        ([None, "text", POLICY], "ClusterPolicy", POLICY),
        ({}, "ClusterPolicy", None),
        (None, "ClusterPolicy", None),
    ],
)
def test_an_example_is_picked_by_its_kind(examples: Any, kind: str, expected: Object | None) -> None:
    assert example_of({"metadata": {"annotations": {"alm-examples": json.dumps(examples)}}}, kind) == expected


@pytest.mark.parametrize("annotations", [None, {}, {"alm-examples": ""}, {"alm-examples": "["}])
def test_unreadable_examples_are_none(annotations: Object | None) -> None:
    assert example_of({"metadata": {"annotations": annotations}}, "ClusterPolicy") is None


@pytest.mark.parametrize(
    ("labels", "owner"),
    [
        ({"olm.owner": CSV, "olm.owner.kind": "ClusterServiceVersion"}, CSV),
        ({"olm.owner": CSV, "olm.owner.kind": "OperatorGroup"}, ""),
        (None, ""),
    ],
)
def test_csv_of(labels: Object | None, owner: str) -> None:
    assert csv_of({"metadata": {"labels": labels}}) == owner


class Forbidding:
    """A client of a user who may list nothing."""

    def list_known(self, path: str) -> tuple[Object, ...]:
        raise ApiError("no", status=403, reason="Forbidden", method="GET", path=path)

    list_once = list_known


def test_subscriptions_that_may_not_be_listed_do_not_make_an_installation_adopted() -> None:
    planned = derive({"name": "c", "distribution": "openshift"}, {}, []).operator
    client = cast("Client", Forbidding())
    with pytest.raises(ApiError) as failure:
        subscribed_namespaces(client, [found()], planned)
    assert failure.value.path.endswith(f"/namespaces/{NAMESPACE}/subscriptions")
    # Without an installation by OLM, nothing is read.
    assert subscribed_namespaces(client, [found("helm", release=HELM)], planned) == set()


def test_examples_that_may_not_be_read_are_not_missing() -> None:
    with pytest.raises(ApiError):
        read_example(cast("Client", Forbidding()), NAMESPACE, "ClusterPolicy")


def second(namespace: str, package: str, state: str = "") -> Object:
    status = {"state": state} if state else {}
    return {"metadata": {"name": "theirs", "namespace": namespace}, "spec": {"name": package}, "status": status}


class Listing:
    """A client of a cluster with these Subscriptions."""

    def __init__(self, *subscriptions: Object) -> None:
        self.subscriptions = subscriptions

    def list_known(self, path: str) -> tuple[Object, ...]:
        assert path.endswith("/v1alpha1/subscriptions"), "in all namespaces"
        return self.subscriptions

    list_once = list_known


@pytest.mark.parametrize(
    ("component", "subscriptions", "words"),
    [
        ("operator", [], ""),
        ("operator", [second(NAMESPACE, "gpu-operator-certified")], ""),
        ("operator", [second("openshift-operators", "cert-manager")], ""),
        (
            "operator",
            [second("openshift-operators", "gpu-operator-certified", "UpgradeFailed")],
            "Subscription openshift-operators/theirs (package gpu-operator-certified, state UpgradeFailed)",
        ),
        ("operator", [second(NAMESPACE, "gpu-operator-certified-rhmp")], "state unknown"),
        ("nfd", [second("openshift-operators", "nfd")], "NFD is not running, but another Subscription installs it"),
        ("nfd", [second("operators", "node-feature-discovery-operator")], "package node-feature-discovery-operator"),
    ],
)
def test_a_failed_subscription_elsewhere_is_found_before_a_second_one(
    component: str, subscriptions: list[Object], words: str
) -> None:
    plan = derive({"name": "c", "distribution": "openshift"}, {}, [])
    planned = plan.operator if component == "operator" else plan.nfd
    actual = other_subscriptions(cast("Client", Listing(*subscriptions)), component, planned)
    assert bool(actual) is bool(words)
    assert words in actual
    assert other_subscriptions(cast("Client", Forbidding()), component, planned) == ""
