# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Relations between the objects of a namespace, and missing statuses."""

from __future__ import annotations

from ansible_collections.accel.gpu.plugins.module_utils.kube.fields import name_of
from ansible_collections.accel.gpu.plugins.module_utils.olm.observed import (
    catalog_state,
    component_label,
    conditions,
    csv_version,
)
from tests.helpers.olm_objects import NAMESPACE, NEW, OLD, PACKAGE, condition, csv, observed, plan, subscription


def test_the_versions_of_a_package_have_its_label_or_its_prefix() -> None:
    labeled = csv("renamed.v1", metadata={"labels": {component_label(PACKAGE, NAMESPACE): ""}})
    state = observed(csvs=[csv(), csv("gpu-operator-certified-other.v1"), labeled])
    assert [name_of(item) for item in state.package_csvs(PACKAGE)] == [NEW, "renamed.v1"]


def test_the_label_has_at_most_63_characters() -> None:
    label = component_label("p" * 40, "n" * 40)
    assert len(label.partition("/")[2]) == 63
    assert component_label("p" * 62, "n").endswith("p")


def test_a_replaced_version_is_referenced() -> None:
    live = subscription(currentCSV=NEW, installedCSV=NEW)
    state = observed(subscriptions=[live], csvs=[csv(NEW, spec={"replaces": OLD}), csv(OLD)])
    assert state.unreferenced_csvs(PACKAGE) == ()


def test_plans_of_a_deleted_subscription() -> None:
    def owned(name: str, uid: str) -> dict[str, object]:
        actual = plan(NEW, name=name)
        actual["metadata"]["ownerReferences"] = [{"kind": "Subscription", "uid": uid}]
        return actual

    state = observed(plans=[owned("old", "uid-gone"), owned("new", f"uid-{PACKAGE}"), plan(NEW, name="foreign")])
    assert [name_of(item) for item in state.orphaned_plans()] == ["old"]


def test_conditions_may_have_no_message_and_no_type() -> None:
    actual = conditions({"status": {"conditions": [condition("A"), {"status": "True"}]}})
    assert list(actual) == ["A"]
    assert (actual["A"].is_true, actual["A"].reason, actual["A"].message) == (True, "", "")
    assert conditions(None) == {}


def test_missing_statuses() -> None:
    assert catalog_state(None) == ""
    assert catalog_state({"status": {"connectionState": {"lastObservedState": "READY"}}}) == "READY"
    assert csv_version(None) is None
    assert str(csv_version(csv())) == "25.10.1"
