# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Exports clusters that others made, with hostile text wherever a cluster can contain text, and plans with the exported file.

Ansible reads the file without evaluating anything in it, the plan accepts all of it, no node gets other resources, and after the pools' labels have been
set, another export and plan change nothing.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import random
import typing as t
from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import assign_pools
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.report.export import (
    InstalledRelease,
    effect_remarks,
    export_cluster,
    render_variables,
)
from ansible_collections.accel.gpu.plugins.module_utils.report.export_pools import (
    LiveConfig,
    add_drivers,
    export_pools,
    leave_out_rejected,
)
from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import merge, validate
from ansible_collections.accel.gpu.plugins.module_utils.sharing.change_plan import ConfigMaps, plan_sharing_changes
from tests.helpers.fleet import node

Document = dict[str, t.Any]
# Since ansible-core 2.19, only text with this mark is a template.
TRUSTED: Document = (
    {"trusted_as_template": True}
    if "trusted_as_template" in inspect.signature(DataLoader.load_from_file).parameters
    else {}
)
CONFIG, POOL, MIG = "nvidia.com/device-plugin.config", "accel.gpu/pool", "nvidia.com/mig.config"
MODELS = ("Tesla-T4", "NVIDIA-L4", "NVIDIA-A100-SXM4-80GB", "NVIDIA-H200", "NVIDIA-Z9000")


def hostile_texts(canary: Path) -> list[str]:
    """Text that does harm if any reader does not treat it as data."""
    command = f"lookup('pipe', 'touch {canary}')"
    return [
        f"{{{{ {command} }}}}",
        f"{{% if {command} %}}x{{% endif %}}",
        f"#jinja2:variable_start_string:'[[', variable_end_string:']]'\n[[ {command} ]]",
        f"first\n{{{{ {command} }}}}",
        f"{{# {command} #}}",
        "{{- range .Values.x }}{{ . }}{{ end -}}",
        "{{",
        "\u2028gpu_pools: []\u2029",
        "\x85gpu_cluster: {}",
        "\ngpu_pools: []\n---\n",
        "\x1b[2J\x1b]0;owned\x07\r",
        "\u202egnp.exe\u2066\u200b",
        "!unsafe x",
        "!vault |\n  $ANSIBLE_VAULT;1.1;AES256",
        "__omit_place_holder__x",
        "*alias",
        "&anchor",
        "<<",
        "'",
        '"',
        "# comment",
        "a: b",
        "- x",
        "? x",
        "1e3",
        "0755",
        "yes",
        "~",
        "",
        " ",
        "\x00",
        "🚀" * 9,
        "x" * 2000,
    ]


