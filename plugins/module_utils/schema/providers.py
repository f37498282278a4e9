# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The providers of node groups and their settings; in the schema, a cloud is added only in this file."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ..catalog.flavors import FlavorGpus, vks_flavor_gpus
from ..catalog.machine_api import MACHINE_API_NAMESPACE
from ..catalog.machine_types import machine_type_gpus
from ..catalog.olm import OPENSHIFT
from . import validators
from .types import (
    Anything,
    Boolean,
    Field,
    ListOf,
    MapOf,
    Rule,
    Section,
    Text,
    integer_between,
)

# The node label in which Magnum stores the name of a node's group (magnum, doc/source/user/node-groups.rst).
MAGNUM_NODEGROUP_LABEL = "magnum.openstack.org/nodegroup"
_MAGNUM_ID = re.compile(r"\d+|[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)


@dataclass(frozen=True)
class ProviderDefinition:
    """Defines one provider.

    A new provider needs, in this order (KEY is its `key`):

    1. its definition in this file, and an entry in PROVIDERS;
    2. the package module_utils/providers/KEY with the client of its API, a NodeGroupProvider (nodegroups/provider.py), and NodeGroupFields
       (providers/nodegroup_module.py); also inventory.py if it has `inventory` (see ClusterSource in providers/cluster_inventory.py), and kubeconfig.py if it
       has `issues_kubeconfig`; a library that this code imports also belongs in requirements.txt;
    3. its modules, with their documentation fragments: KEY.py for the connection (with the attribute `action_group`), KEY_nodegroup.py for node groups;
    4. the file tasks/KEY.yml of the role nodegroups, which calls the modules, and KEY_undeclared.yml if it has `lists_undeclared_groups`;
       permissions in examples/rbac/ if its node groups are Kubernetes objects;
    5. descriptions of `cloud_fields` and `nodes_fields` in tests/pages/variables.yml, and of `inventory` in plugins/inventory/clusters.py; then `make docs`,
       which also writes the action group and the action plugins of the modules.

    key: the provider's name in gpu_cluster.cloud and in the inventory plugin, and the name of its package; title: the provider's name in messages.
    module: the module that manages its node groups; the module MODULE_info lists them. By default KEY_nodegroup.
    cloud_fields: the schema of gpu_cluster.cloud.KEY. connection_options: those of the cloud_fields that are options of all its modules.
    nodes_fields: the settings of a pool's `nodes` that only this provider has; each is an option of its module, except `zones`.
    inventory: the settings of a cloud in the inventory plugin; None if the provider has no cloud whose clusters the plugin can list.
    issues_kubeconfig: whether a module of the provider fetches the cluster's kubeconfig.
    kubelet_labels: whether the kubelet, which is not allowed to set all labels, sets the labels of the nodes.
    flavor_instead: a setting of `nodes` that may replace `flavor`; empty if every node group has a flavor.
    max_name_length, name_rule: the limits of a node group's name. max_entries: the maximum number of labels, and of taints, of a group.
    autoscaling_option: whether its module has a switch in addition to min_node_count and max_node_count. The limits are then independent, and a maximum of
    0 means no limit; otherwise, a group has both limits or none.
    scaled_by_openshift: whether OpenShift's autoscaler scales its node groups, whose nodes are described in the option `capacity` of its module.
    lists_undeclared_groups: whether a deletion includes groups that a pool no longer declares; tasks/KEY_undeclared.yml finds them.
    distribution: the only distribution whose clusters have its API; empty if there are several.
    flavor_gpus: returns the GPUs of a flavor with this name; None if the name does not show them.
    """

    key: str
    title: str
    cloud_fields: t.Mapping[str, Field]
    connection_options: tuple[str, ...]
    nodes_fields: t.Mapping[str, Field]
    inventory: Section | None
    max_name_length: int
    name_rule: Rule
    module: str = ""
    issues_kubeconfig: bool = True
    kubelet_labels: bool = True
    flavor_instead: str = ""
    max_entries: int | None = None
    autoscaling_option: bool = False
    scaled_by_openshift: bool = False
    lists_undeclared_groups: bool = False
    distribution: str = ""
    flavor_gpus: t.Callable[[str], FlavorGpus | None] = lambda dummy: None

    @property
    def nodegroup_module(self) -> str:
        """The name of the module for its node groups."""
        return self.module or f"{self.key}_nodegroup"


def _magnum_group_name(value: str) -> str | None:
    if not value:
        return "is empty; a node group needs a name (without one, Magnum returns 500)"
    if _MAGNUM_ID.fullmatch(value):
        return "looks like an ID, so Magnum would never find the group by it; begin the name with a letter"
    return validators.label_value(value)


def _not_master(value: str) -> str | None:
    if value == "master":
        return "is the role of the control plane, and Magnum does not create additional groups with this role; choose a different role"
    return None


MAGNUM = ProviderDefinition(
    key="magnum",
    title="Magnum",
    cloud_fields={
        "cloud": Text(),
        "region_name": Text(),
        "cluster": Text(),
        "template": Text(),
        "nodegroup_label": Text((validators.label_key,), default=MAGNUM_NODEGROUP_LABEL),
    },
    connection_options=("cloud", "region_name"),
    nodes_fields={
        "image": Text(),
        "role": Text((_not_master,)),
        "labels": MapOf(item=Text(empty=True)),
        "merge_labels": Boolean(),
        "docker_volume_size": integer_between(
            1,
            2**31 - 1,
            "a volume has at least 1 GiB; set a larger size",
            "no volume is that large; set a smaller size",
        ),
    },
    inventory=Section(
        fields={
            "cloud": Text(required=True, missing="set the name of the cloud in clouds.yaml"),
            "region_names": ListOf(item=Text()),
            "gpu_aliases": MapOf(),
        }
    ),
    # The name becomes the value of a node label (drivers of Heat, and the cluster autoscaler).
    max_name_length=63,
    name_rule=_magnum_group_name,
    autoscaling_option=True,
)

_ADDRESS = Text((validators.http_address,))
_VKS_CONNECTION: dict[str, Field] = {
    "region": Text(),
    "project_id": Text(),
    "iam_url": _ADDRESS,
    "vks_url": _ADDRESS,
    "vserver_url": _ADDRESS,
}
# The limits come from the schema of VKS's node groups (greennode-mcp specs/vks.json, greennode-cli).
VKS = ProviderDefinition(
    key="vks",
    title="VKS",
    cloud_fields={"cluster": Text(), **_VKS_CONNECTION},
    connection_options=tuple(_VKS_CONNECTION),
    nodes_fields={
        "os": Text(),
        "disk_size": integer_between(
            20,
            5000,
            "VKS requires at least 20 GiB; set a larger size",
            "VKS allows at most 5000 GiB; set a smaller size",
        ),
        "disk_type": Text(),
        "ssh_key": Text(),
        "subnet": Text(),
        "secondary_subnets": ListOf(default=None, item=Text()),
        "security_groups": ListOf(default=None, item=Text()),
        "private_nodes": Boolean(),
        "encrypted_volume": Boolean(),
        "tags": MapOf(item=Text(empty=True)),
        "upgrade_strategy": Section(
            default=None,
            fields={
                "max_surge": integer_between(
                    1,
                    100,
                    "VKS requires at least 1; set a larger number",
                    "VKS allows at most 100; set a smaller number",
                ),
                "max_unavailable": integer_between(
                    0, 100, "it must not be negative; set 0 or more", "VKS allows at most 100; set a smaller number"
                ),
            },
        ),
        "kubernetes_version": Text(),
    },
    inventory=Section(
        fields={
            **_VKS_CONNECTION,
            "iam_version": Text(),
            "ca_cert": Text(),
            "validate_certs": Boolean(),
            "client_id_env": Text(),
            "client_secret_env": Text(),
        }
    ),
    max_name_length=15,
    name_rule=validators.matches(
        r"[a-z0-9][a-z0-9-]{3,13}[a-z0-9]",
        "is not a VKS node group name; use 5 to 15 characters of a-z, 0-9 and '-', with a letter or digit at both ends",
    ),
    max_entries=50,
    flavor_gpus=vks_flavor_gpus,
)

_MACHINESET_LENGTH = 57


def _machineset_name(value: str) -> str | None:
    """Accepts a MachineSet name that stays valid as a node name: a Machine's name has six more characters, and becomes the node's name."""
    if len(value) > _MACHINESET_LENGTH:
        return f"has {len(value)} characters; the name of a MachineSet can have at most {_MACHINESET_LENGTH}, because the names of its nodes are longer"
    return validators.dns_label(value)


# The cluster's own Machine API creates the nodes, so there is no other address, account or kubeconfig.
MACHINESET = ProviderDefinition(
    key="machineset",
    title="OpenShift's Machine API",
    module="machineset",
    cloud_fields={"namespace": Text((validators.dns_label,), default=MACHINE_API_NAMESPACE)},
    connection_options=("namespace",),
    nodes_fields={
        "like": Text((validators.object_name,)),
        "template": Text(),
        "zones": ListOf(default=None, item=Text()),
        "accelerators": Section(
            default=None,
            fields={
                "type": Text(required=True, missing="set the type of GPU, such as nvidia-tesla-t4"),
                "count": integer_between(
                    1,
                    16,
                    "a machine with accelerators has at least 1; set a larger number",
                    "no machine has that many; set a smaller number",
                ),
            },
        ),
        "provider_spec": Anything(default=None),
        "adopt": Boolean(),
    },
    inventory=None,
    max_name_length=_MACHINESET_LENGTH,
    name_rule=_machineset_name,
    issues_kubeconfig=False,
    # The controller of the Machine API copies the labels to the nodes.
    kubelet_labels=False,
    flavor_instead="template",
    scaled_by_openshift=True,
    lists_undeclared_groups=True,
    distribution=OPENSHIFT,
    flavor_gpus=machine_type_gpus,
)

PROVIDERS: dict[str, ProviderDefinition] = {provider.key: provider for provider in (MAGNUM, VKS, MACHINESET)}
