# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The providers of node groups, the names and marks of groups, and the autoscaler, as they are declared."""

from __future__ import annotations

import hashlib
import json
import re
import typing as t
from dataclasses import dataclass

from ..catalog.models import FlavorGpus, machine_type_gpus, vks_flavor_gpus
from ..catalog.openshift import (
    AUTOSCALER_FIELDS_SINCE,
    EXPANDERS,
    MACHINE_API_NAMESPACE,
    OPENSHIFT,
    PLATFORMS,
    PRIORITY_EXPANDER,
)
from ..catalog.releases import release_of
from ..core.messages import join_words, quote, type_name
from ..core.types import (
    MAX_NODES,
    Anything,
    Boolean,
    Choice,
    Field,
    ListOf,
    MapOf,
    PoolVariables,
    Problems,
    Rule,
    Section,
    Text,
    integer_between,
    secret_problems,
)
from ..core.values import Object, get_nested
from . import validators

# Names of node groups: the options of each provider's node groups, and the name of a group that replaces another group (pure).
#
# To change an immutable field, a new group is created next to the old one, so both groups exist for a while and the new group needs a different name.
# This name consists of the declared name and four hexadecimal digits derived from the immutable fields. Anyone may choose such a name, so the name
# does not show who created a group: each replacement carries a mark in its labels or annotations from the moment it is created. The mark is derived from
# the group's place (the cluster, or the UID of its object), the declared name and the group's own name, so it is not valid on a copy.

# The options that every provider's node groups have.
NODE_COUNT, MIN_NODE_COUNT, MAX_NODE_COUNT = "node_count", "min_node_count", "max_node_count"
NODE_LABELS, NODE_TAINTS = "node_labels", "node_taints"

_DIGITS = 4
_MARK_DIGITS = 12
_SUFFIX = re.compile(r"-[0-9a-f]{4}")
_DIGEST = re.compile(rf"[0-9a-f]{{{_MARK_DIGITS}}}")


def replacement_name(name: str, immutable: t.Mapping[str, t.Any], max_length: int) -> str:
    """The name of the group with these immutable fields that replaces group `name`; at most `max_length` characters."""
    digest = hashlib.sha256(json.dumps(dict(immutable), sort_keys=True).encode()).hexdigest()[:_DIGITS]
    return f"{_stem(name, max_length)}-{digest}"


def group_mark(place: str, name: str, group: str) -> str:
    """The mark of the group called `group` that belongs to the declared node group `name`. place: the id of the cluster, or of the group's object."""
    digest = hashlib.sha256(json.dumps([place, name, group]).encode()).hexdigest()[:_MARK_DIGITS]
    return f"{name}.{digest}"


def marked_owner(mark: str | None, place: str, group: str) -> str:
    """The declared name of the node group that `group` belongs to according to its mark; empty without a valid mark."""
    name = (mark or "").rpartition(".")[0]
    return name if name and mark == group_mark(place, name, group) else ""


def claimed_owner(mark: str | None) -> str:
    """The declared name in a mark, whether the mark is valid or not; empty without a mark."""
    name, dummy, digest = (mark or "").rpartition(".")
    return name if _DIGEST.fullmatch(digest) else ""


def may_be_replacement(group: str, name: str, max_length: int = 255) -> bool:
    """Whether `group` is the name of group `name`, or a name that a group that replaces it may have. The group's mark determines whether it does."""
    stem = _stem(name, max_length)
    return group == name or (group.startswith(stem) and bool(_SUFFIX.fullmatch(group[len(stem) :])))


def _stem(name: str, max_length: int) -> str:
    return name[: max_length - _DIGITS - 1].rstrip("-")


# The providers of node groups and their settings; in the schema, a cloud is added only in this file.

