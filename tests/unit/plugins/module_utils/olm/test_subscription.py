# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects that are applied: one owner for each field, entries of others in lists stay."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import (
    CREATED_ANNOTATION,
    FIELD_MANAGER,
    SUBSCRIPTION_CONFIG_ANNOTATION,
)
from ansible_collections.accel.gpu.plugins.module_utils.olm.installation import (
    OlmOptions,
    catalog_body,
    group_body,
    merge_list,
    owned_part,
    removed_config,
    subscription_body,
)
from tests.helpers.olm_objects import NAMESPACE, PACKAGE, subscription

INFRA = {"key": "infra", "operator": "Exists"}
TEAM = {"key": "team", "operator": "Exists"}
PROXY = {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}


def body_of(live: dict[str, Any] | None = None, config: dict[str, Any] | None = None, **decided: str) -> dict[str, Any]:
    """The Subscription with this spec.config and the usual decisions of a run."""
    usual: dict[str, Any] = {"channel": "stable", "source": "certified-operators", "starting_csv": "", **decided}
    return subscription_body(OlmOptions(NAMESPACE, PACKAGE, subscription_config=config), live, **usual)


def applied(body: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """The object as the server stores it, with these fields below spec.config applied by the collection."""
    live = copy.deepcopy(body)
    entry = {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": {"f:spec": {"f:config": fields}}}
    live["metadata"]["managedFields"] = [entry]
    return live


def test_a_new_subscription() -> None:
    body = body_of(config={"tolerations": [INFRA], "nodeSelector": {"a": "b"}}, starting_csv="a.v1")
    assert body["spec"] == {
        "name": PACKAGE,
        "channel": "stable",
        "source": "certified-operators",
        "sourceNamespace": "openshift-marketplace",
        "installPlanApproval": "Manual",
        "startingCSV": "a.v1",
        "config": {"tolerations": [INFRA], "nodeSelector": {"a": "b"}},
    }
    annotations = body["metadata"]["annotations"]
    assert annotations[CREATED_ANNOTATION] == "true"
    assert json.loads(annotations[SUBSCRIPTION_CONFIG_ANNOTATION]) == {"tolerations": [INFRA]}


def test_unknown_fields_are_left_out() -> None:
    body = body_of(channel="", source="")
    assert not {"channel", "source", "startingCSV", "config"} & body["spec"].keys()


def test_an_adopted_subscription_keeps_the_entries_of_others() -> None:
    live = subscription(spec={"config": {"tolerations": [TEAM], "env": [PROXY], "resources": {"limits": {"cpu": 1}}}})
    body = body_of(live, {"tolerations": [INFRA]})
    assert body["spec"]["config"] == {"tolerations": [TEAM, INFRA]}
    assert json.loads(body["metadata"]["annotations"][SUBSCRIPTION_CONFIG_ANNOTATION]) == {"tolerations": [INFRA]}
    assert CREATED_ANNOTATION not in body["metadata"]["annotations"]


def test_an_equal_entry_of_another_is_not_taken() -> None:
    live = subscription(spec={"config": {"tolerations": [INFRA]}})
    body = body_of(live, {"tolerations": [INFRA]})
    assert "config" not in body["spec"]
    assert "annotations" not in body["metadata"]


def test_a_list_that_was_applied_is_always_applied_again() -> None:
    first = body_of(subscription(spec={"config": {"tolerations": [TEAM]}}), {"tolerations": [INFRA]})
    live = applied(first, {"f:tolerations": {}})
    removed = body_of(live, {})
    assert removed["spec"]["config"] == {"tolerations": [TEAM]}
    assert "annotations" not in removed["metadata"]
    # Without an option, nothing of it changes.
    kept = body_of(live)
    assert kept["spec"]["config"] == first["spec"]["config"]
    assert kept["metadata"]["annotations"] == first["metadata"]["annotations"]


def test_a_variable_with_another_value_is_replaced_in_place() -> None:
    other = {"name": "A", "value": "1"}
    mine = {"name": "HTTPS_PROXY", "value": "http://other:3128"}
    assert merge_list("env", [other, PROXY], [], [mine]) == ([other, mine], [mine])


@pytest.mark.parametrize(
    ("value", "fields", "part"),
    [
        ({"nodeSelector": {"a": "1", "b": "2"}}, {"f:nodeSelector": {"f:a": {}}}, {"nodeSelector": {"a": "1"}}),
        ({"nodeSelector": {"a": "1"}}, {"f:nodeSelector": {".": {}, "f:a": {}}}, {"nodeSelector": {"a": "1"}}),
        ({"tolerations": [INFRA]}, {"f:tolerations": {}}, {"tolerations": [INFRA]}),
        ({"tolerations": [INFRA]}, {}, {}),
        ({}, {"f:tolerations": {}}, {}),
    ],
)
def test_owned_part(value: Any, fields: Any, part: Any) -> None:
    assert owned_part(value, fields) == part


ENTRIES = st.lists(st.sampled_from([{"key": key} for key in "abcdef"]), unique_by=str)


@given(ENTRIES, ENTRIES, ENTRIES)
def test_merged_lists(foreign: list[Any], before: list[Any], after: list[Any]) -> None:
    """Entries of others survive in their order, own ones are as declared, and a second merge changes nothing."""
    current, owned = merge_list("tolerations", foreign, [], before)
    merged, recorded = merge_list("tolerations", current, owned, after)
    assert [item for item in merged if item in foreign] == foreign
    assert all(item in merged for item in after)
    assert all(item in foreign or item in after for item in merged)
    assert merge_list("tolerations", merged, recorded, after) == (merged, recorded)
    assert merge_list("tolerations", merged, recorded, []) == (foreign, [])


def test_removed_configuration() -> None:
    before = {"tolerations": [INFRA, TEAM], "nodeSelector": {"a": "1", "b": "2"}}
    after = {"tolerations": [TEAM], "nodeSelector": {"b": "3"}}
    assert removed_config(before, after) == {"tolerations": [INFRA], "nodeSelector": {"a": "1", "b": "2"}}
    assert removed_config(None, after) == {"tolerations": [], "nodeSelector": {}}


def test_other_objects() -> None:
    options = OlmOptions(NAMESPACE, PACKAGE, source=("staging", "b"), catalog_image="registry.example/catalog:1")
    assert group_body(options, "g", [NAMESPACE])["spec"] == {"targetNamespaces": [NAMESPACE]}
    assert group_body(options, "g", [])["spec"] == {}
    catalog = catalog_body(options, None)
    assert catalog["metadata"]["name"] == catalog["spec"]["displayName"] == "staging"
    assert catalog["spec"]["sourceType"] == "grpc"
    assert catalog["metadata"]["annotations"] == {CREATED_ANNOTATION: "true"}