class ForeignCluster:
    """A cluster whose objects a random generator has filled."""

    def __init__(self, seed: int, canary: Path) -> None:
        """Generate the objects."""
        self.rng = random.Random(f"foreign cluster {seed}")
        self.texts = hostile_texts(canary)
        self.plugin = self._plugin()
        self.nodes = [self._node(index) for index in range(self.rng.randint(1, 12))]
        config = {"name": "configs", **({"default": "whole"} if self.rng.random() < 0.5 else {})}
        self.policy = {
            "metadata": {"annotations": {"accel.gpu/tolerations": self._record()}},
            "spec": {
                "devicePlugin": {"config": config},
                "mig": {"strategy": self.rng.choice(["single", "mixed", "", "none"])},
                "migManager": {"config": {"name": "migs"}},
                "driver": {"useNvidiaDriverCRD": True},
            },
        }
        self.mig = {
            "config.yaml": self.rng.choice([self.text(), json.dumps({"version": "v1", "mig-configs": self.tree()})])
        }
        self.drivers = [
            {
                "metadata": {
                    "name": f"driver-{index}",
                    "labels": {"app.kubernetes.io/managed-by": "accel.gpu"},
                    "annotations": {"accel.gpu/driver": self._record()},
                },
                "spec": {"nodeSelector": {POOL: self.rng.choice("abc")}},
            }
            for index in range(2)
        ]
        names = {"operator": ("gpu-operator", "gpu-operator"), "nfd": ("nfd", "node-feature-discovery")}
        self.releases = {
            component: InstalledRelease(
                *((self.text(), self.text()) if self.rng.random() < 0.1 else names[component]),
                self.rng.choice(["v25.10.1", "v24.9.2", "", self.text()]) if component == "operator" else "0.17.3",
                merge(getattr(derive({"name": "lab"}, {}, []), component).values, self.values()),
            )
            for component in names
        }

    def text(self) -> str:
        """Hostile text, alone or within other text."""
        text = self.rng.choice(self.texts)
        return text if self.rng.random() < 0.7 else f"some {text} thing"

    def tree(self, depth: int = 3) -> Document:
        """A map with hostile keys and values."""
        return {
            self.rng.choice([self.text(), "name", "enabled", "env"]): self._value(depth)
            for _each in range(self.rng.randint(0, 4))
        }

    def _value(self, depth: int) -> t.Any:
        kind = self.rng.randrange(8 if depth else 5)
        if kind < 3:
            return self.text()
        if kind == 3:
            return self.rng.choice([None, True, 0, -1, 1.5, 1e20, 2**70, 1e-9])
        if kind == 4:
            return {"name": "NGC_API_KEY", "value": self.text()}
        if kind == 5:
            return [self._value(depth - 1) for _each in range(self.rng.randint(0, 3))]
        return self.tree(depth - 1)

    def values(self) -> Document:
        """Helm values with hostile parts, also where the collection or the chart expects something else."""
        places = ("driver", "toolkit", "devicePlugin", "dcgmExporter", "daemonsets", "worker", "master", "mig", "extra")
        return {place: self.tree() for place in self.rng.sample(places, 3)}

    def _record(self) -> str:
        """The text of one of this collection's annotations, which every user with access to the object can change."""
        return self.rng.choice(
            [
                self.text(),
                json.dumps(self.tree()),
                json.dumps([self.text(), self.tree()]),
                json.dumps({"version": self.text()}),
            ]
        )

    def _plugin(self) -> dict[str, str]:
        shared = {
            name: json.dumps(
                {
                    "version": "v1",
                    "sharing": {kind: {**options, "resources": [{"name": "nvidia.com/gpu", "replicas": replicas}]}},
                }
            )
            for name, kind, replicas, options in (
                ("four", "timeSlicing", 4, {"failRequestsGreaterThanOne": True}),
                ("lax", "timeSlicing", 2, {}),
                ("mps", "mps", 3, {}),
                ("extreme", "timeSlicing", 16384, {}),
            )
        }
        return {
            "whole": "version: v1",
            **shared,
            "hostile": self.text(),
            "tree": json.dumps(self.tree()),
            "within": json.dumps({"version": "v1", "flags": self.tree()}),
        }

    def _node(self, index: int) -> Node:
        replicas = {"four": 4, "lax": 2, "mps": 3}
        name = self.rng.choice(["whole", "four", "lax", "mps", *self.plugin, "missing"])
        labels: dict[str, str | None] = {"example.com/zone": self.rng.choice("ab"), CONFIG: name}
        if name == "mps":
            labels["nvidia.com/gpu.sharing-strategy"] = "mps"
        if self.rng.random() < 0.2:
            labels[POOL] = self.rng.choice(["a", "b", "Team_A"])
        elif self.rng.random() < 0.1:
            labels["nvidia.com/gpu.product"] = None
        if self.rng.random() < 0.1:
            labels[MIG] = self.rng.choice(["missing", "all-disabled"])
        keys = ("accel.gpu/pool-labels", "accel.gpu/pool-taints", "accel.gpu/rollout", "example.com/owner")
        annotations = {key: self._record() for key in keys if self.rng.random() < 0.2}
        taints = [
            {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
            {"key": "example.com/team", "value": "x", "effect": "NoExecute"},
        ]
        chosen = tuple(taint for taint in taints if self.rng.random() < 0.2)
        model = self.rng.choice(MODELS)
        return node(
            f"n{index}",
            model,
            self.rng.choice([1, 8]),
            replicas.get(name, 1),
            labels=labels,
            annotations=annotations,
            taints=chosen,
        )

    def export(self, nodes: t.Sequence[Node]) -> tuple[Document, list[Document], str]:
        """The exported variables, as the module gpu_pools_export writes them."""
        live = LiveConfig(self.policy, {"data": self.plugin}, {"data": self.mig})
        exported = export_pools(nodes, live.node_sharing, live.tolerations)
        add_drivers(exported, self.drivers)
        declared = {"name": "prod"}
        leave_out_rejected(export_cluster(declared, self.releases, [])[0], exported)
        document, remarks = export_cluster(declared, self.releases, exported.pools)
        return document, exported.pools, render_variables(document, exported.pools, [*exported.remarks, *remarks])


def read_with_ansible(path: Path) -> Document:
    """The variables in a file after Ansible has evaluated all templates in them."""
    variables = DataLoader().load_from_file(str(path), **TRUSTED)
    return t.cast("Document", json.loads(json.dumps(Templar(DataLoader(), variables=variables).template(variables))))


def test_the_canary_sings(tmp_path: Path) -> None:
    """Without the tags, the same reader executes the command."""
    canary, path = tmp_path / "canary", tmp_path / "vars.yml"
    path.write_text(json.dumps({"gpu_cluster": {"name": hostile_texts(canary)[0]}}))
    read_with_ansible(path)
    assert canary.exists()


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(300))
def test_an_exported_cluster_is_data_and_does_not_change(seed: int, tmp_path: Path) -> None:
    canary, path = tmp_path / "canary", tmp_path / "vars.yml"
    cluster = ForeignCluster(seed, canary)
    document, pools, text = cluster.export(cluster.nodes)
    path.write_text(text)
    read = read_with_ansible(path)
    assert not canary.exists()
    assert text.replace("\n", "").isprintable()
    # JSON has only strings as keys, such as the indices of the GPUs in a layout.
    assert read == json.loads(json.dumps({"gpu_cluster": document, "gpu_defaults": {}, "gpu_pools": pools}))
    assert validate(read["gpu_cluster"], read["gpu_defaults"], read["gpu_pools"]) == []
    plan = derive(read["gpu_cluster"], {}, read["gpu_pools"])
    assert plan.as_dict() == derive(document, {}, pools).as_dict()

    live = {each.name: each for each in cluster.nodes}
    changes = plan_sharing_changes(plan, cluster.nodes, assign_pools(plan.pools, cluster.nodes), ConfigMaps())
    if changes.releases.nodes:
        # The module refuses to write the file, but only where nodes have records of this collection.
        assert all(
            any(key.startswith("accel.gpu/") for key in live[name].annotations) for name in changes.releases.nodes
        )
        return
    # A change of the configuration of a node with MPS always ends the pods that use its GPUs, and a remark says so.
    transitions = {
        change.node: change.transition
        for change in changes.node_changes
        if change.edit and live[change.node].labels[CONFIG] != "mps"
    }
    remarks = effect_remarks(
        cluster.nodes, transitions, (*changes.limited, *changes.not_ready), changes.releases.unshared
    )
    assert not [remark for remark in remarks if "different allocatable resources" in remark]
    if changes.releases.unshared:
        # A run refuses these variables before it changes anything.
        return
    patches = {edit.name: edit.patch["metadata"] for edit in changes.edits}
    after = [_patched(each, patches.get(each.name, {})) for each in cluster.nodes]
    cluster.plugin.update(plan.config.data)
    again, pools_again, _text = cluster.export(after)
    plan = derive(again, {}, pools_again)
    changes = plan_sharing_changes(plan, after, assign_pools(plan.pools, after), ConfigMaps())
    assert [(change.node, change.edit) for change in changes.node_changes] == []


def _patched(live: Node, patch: Document) -> Node:
    def merged(fields: t.Mapping[str, str], changes: t.Mapping[str, str | None] | None) -> dict[str, str]:
        return {key: value for key, value in {**fields, **(changes or {})}.items() if value is not None}

    return dataclasses.replace(
        live,
        labels=merged(live.labels, patch.get("labels")),
        annotations=merged(live.annotations, patch.get("annotations")),
    )