# The node label in which Magnum stores the name of a node's group (magnum, doc/source/user/node-groups.rst).
MAGNUM_NODEGROUP_LABEL = "magnum.openstack.org/nodegroup"
_MAGNUM_ID = re.compile(r"\d+|[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)


@dataclass(frozen=True)
class ProviderDefinition:
    """Defines one provider.

    A new provider needs, in this order (KEY is its `key`):

    1. its definition in this file, and an entry in PROVIDERS;
    2. the files KEY_client.py (its API), KEY_clusters.py (its clusters, and the base of its modules) and KEY_groups.py in module_utils/clouds.
       KEY_groups.py has its NodeGroupProvider (nodegroups/reconciler.py) and its NodeGroupFields
       (nodegroups/module.py), and sources() if it has `inventory` (see ClusterSource in clouds/kubeconfig_file.py); KEY_clusters.py has the kubeconfig if it
       has `issues_kubeconfig`; a library that this code imports also belongs in requirements.txt;
    3. its modules, with their documentation fragments: KEY.py for the connection (with the attribute `action_group`), KEY_nodegroup.py for node groups;
    4. the file tasks/KEY.yml of the role nodegroups, which calls the modules, and KEY_undeclared.yml if it has `lists_undeclared_groups`;
       permissions in examples/rbac/ if its node groups are Kubernetes objects;
    5. a description of its `inventory` in plugins/inventory/clusters.py; then `make docs`, which also writes the action group and the action plugins of the
       modules.

    key: the provider's name in gpu_cluster.cloud and in the inventory plugin, and the name of its package; title: the provider's name in messages.
    module: the module that manages its node groups; the module MODULE_info lists them. By default KEY_nodegroup.
    cloud_fields: the schema of gpu_cluster.cloud.KEY; doc: the description of this key.
    connection_options: those of the cloud_fields that are options of all its modules.
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
    doc: str
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
    doc="Set this key if OpenStack Magnum manages the cluster. An empty map (C({})) is sufficient.",
    cloud_fields={
        "cloud": Text(
            doc="The name of the cloud in C(clouds.yaml). By default, openstacksdk determines the cloud from C(OS_CLOUD) and the other C(OS_*) "
            "environment variables."
        ),
        "region_name": Text(doc="The region of that cloud."),
        "cluster": Text(doc="Name or ID of the cluster in Magnum. By default, C(gpu_cluster.name)."),
        "template": Text(
            doc="The cluster template from which the cluster is created if it does not exist. If the cluster does not exist and this key is not set, the "
            "run fails."
        ),
        "nodegroup_label": Text(
            (validators.label_key,),
            doc="The node label that contains the name of the node group. Some Magnum drivers use a different label.",
            default=MAGNUM_NODEGROUP_LABEL,
        ),
    },
    connection_options=("cloud", "region_name"),
    nodes_fields={
        "image": Text(doc="(Magnum) Image of the nodes. By default, the cluster's image."),
        "role": Text((_not_master,), doc="(Magnum) Role of the group. By default, V(worker)."),
        "labels": MapOf(
            doc="(Magnum) Labels that Magnum uses to configure the group, such as C(boot_volume_type). These are not node labels. Magnum cannot change "
            "the labels of an existing group, so a different value is rejected or, with C(recreate), the group is replaced.",
            item=Text(empty=True),
        ),
        "merge_labels": Boolean(
            doc="(Magnum) Whether C(labels) are merged with the cluster's labels and take precedence over them. If V(false), C(labels) replace the "
            "cluster's labels. By default, V(true)."
        ),
        "docker_volume_size": integer_between(
            1,
            2**31 - 1,
            "a volume has at least 1 GiB; set a larger size",
            "no volume is that large; set a smaller size",
            doc="(Magnum) Size of the volume for containers, in GiB.",
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


def _address(doc: str) -> Text:
    return Text((validators.http_address,), doc=doc)


_VKS_CONNECTION: dict[str, Field] = {
    "region": Text(doc="The region, V(HCM-3) or V(HAN). By default, V(HCM-3)."),
    "project_id": Text(doc="ID of the vServer project, for an account that has several projects."),
    "iam_url": _address("URL of the IAM API, if it differs from the default for the API version."),
    "vks_url": _address("URL of the VKS API, if it differs from the region's default."),
    "vserver_url": _address("URL of the vServer API, if it differs from the region's default."),
}
# The limits come from the schema of VKS's node groups (greennode-mcp specs/vks.json, greennode-cli).
VKS = ProviderDefinition(
    key="vks",
    title="VKS",
    doc="Set this key if VNG Cloud's VKS manages the cluster. An empty map (C({})) is sufficient.",
    cloud_fields={
        "cluster": Text(doc="Name or ID of the cluster in VKS. By default, C(gpu_cluster.name)."),
        **_VKS_CONNECTION,
    },
    connection_options=tuple(_VKS_CONNECTION),
    nodes_fields={
        "os": Text(doc="(VKS) Operating system of the nodes. By default, V(ubuntu)."),
        "disk_size": integer_between(
            20,
            5000,
            "VKS requires at least 20 GiB; set a larger size",
            "VKS allows at most 5000 GiB; set a smaller size",
            doc="(VKS) Size of the disk in GiB, from 20 to 5000. By default, V(100).",
        ),
        "disk_type": Text(doc="(VKS) Type of the disk. Required for a new group."),
        "ssh_key": Text(doc="(VKS) SSH key of the nodes. Required for a new group."),
        "subnet": Text(
            doc="(VKS) Subnet of the nodes. By default, the cluster's subnet. The subnet's zone determines the available flavors and disks."
        ),
        "secondary_subnets": ListOf(doc="(VKS) Additional subnets.", default=None, item=Text()),
        "security_groups": ListOf(doc="(VKS) Security groups of the nodes.", default=None, item=Text()),
        "private_nodes": Boolean(doc="(VKS) Whether the nodes have no public addresses. By default, V(false)."),
        "encrypted_volume": Boolean(doc="(VKS) Whether the disk is encrypted. By default, V(false)."),
        "tags": MapOf(doc="(VKS) Tags of the servers.", item=Text(empty=True)),
        "upgrade_strategy": Section(
            doc="(VKS) How nodes are replaced during an upgrade.",
            default=None,
            fields={
                "max_surge": integer_between(
                    1,
                    100,
                    "VKS requires at least 1; set a larger number",
                    "VKS allows at most 100; set a smaller number",
                    doc="Number of additional nodes during an upgrade. By default, V(1).",
                ),
                "max_unavailable": integer_between(
                    0,
                    100,
                    "it must not be negative; set 0 or more",
                    "VKS allows at most 100; set a smaller number",
                    doc="Number of nodes that may be unavailable during an upgrade. By default, V(0).",
                ),
            },
        ),
        "kubernetes_version": Text(
            doc="(VKS) Kubernetes version of the nodes. By default, the version of the cluster."
        ),
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
_SHA256 = validators.matches(
    r"sha256:[0-9a-fA-F]{64}", "is not a checksum; set sha256: and the 64 hexadecimal digits of the SHA-256"
)
# The settings of vCenter. Those in VSPHERE_CONNECTION are options of the modules for vSphere, the others are options of the templates.
VSPHERE_CONNECTION = ("hostname", "port", "username", "validate_certs", "ca_cert", "proxy_host", "proxy_port")
VSPHERE_TEMPLATE = ("folder", "url", "checksum")
VSPHERE = Section(
    doc="vCenter, in which templates are built for pools with C(vgpu). All keys are optional. The password is the variable C(gpu_vsphere_password).",
    default={},
    fields={
        "hostname": Text(
            doc="Host name of vCenter. By default, the one in the cluster's Infrastructure object; C(VMWARE_HOST) in the environment selects one of several."
        ),
        "port": integer_between(
            1,
            65535,
            "a port is at least 1; set a larger one",
            "a port is at most 65535; set a smaller one",
            doc="Port of vCenter.",
        ),
        "username": Text(
            doc="User name, such as C(automation@vsphere.local). By default, the environment variable C(VMWARE_USER)."
        ),
        "validate_certs": Boolean(
            doc="Whether the certificates of vCenter and the hosts are verified. By default, the environment variable C(VMWARE_VALIDATE_CERTS), or V(true)."
        ),
        "ca_cert": Text(
            doc="Path to the CA certificates of vCenter and the ESXi hosts. By default, those of the system."
        ),
        "proxy_host": Text(doc="Host name of an HTTP proxy for vCenter."),
        "proxy_port": integer_between(
            1,
            65535,
            "a port is at least 1; set a larger one",
            "a port is at most 65535; set a smaller one",
            doc="Port of that proxy.",
        ),
        "folder": Text(
            doc="Folder of the templates, below the folder C(vm) of the data center or as an inventory path. It must not be the folder of the cluster's "
            "machines.",
            default="accel-gpu",
        ),
        "url": Text(
            (validators.matches(r"https?://\S+", "is not a URL; begin it with https:// or http://"),),
            doc="URL of the RHCOS OVA, for example on a mirror. By default, the OVA of the cluster's release.",
        ),
        "checksum": Text((_SHA256,), doc="SHA-256 of C(url), with the prefix C(sha256:)."),
        "narrow_boot_images": Boolean(
            doc="Whether a run may exclude its MachineSets from an explicit selection of boot image updates in MachineConfiguration C(cluster). If V(false) "
            "(the default), the run fails if such a selection includes them."
        ),
    },
)


def vsphere_problems(cluster: Object) -> Problems:
    """A URL needs a checksum, because nothing else shows that the file is complete."""
    settings = get_nested(cluster, "cloud", "machineset", "vsphere")
    given = {key: get_nested(settings, key) for key in ("url", "checksum")}
    path = "gpu_cluster.cloud.machineset.vsphere"
    if given["url"] and not given["checksum"]:
        yield f"{path}.checksum: is missing; set the SHA-256 of url, such as sha256:9b1d..."
    if given["checksum"] and not given["url"]:
        yield f"{path}.checksum: has no effect without url; remove it, or set url"


MACHINESET = ProviderDefinition(
    key="machineset",
    title="OpenShift's Machine API",
    doc="Set this key if the Machine API of the cluster (OpenShift) creates the nodes. An empty map (C({})) is sufficient.",
    module="machineset",
    cloud_fields={
        "namespace": Text((validators.dns_label,), doc="Namespace of the MachineSets.", default=MACHINE_API_NAMESPACE),
        "vsphere": VSPHERE,
    },
    connection_options=("namespace",),
    nodes_fields={
        "like": Text(
            (validators.object_name,),
            doc="(MachineSets) The MachineSet that is copied to create a new one. By default, a worker MachineSet that this collection does not manage. "
            "If there are several, MachineSets without taints are preferred, and the first one by name is used.",
        ),
        "template": Text(
            doc="(MachineSets) The virtual machine to clone on vSphere. Set this key instead of C(flavor). The virtual machine's GPU or vGPU profile "
            "determines the GPUs of the nodes."
        ),
        "zones": ListOf(
            doc="(MachineSets) Zones of the nodes (on vSphere, failure domains). The pool has one MachineSet in each zone. The name of each MachineSet "
            "ends with its zone, and C(count) and C(autoscale) are divided among the zones. By default, there is one MachineSet, in the zone of C(like).",
            default=None,
            item=Text(),
        ),
        "accelerators": Section(
            doc="(MachineSets) GPUs to attach to the machines on Google Cloud, for machine types without built-in GPUs.",
            default=None,
            fields={
                "type": Text(
                    doc="Type of GPU, such as C(nvidia-tesla-t4).",
                    required=True,
                    missing="set the type of GPU, such as nvidia-tesla-t4",
                ),
                "count": integer_between(
                    1,
                    16,
                    "a machine with accelerators has at least 1; set a larger number",
                    "no machine has that many; set a smaller number",
                    doc="Number of GPUs on each machine.",
                ),
            },
        ),
        "provider_spec": Anything(
            doc="(MachineSets) Additional fields of the machines' C(providerSpec.value), such as C(numCPUs) and C(memoryMiB) on vSphere. All other "
            "fields keep the values of the MachineSet that is copied. A null value removes the field.",
            default=None,
        ),
        "adopt": Boolean(
            doc="(MachineSets) Whether the collection takes over an existing MachineSet that has the group's name but was not created by the collection. "
            "If V(false) (the default), the run fails if such a MachineSet exists."
        ),
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


# Checks provider_spec, which sets additional fields of a MachineSet's providerSpec, for invalid names, fields with their own key, and secrets (pure).

# The paths of fields that have their own key. If provider_spec also set one of these fields, every run would overwrite one value with the other.
_OWN_KEYS = {setting.path: key for platform in PLATFORMS for key, setting in platform.settings.items()}


def provider_spec_problems(document: t.Any, path: str, *, has_zones: bool = False) -> Problems:
    """The problems in the fields; `path` is their path in the variables or options. Values that are not maps are reported elsewhere."""
    if not isinstance(document, dict):
        return
    for key in _all_keys(document):
        if not isinstance(key, str) or not key or "." in key:
            yield f"{path}: {quote(key)} is not the name of a field; a name is a string without dots; write nested fields as maps"
    for field, key in _OWN_KEYS.items():
        # A field without a value (null) counts as well, because it would be removed.
        if field[-1] in (get_nested(document, *field[:-1]) or {}):
            yield f"{path}.{'.'.join(field)}: has its own key; set {key} instead"
    for zone in sorted({platform.zone for platform in PLATFORMS if platform.zone}) if has_zones else ():
        if get_nested(document, *zone) is not None:
            yield f"{path}.{'.'.join(zone)}: is derived from zones; remove one of them"
    if isinstance(document.get("userData"), str):
        yield f"{path}.userData: may contain secrets, which every user who can read MachineSets sees; store it in a Secret and set userDataSecret"
    yield from secret_problems(
        {key: value for key, value in document.items() if key != "userData"},
        path,
        "which every user who can read MachineSets sees",
        "store it in a Secret and name the Secret in userDataSecret or credentialsSecret",
    )


def _all_keys(value: t.Any) -> t.Iterator[t.Any]:
    """The keys of a map and of the maps below it, but not of maps in lists, which are written as a whole."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _all_keys(item)


# Defines and checks the keys of gpu_cluster.autoscaler, which are fields of OpenShift's ClusterAutoscaler.

Path = tuple[str, ...]

_PATH = "gpu_cluster.autoscaler"
# The key for fields of the ClusterAutoscaler that have no key of their own.
_VALUES = "values"
_CLOUDS = tuple(key for key, provider in PROVIDERS.items() if provider.scaled_by_openshift)
# Node groups with a higher priority are preferred; the autoscaler ignores negative ones (kubernetes/autoscaler, expander/priority/priority.go).
MAX_PRIORITY = 2**31 - 1


# The pattern of the CRD (openshift/cluster-autoscaler-operator, pkg/apis/autoscaling/v1), which accepts fewer notations than Go.
_CRD_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|µs|ms|s|m|h))+")
# The maximum of int32, the type of pod priorities in the CRD.
_INT32 = 2**31 - 1


