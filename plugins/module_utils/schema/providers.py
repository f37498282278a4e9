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


_DURATION = Text((_duration,))
# The CRD accepts only fractions below one, written as text (cluster-autoscaler-operator pkg/apis/autoscaling/v1).
_THRESHOLD = Text(
    (validators.matches(r"0\.[0-9]+", 'is not a fraction of a node; use a number below one in quotes, such as "0.4"'),)
)

AUTOSCALER = Section(
    default=None,
    fields={
        "max_nodes_total": integer_between(
            1,
            MAX_NODES,
            "a cluster has at least one node; set the total number of nodes, including control plane nodes",
            f"a cluster has at most {MAX_NODES} nodes; set a smaller number",
        ),
        "expanders": ListOf(default=None, item=Choice(known=EXPANDERS)),
        "pod_priority_threshold": integer_between(
            -_INT32 - 1,
            _INT32,
            "pod priorities are 32-bit integers; set a larger number",
            "pod priorities are 32-bit integers; set a smaller number",
        ),
        "balance_similar_node_groups": Boolean(),
        "max_node_provision_time": _DURATION,
        "scale_down": Section(
            default=None,
            fields={
                "enabled": Boolean(),
                "delay_after_add": _DURATION,
                "delay_after_delete": _DURATION,
                "delay_after_failure": _DURATION,
                "unneeded_time": _DURATION,
                "utilization_threshold": _THRESHOLD,
            },
        ),
        _VALUES: Anything(default=None, quotes_text=False),
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
