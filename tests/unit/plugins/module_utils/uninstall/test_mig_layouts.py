# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Layouts of other tools and users in the MIG manager's file, which a removal keeps."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog import mig, models
from ansible_collections.accel.gpu.plugins.module_utils.nodes.mig import is_standard_entry
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes import mig_parted
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.objects import configmap_removal, keeps_mig_configmap

Object = dict[str, Any]
Entries = dict[str, Any]


def layout(count: int, profile: str, devices: Any = "all") -> Any:
    return [{"devices": devices, "mig-enabled": True, "mig-devices": {profile: count}}]


BALANCED = [
    {"device-filter": ["0x233010DE"], "devices": "all", "mig-enabled": True,
     "mig-devices": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}},
]  # fmt: skip
STANDARD: Entries = {
    "all-disabled": mig_parted.DISABLED_ENTRY,
    "all-enabled": [{"devices": "all", "mig-enabled": True, "mig-devices": {}}],
    "all-1g.10gb": layout(7, "1g.10gb"),
    "all-1g.10gb.me": layout(1, "1g.10gb+me"),
    "all-balanced": BALANCED,
}
OWN: Entries = {"mig-7x1g.10gb-0a1b2c3d": layout(7, "1g.10gb")}
THEIRS: Entries = {"night-shift": layout(2, "3g.40gb")}


def configmap(text: str | Entries, name: str = "accel-gpu-mig-parted", **data: str) -> Object:
    content = text if isinstance(text, str) else mig_parted.render_configuration(text)
    fields: Object = {"f:data": {f"f:{key}": {} for key in ("config.yaml", *data)}}
    managers = [{"manager": "accel.gpu", "operation": "Apply", "fieldsV1": fields}]
    metadata = {"name": name, "namespace": "gpus", "resourceVersion": "7", "managedFields": managers}
    return {"metadata": metadata, "data": {"config.yaml": content, **data}}


class Cluster:
    """The MIG manager's ConfigMap and other ConfigMaps of its namespace."""

    def __init__(self, live: Object, *others: Object) -> None:
        self.live = live
        self.listed = 0
        self.deleted: list[str] = []
        self.patches: list[Object] = []
        self._others = others

    def get(self, path: str) -> Object:
        assert path == "/api/v1/namespaces/gpus/configmaps/accel-gpu-mig-parted"
        return self.live

    def list(self, path: str) -> list[Object]:
        assert path == "/api/v1/namespaces/gpus/configmaps"
        self.listed += 1
        return [self.live, *self._others]

    def delete(self, path: str, *, body: Object) -> None:
        self.deleted.append(path)

    def patch(self, _path: str, body: Object) -> Object:
        self.patches.append(body)
        return self.live


def test_entries_of_all_models_are_standard() -> None:
    known = {model.key: mig.geometry(model.key) for model in models.MODELS}
    gpus = [(model.pci_ids, geometry) for model in models.MODELS if (geometry := known[model.key])]
    entries = mig_parted.default_entries(gpus)
    assert len(entries) > 20
    assert [name for name, content in entries.items() if not is_standard_entry(name, content)] == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("all-1g.10gb", layout(3, "1g.10gb")),
        ("all-1g.10gb", layout(7, "1g.10gb", [0])),
        ("all-1g.10gb", layout(2, "3g.40gb")),
        ("all-mixed", [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 4, "3g.40gb": 1}}]),
        ("all-balanced", layout(7, "1g.10gb")),
        ("all-disabled", layout(7, "1g.10gb")),
        ("all-enabled", mig_parted.DISABLED_ENTRY),
        ("night-shift", layout(7, "1g.10gb")),
        ("all-1g.10gb", [{**layout(7, "1g.10gb")[0], "note": "mine"}]),
        ("all-1g.10gb", []),
        ("all-1g.10gb", "text"),
    ],
)
def test_other_entries_are_not_standard(name: str, content: Any) -> None:
    assert not is_standard_entry(name, content)


@pytest.mark.parametrize("content", [{**STANDARD, **OWN}, OWN, STANDARD, "", "# empty\n"])
def test_a_file_without_foreign_layouts_is_deleted(content: str | Entries) -> None:
    cluster = Cluster(configmap(content))
    removal = configmap_removal(cast(Any, cluster), cluster.live)
    assert (removal.action, removal.kept, cluster.listed) == ("deleted", "", 0)
    assert not keeps_mig_configmap(cast(Any, cluster), "gpus")


def test_foreign_layouts_are_kept_and_named() -> None:
    cluster = Cluster(configmap({**STANDARD, **OWN, **THEIRS}))
    removal = configmap_removal(cast(Any, cluster), cluster.live)
    assert removal.action == "managed entries removed"
    assert removal.kept == "its file config.yaml has layouts of other tools or users: night-shift"
    assert removal.after == ["config.yaml"]
    assert keeps_mig_configmap(cast(Any, cluster), "gpus"), "its namespace is kept, also in check mode"
    assert removal.send is not None
    removal.send()
    changed, unmarked = cluster.patches
    assert changed["metadata"]["resourceVersion"] == "7"
    assert mig_parted.parse_configmap(changed) == {**STANDARD, **THEIRS}
    assert "managedFields" in unmarked["metadata"]
    assert cluster.deleted == []


def test_a_file_with_foreign_layouts_beside_other_keys() -> None:
    """A file without an entry of the collection is not changed; a key of the collection is removed."""
    cluster = Cluster(configmap(THEIRS, own="1"))
    removal = configmap_removal(cast(Any, cluster), cluster.live)
    assert removal.send is not None
    removal.send()
    assert cluster.patches[0]["data"] == {"own": None}


def test_an_unreadable_file_is_kept() -> None:
    cluster = Cluster(configmap("mig-configs: [", "accel-gpu-mig-parted"))
    removal = configmap_removal(cast(Any, cluster), cluster.live)
    assert removal.kept == "its file config.yaml cannot be read as a list of layouts"


@pytest.mark.parametrize(("original", "kept"), [(THEIRS, False), ({"night-shift": layout(1, "7g.80gb")}, True)])
def test_layouts_that_another_configmap_has(original: Entries, kept: bool) -> None:
    """The first run copied the entries of the ConfigMap that the ClusterPolicy named before."""
    cluster = Cluster(configmap({**OWN, **THEIRS}), configmap(original, "custom-mig"), {"metadata": {"name": "other"}})
    assert bool(configmap_removal(cast(Any, cluster), cluster.live).kept) is kept
    assert cluster.listed == 1