def _duration(value: str) -> str | None:
    if not _CRD_DURATION.fullmatch(value):
        return "is not a duration; use numbers with units, such as 20m or 1h30m"
    return None


def _delay(doc: str) -> Text:
    return Text((_duration,), doc=doc)


# The CRD accepts only fractions below one, written as text (cluster-autoscaler-operator pkg/apis/autoscaling/v1).
_THRESHOLD = Text(
    (validators.matches(r"0\.[0-9]+", 'is not a fraction of a node; use a number below one in quotes, such as "0.4"'),),
    doc='A fraction of a node\'s resources or GPUs, such as V("0.4"). A node counts as unneeded if its pods request less than this fraction.',
)

AUTOSCALER = Section(
    doc="(MachineSets) Fields of OpenShift's ClusterAutoscaler. A run sets the declared fields, even in an existing ClusterAutoscaler. All other fields "
    "remain unchanged. In a new ClusterAutoscaler, the default delays are long enough for a driver installation.",
    default=None,
    fields={
        "max_nodes_total": integer_between(
            1,
            MAX_NODES,
            "a cluster has at least one node; set the total number of nodes, including control plane nodes",
            f"a cluster has at most {MAX_NODES} nodes; set a smaller number",
            doc="The maximum total number of nodes in the cluster.",
        ),
        "expanders": ListOf(
            doc="The expanders, in order of precedence. They determine which MachineSet is scaled up if a pod fits on the nodes of several MachineSets. "
            "If no expander is set, the autoscaler chooses at random. Requires OpenShift 4.16 or later.",
            default=None,
            item=Choice(known=EXPANDERS),
        ),
        "pod_priority_threshold": integer_between(
            -_INT32 - 1,
            _INT32,
            "pod priorities are 32-bit integers; set a larger number",
            "pod priorities are 32-bit integers; set a smaller number",
            doc="The lowest priority of the pods for which the autoscaler adds nodes.",
        ),
        "balance_similar_node_groups": Boolean(
            doc="Whether the autoscaler balances the number of nodes across similar MachineSets, such as those of different zones."
        ),
        "max_node_provision_time": _delay(
            "The maximum time that a new node may take to advertise its GPUs, such as V(30m). A node that takes longer is replaced. In a new "
            "ClusterAutoscaler, the default is V(30m)."
        ),
        "scale_down": Section(
            doc="Whether and when the autoscaler removes nodes.",
            default=None,
            fields={
                "enabled": Boolean(
                    doc="Whether the autoscaler removes nodes. In a new ClusterAutoscaler, the default is V(true)."
                ),
                "delay_after_add": _delay(
                    "The minimum time that must pass after a node is added before the autoscaler removes nodes. It must be longer than a driver "
                    "installation takes. In a new ClusterAutoscaler, the default is V(20m)."
                ),
                "delay_after_delete": _delay("The minimum time between node removals."),
                "delay_after_failure": _delay(
                    "The time that must pass after a failed removal before the autoscaler removes nodes again."
                ),
                "unneeded_time": _delay("How long a node must be unneeded before the autoscaler removes it."),
                "utilization_threshold": _THRESHOLD,
            },
        ),
        _VALUES: Anything(
            doc="Additional fields in C(spec) of the ClusterAutoscaler, such as C(logVerbosity). C(resourceLimits.gpus) is not allowed, because it is "
            "derived from the pools' C(autoscale) settings.",
            default=None,
            quotes_text=False,
        ),
    },
)

