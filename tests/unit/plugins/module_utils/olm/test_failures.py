# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The texts of problems, where they depend on the object."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.olm import assessment
from ansible_collections.accel.gpu.plugins.module_utils.olm.observed import Condition
from tests.helpers.olm_objects import NAMESPACE, NEW, csv, deployment, plan

SOURCES = "openshift-marketplace"


def catalog(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "certified"}, "spec": {"sourceType": "grpc", **spec}}


def test_a_failed_plan_names_the_steps_that_are_not_done() -> None:
    steps = [
        {"status": "Created", "resource": {"kind": "ServiceAccount", "name": "a"}},
        {"status": "Unknown", "resource": {"kind": "ServiceMonitor", "name": "b"}},
    ]
    problem = assessment.plan_failed(plan(NEW, phase="Failed", message="invalid data", plan=steps))
    assert problem.value == "invalid data (not done: ServiceMonitor b)"
    assert assessment.plan_failed(plan(NEW, phase="Failed")).value == "Failed"


@pytest.mark.parametrize(
    ("spec", "remedy"),
    [
        ({"address": "10.0.0.1:50051"}, "Check that the catalog at 10.0.0.1:50051 is running."),
        ({"image": "registry.example/catalog:1"}, "that its image registry.example/catalog:1 can be pulled"),
        ({}, "olm.catalogSource=certified)."),
    ],
)
def test_an_unreachable_catalog(spec: dict[str, Any], remedy: str) -> None:
    assert remedy in assessment.catalog_unreachable(SOURCES, catalog(**spec)).remedy


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        (
            "error using catalogsource openshift-marketplace/certified-operators: failed to list bundles",
            "Check the pod of CatalogSource certified-operators (kubectl -n openshift-marketplace get pods -l olm.catalogSource=certified-operators)",
        ),
        ("another text", "Check the CatalogSource that the message names."),
    ],
)
def test_a_catalog_that_blocks_the_subscription_is_named(message: str, remedy: str) -> None:
    problem = assessment.resolution_failed(
        "Subscription a/b", Condition("ResolutionFailed", True, "ErrorPreventedResolution", message), "nfd"
    )
    assert problem.code == "catalog_unreachable"
    assert problem.remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("pods", "remedy"),
    [
        ([], "kubectl -n nvidia-gpu-operator describe deployment"),
        (["pod a: ImagePullBackOff"], "Check its pods: pod a: ImagePullBackOff."),
    ],
)
def test_a_deployment_that_is_not_ready(pods: list[str], remedy: str) -> None:
    problem = assessment.deployment_not_ready(deployment(ready=0), pods, 30)
    assert problem.value == "0 of 1 after 30 s (wait_timeout)"
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    ("reason", "code"), [("BundleUnpackFailed", "unpack_failed"), (assessment.PLAN_NOT_FOUND, "resolution_failed")]
)
def test_a_failed_unpacking_and_a_plan_that_was_deleted_differ(reason: str, code: str) -> None:
    assert (
        assessment.unpack_failed("Subscription a/b", Condition("BundleUnpackFailed", True, reason, "m"), "p").code
        == code
    )


def test_other_problems() -> None:
    timeout = assessment.unpack_timeout("Subscription a/b", 20)
    assert (timeout.subject, timeout.value) == ("Subscription a/b", "True after 20 s (wait_timeout)")
    held = csv(metadata={"finalizers": ["operators.coreos.com/csv-cleanup"]})
    assert assessment.not_removed(NAMESPACE, held, 60).value == "operators.coreos.com/csv-cleanup after 60 s"
    foreign = assessment.foreign_catalog(SOURCES, catalog(), "registry.example/catalog:1")
    assert (foreign.field, foreign.value) == ("spec.image", "not set")
    assert "Correct source" in assessment.catalog_missing(SOURCES, "x").remedy
