# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation of return values describes every key, except keys that are names or content of the user.

The only key `NAME` below `contains` stands for names, such as those of node groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.clouds.machinesets import ANNOTATIONS, MANAGED
from ansible_collections.accel.gpu.plugins.module_utils.clouds.machinesets import FIELDS as MACHINESET
from ansible_collections.accel.gpu.plugins.module_utils.clouds.magnum_clusters import cluster_result
from ansible_collections.accel.gpu.plugins.module_utils.clouds.magnum_groups import FIELDS as MAGNUM
from ansible_collections.accel.gpu.plugins.module_utils.clouds.vks_clusters import cluster_of, flavor_of
from ansible_collections.accel.gpu.plugins.module_utils.clouds.vks_groups import FIELDS as VKS
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.spec import NodeGroupState
from tests.programs import REPO

Object = dict[str, Any]
NAME = "NAME"
# Maps whose keys are names or content of the user, of Kubernetes or of the cloud: labels, resources, environment variables, options of other modules.
OPEN = frozenset(
    {
        "distribution_values",
        "labels",
        "node_labels",
        "match_labels",
        "namespace_labels",
        "annotations",
        "tags",
        "accelerators",
        "provider_spec",
        "subscription_config",
    }
    | {
        "allocatable",
        "capacity",
        "profiles",
        "devices",
        "states",
        "switched_from",
        "demand",
        "options",
        "data",
        "digests",
        "images",
        "spec",
        "limits",
        "objects",
    }
    | {
        "runtime_classes",
        "released_nodes",
        "change_counts",
        "failed",
        "failures",
        "repaired",
        "held_back",
        "overlaps",
        "undeclared_pins",
        "mismatched",
    }
    | {
        "missing",
        "not_ready",
        "sets",
        "workloads",
        "helm_environment",
        "unshared",
        "nodes",
        "resources",
        "known_issues",
    }
    # The details of a failure depend on its code, the values of a program on the program.
    | {"details", "load", "all_reduce", "network_all_reduce"}
)
# Values in a form that is documented elsewhere: Kubernetes objects, variables, Helm values, options and results of other modules.
REFERENCES = {
    "filter/plan:_value.operator",
    "filter/plan:_value.nfd",
    "filter/plan:_value.pools",
    "filter/plan:_value.nodegroups",
    "filter/role_options:_value",
    "lookup/role_options:_list",
    "filter/with_node_counts:_value",
    "filter/with_templates:_value",
    "modules/cluster_policy:cluster_policy.configmaps",
    "modules/gpu_info:gpu_info.installed",
    "modules/gpu_info:gpu_info.pools.NAME.driver",
    "modules/gpu_info:gpu_info.release.pools",
    "modules/gpu_pools_export:gpu_cluster",
    "modules/gpu_pools_export:gpu_pools",
    "modules/helm_release:helm_release.initial_values",
    "modules/vks_nodegroup:nodegroups.NAME.upgrade_strategy",
    "modules/vks_nodegroup:nodegroup.upgrade_strategy",
    "modules/vks_nodegroup_info:nodegroups.NAME.upgrade_strategy",
}


def documented(plugin: str) -> Object:
    """The RETURN of a plugin, such as modules/gpu_info."""
    text = (REPO / "plugins" / f"{plugin}.py").read_text(encoding="utf-8")
    match = re.search(r'^RETURN = r"""\n(.*?)^"""', text, re.MULTILINE | re.DOTALL)
    return yaml.safe_load(match[1]) if match else {}


def maps(values: Object, path: str = "") -> Iterator[tuple[str, Object]]:
    """Every value that is a map or a list of maps, with its path."""
    for name, about in values.items():
        below = f"{path}.{name}" if path else name
        if "dict" in (about["type"], about.get("elements")):
            yield below, about
        yield from maps(about.get("contains", {}), below)


PLUGINS = [
    f"{path.parent.name}/{path.stem}"
    for kind in ("modules", "filter", "lookup")
    for path in sorted((REPO / "plugins" / kind).glob("*.py"))
]


@pytest.mark.parametrize("plugin", PLUGINS)
def test_every_map_lists_its_keys(plugin: str) -> None:
    actual = [path for path, about in maps(documented(plugin)) if "contains" not in about]
    unknown = [path for path in actual if path.rpartition(".")[2] not in OPEN and f"{plugin}:{path}" not in REFERENCES]
    assert unknown == []


@pytest.mark.parametrize(
    ("module", "fields"),
    [
        ("machineset", [*MACHINESET.fields, ANNOTATIONS, MANAGED]),
        ("magnum_nodegroup", MAGNUM.fields),
        ("vks_nodegroup", VKS.fields),
    ],
)
def test_the_fields_of_a_node_group_are_those_of_the_code(module: str, fields: list[str]) -> None:
    """Each field of the provider, and what all providers return."""
    state = NodeGroupState(
        "1", "n", "READY", settled=True, failed=False, count=1, outdated=("m",), fields=dict.fromkeys(fields)
    )
    returned = {*state.to_result(), "action", "id", "status", "failure", "deletes"}
    returned |= {"adopted_nodes"} if module == "machineset" else set()
    values = documented(f"modules/{module}")
    assert set(values["nodegroups"]["contains"][NAME]["contains"]) == returned
    assert set(values["nodegroup"]["contains"]) == returned
    listed = set(documented(f"modules/{module}_info")["nodegroups"]["contains"][NAME]["contains"])
    assert listed >= returned - {"action", "failure", "outdated", "deletes", "adopted_nodes"}


def test_the_keys_of_clusters_and_flavors_are_those_of_the_code() -> None:
    magnum, vks, flavor = cluster_result({}), cluster_of({}).to_result(), flavor_of({}, "z").to_result()
    assert set(documented("modules/magnum_cluster_info")["clusters"]["contains"]) == set(magnum)
    assert set(documented("modules/magnum_cluster")["magnum_cluster"]["contains"]) >= set(magnum)
    assert set(documented("modules/vks_cluster_info")["clusters"]["contains"]) == set(vks)
    catalog = documented("modules/vks_catalog_info")["catalog"]["contains"]
    assert set(catalog["flavors"]["contains"]) == set(flavor)