# The keys whose path in the spec of the ClusterAutoscaler cannot be derived from their name.
_OTHER_PATHS: dict[Path, Path] = {("max_nodes_total",): ("resourceLimits", "maxNodesTotal")}


def _option_paths(section: Section, prefix: Path = ()) -> t.Iterator[Path]:
    """The path of each key that has no keys below it; `values` is omitted."""
    for name, field in section.fields.items():
        if isinstance(field, Section):
            yield from _option_paths(field, (*prefix, name))
        elif name != _VALUES:
            yield (*prefix, name)


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


# The path of each key in the spec of the ClusterAutoscaler.
SPEC_PATHS: dict[Path, Path] = {
    keys: _OTHER_PATHS.get(keys, tuple(map(_camel_case, keys))) for keys in _option_paths(AUTOSCALER)
}
_MAPS = tuple(dict.fromkeys(path[0] for path in SPEC_PATHS.values() if len(path) > 1))
PRIORITY: Field = integer_between(
    0,
    MAX_PRIORITY,
    "the autoscaler ignores node groups with a negative priority; set 0 or more",
    "the autoscaler cannot read a number of this size; set a smaller one",
    doc="(MachineSets) Priority of the pool for the expander V(Priority). If a pod fits on the nodes of several pools, the autoscaler adds nodes to the "
    "pool with the highest priority. Requires the expander V(Priority), in C(gpu_cluster.autoscaler.expanders) or in an existing ClusterAutoscaler.",
)


def autoscaler_platform_problems(cluster: Object) -> Problems:
    """gpu_cluster.autoscaler needs a cloud whose node groups OpenShift's autoscaler scales; other clouds have their own autoscaler."""
    cloud = get_nested(cluster, "cloud")
    named = [key for key, value in cloud.items() if value is not None] if isinstance(cloud, dict) else []
    if get_nested(cluster, "autoscaler") is None or (len(named) == 1 and named[0] in _CLOUDS):
        return
    if not named:
        yield f"{_PATH}: has no effect without node groups; add cloud: {{{_CLOUDS[0]}: {{}}}} to gpu_cluster, or remove autoscaler"
    elif len(named) == 1:
        yield f"{_PATH}: configures OpenShift's autoscaler, but gpu_cluster.cloud is {named[0]}, which scales its node groups itself; remove it"


def autoscaler_value_problems(cluster: Object) -> Problems:
    """autoscaler.values must contain a map wherever the ClusterAutoscaler has one, and must not contain a field that is derived or has its own key."""
    values = get_nested(cluster, "autoscaler", _VALUES)
    if not isinstance(values, dict):
        return
    for name in _MAPS:
        if values.get(name) is not None and not isinstance(values[name], dict):
            yield f"{_PATH}.{_VALUES}.{name}: is {type_name(values[name])}, not a map; write it as `key: value` lines, or remove it"
    if get_nested(values, "resourceLimits", "gpus") is not None:
        yield f"{_PATH}.{_VALUES}.resourceLimits.gpus: cannot be set, because it is derived from autoscale.max of the pools; remove it"
    for keys, path in SPEC_PATHS.items():
        if get_nested(values, *path) is not None:
            yield f"{_PATH}.{_VALUES}.{'.'.join(path)}: has its own key; set {_PATH}.{'.'.join(keys)} instead"


def newer_key_problems(spec: Object, version: str) -> Problems:
    """The problems of declared fields that this version of OpenShift does not support; an unknown version counts as the newest."""
    release = release_of(version)
    for keys, since in AUTOSCALER_FIELDS_SINCE.items():
        if release < since and get_nested(spec, *SPEC_PATHS[keys]) is not None:
            yield (
                f"{_PATH}.{'.'.join(keys)}: is not supported by OpenShift {version}; it was added in {since[0]}.{since[1]}; remove it, or upgrade OpenShift"
            )


def priority_problems(cluster: t.Any, pool: PoolVariables, cloud: str) -> Problems:
    """autoscale.priority needs OpenShift's autoscaler with the expander Priority, because nothing else reads it."""
    priority = get_nested(pool.declared, "autoscale", "priority")
    if priority is None:
        return
    path = f"{pool.path}.autoscale.priority"
    if cloud not in _CLOUDS:
        yield f"{path}: is read only by OpenShift's autoscaler, but gpu_cluster.cloud is {cloud}; remove it"
        return
    expanders = get_nested(cluster, "autoscaler", "expanders")
    if (
        isinstance(expanders, list)
        and PRIORITY_EXPANDER not in expanders
        and all(each in EXPANDERS for each in expanders)
    ):
        yield (
            f"{path}: {quote(priority)} has no effect, because {_PATH}.expanders is {join_words(map(str, expanders)) if expanders else 'empty'}; add "
            f"{PRIORITY_EXPANDER} to it, or remove priority"
        )


def expander_problems(cluster: Object) -> Problems:
    """Each expander must be listed only once, because the CRD rejects duplicates."""
    expanders = get_nested(cluster, "autoscaler", "expanders")
    known = [each for each in expanders if isinstance(each, str)] if isinstance(expanders, list) else []
    for name in sorted({name for name in known if known.count(name) > 1}):
        yield f"{_PATH}.expanders: contains {name} more than once; list each expander once"


AUTOSCALER_CHECKS = (autoscaler_platform_problems, autoscaler_value_problems, expander_problems)
