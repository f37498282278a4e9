# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node as the API server describes it, selectors of nodes, and the distribution that they show (pure)."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ..catalog import models, names
from ..catalog.distributions import BY_NAME, DISTRIBUTIONS, Distribution
from ..catalog.mig import RESOURCE_PREFIX
from ..catalog.openshift import OPENSHIFT
from ..catalog.operands import is_foreign_gpu_resource, is_unknown_gpu_resource
from ..core.messages import abbreviate
from ..pools.plan import NodeFacts
from ..sharing_modes.mig_parted import DISABLED

# Parses the labels, taints and status of Node objects.

DRIVER = "nvidia.com/cuda.driver-version.full"
DRIVER_PARTS = tuple(f"nvidia.com/cuda.driver.{part}" for part in ("major", "minor", "rev"))
_CUDA = "nvidia.com/cuda.runtime-version.full"
_CUDA_PARTS = tuple(f"nvidia.com/cuda.runtime.{part}" for part in ("major", "minor"))
_COMPUTE_PARTS = tuple(f"nvidia.com/gpu.compute.{part}" for part in ("major", "minor"))
# The suffixes for sharing and MIG in GFD's product name (k8s-device-plugin internal/lm).
_SUFFIX = re.compile(r"(-MIG-[A-Za-z0-9.+]+)?(-SHARED)?$")

# Under the MIG strategy mixed, GFD labels each profile.
_MIG_COUNT = re.compile(r"nvidia\.com/mig-(\d+g\..+)\.count")
_TEXTS: dict[str, str] = {}
_MAX_TEXTS = 200_000


@dataclass(frozen=True)
class Node(NodeFacts):
    """The parsed data of a Node object; counts are never None."""

    annotations: t.Mapping[str, str] = field(default_factory=dict)
    taints: tuple[t.Mapping[str, t.Any], ...] = ()
    allocatable: t.Mapping[str, int] = field(default_factory=dict)
    capacity: t.Mapping[str, int] = field(default_factory=dict)
    resource_version: str = ""
    ready: bool = False
    unschedulable: bool = False
    boot_id: str = ""
    # In RFC 3339 format, so alphabetical order is chronological.
    created: str = ""
    provider_id: str = ""
    addresses: tuple[str, ...] = ()
    kubelet_version: str = ""
    # For example, containerd://2.1.4.
    container_runtime: str = ""
    os_image: str = ""
    # The resources that another device plugin offers and that represent GPUs or, if the plugin is unknown, may represent them.
    foreign_resources: tuple[str, ...] = ()

    @property
    def model(self) -> str:
        """GFD's product name without the suffixes for sharing and MIG; empty before discovery."""
        return _SUFFIX.sub("", self.product)

    @property
    def catalog_model(self) -> models.Model | None:
        """The catalog's model of the node's GPUs."""
        return models.of_gpu(self.product, None if self._labels_describe_devices else self._labeled_memory)

    @property
    def gpus(self) -> int:
        """The GPUs that GFD counts: physical GPUs, or MIG devices under the MIG strategy single; 0 before discovery."""
        return to_count(self.labels.get(names.COUNT_LABEL))

    @property
    def recorded_gpus(self) -> int:
        """The number of physical GPUs, recorded before they were partitioned; 0 if nothing is recorded."""
        return to_count(self.annotations.get(names.GPUS_ANNOTATION))

    @property
    def mig_config(self) -> str:
        """The desired MIG configuration of the node; empty if it is not set."""
        return self.labels.get(names.MIG_CONFIG_LABEL, "")

    @property
    def mig_state(self) -> str:
        """The MIG manager's state for mig_config: pending, rebooting, success or failed; empty until the MIG manager has processed the configuration."""
        return self.labels.get(names.MIG_STATE_LABEL, "")

    @property
    def replicas(self) -> int:
        """The number of shares of each GPU, according to GFD's label; 0 without the label."""
        return to_count(self.labels.get(names.REPLICAS_LABEL))

    @property
    def mig_devices(self) -> dict[str, int]:
        """The MIG devices by profile, from GFD's labels under either strategy (with a dot instead of `+`)."""
        if self._labels_describe_devices:
            profile = self.product.partition(names.MIG_INFIX)[2].removesuffix(names.SHARED_SUFFIX)
            return {profile: self.gpus} if self.gpus else {}
        return {
            match[1]: count
            for key, value in self.labels.items()
            if key.startswith("nvidia.com/mig-") and (match := _MIG_COUNT.fullmatch(key)) and (count := to_count(value))
        }

    @property
    def is_partitioned(self) -> bool:
        """Whether the node offers MIG devices, or its label requests a MIG configuration with devices."""
        return (
            bool(self.mig_devices)
            or self.mig_config not in ("", DISABLED)
            or any(count and name.startswith(RESOURCE_PREFIX) for name, count in self.capacity.items())
        )

    @property
    def mode(self) -> str:
        """GFD's sharing strategy; empty before discovery."""
        return self.labels.get(names.STRATEGY_LABEL, "")

    @property
    def memory_mib(self) -> int:
        """The memory of one physical GPU in MiB; 0 before discovery, and under the MIG strategy single for models that are not in the catalog."""
        if self._labels_describe_devices:
            return self.catalog_model.memory_mib if self.catalog_model else 0
        return self._labeled_memory

    @property
    def _labels_describe_devices(self) -> bool:
        """Whether GFD's labels contain the number and memory of MIG devices instead of GPUs, which is the case under the MIG strategy single."""
        return names.MIG_INFIX in self.product

    @property
    def _labeled_memory(self) -> int:
        return to_count(self.labels.get(names.MEMORY_LABEL))

    @property
    def driver(self) -> str:
        """The driver's version; empty before discovery."""
        return self.labels.get(DRIVER) or self._joined(DRIVER_PARTS)

    @property
    def cuda(self) -> str:
        """The newest CUDA version that the driver supports; empty before discovery."""
        return self.labels.get(_CUDA) or self._joined(_CUDA_PARTS)

    @property
    def compute(self) -> str:
        """The compute capability of the node's GPUs; empty before discovery."""
        return self._joined(_COMPUTE_PARTS)

    def _joined(self, keys: t.Iterable[str]) -> str:
        return ".".join(self.labels[key] for key in keys if key in self.labels)

    @property
    def discovered(self) -> bool:
        """Whether GFD has labeled the node's GPU."""
        return self.has_gpu and names.PRODUCT_LABEL in self.labels

    @property
    def has_nfd_labels(self) -> bool:
        """Whether NFD has labeled the node."""
        return any(key.startswith(names.NFD_PREFIX) for key in self.labels)

    def has_taint(self, key: str) -> bool:
        """Whether the node has a taint with this key, regardless of value and effect."""
        return any(taint.get("key") == key for taint in self.taints)


def parse_node(raw: t.Mapping[str, t.Any]) -> Node:
    """Parse a Node object from the API; missing fields are empty."""
    metadata = raw.get("metadata") or {}
    spec = raw.get("spec") or {}
    status = raw.get("status") or {}
    info = status.get("nodeInfo") or {}
    return Node(
        name=metadata.get("name", ""),
        labels=_shared(metadata.get("labels")),
        annotations=_shared(metadata.get("annotations")),
        taints=tuple(spec.get("taints") or ()),
        allocatable=_gpu_counts(status.get("allocatable")),
        capacity=_gpu_counts(status.get("capacity")),
        resource_version=metadata.get("resourceVersion", ""),
        ready=ready_condition(raw).get("status") == "True",
        unschedulable=bool(spec.get("unschedulable")),
        created=metadata.get("creationTimestamp") or "",
        provider_id=spec.get("providerID") or "",
        addresses=tuple(entry.get("address", "") for entry in status.get("addresses") or ()),
        boot_id=info.get("bootID", ""),
        kubelet_version=info.get("kubeletVersion", ""),
        container_runtime=info.get("containerRuntimeVersion", ""),
        os_image=info.get("osImage", ""),
        foreign_resources=tuple(
            sorted(
                name
                for name, amount in (status.get("capacity") or {}).items()
                if amount != "0" and (is_foreign_gpu_resource(name) or is_unknown_gpu_resource(name))
            )
        ),
    )


def ready_condition(item: t.Mapping[str, t.Any]) -> t.Mapping[str, t.Any]:
    """The condition Ready of a Node or Pod object; empty if it has none yet."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == "Ready"), {})


def _shared(texts: t.Mapping[str, str] | None) -> dict[str, str]:
    """A copy of the map in which equal strings share memory, because thousands of nodes have mostly the same labels."""
    # sys.intern() is not used, because Ansible replaces it.
    share = _TEXTS.setdefault
    if len(_TEXTS) > _MAX_TEXTS:
        _TEXTS.clear()
    return {share(key, key): share(value, value) for key, value in (texts or {}).items()}


def to_count(text: t.Any) -> int:
    """The number in a label or a quantity; 0 if it is not a number."""
    try:
        return int(text)
    except (TypeError, ValueError):
        return 0


def _gpu_counts(resources: t.Mapping[str, t.Any] | None) -> dict[str, int]:
    return {name: to_count(value) for name, value in (resources or {}).items() if name.startswith("nvidia.com/")}


# Evaluates selectors locally, in the notations of kubectl and of objects, so that one list request is sufficient for any number of selectors (pure).

_REQUIREMENT = re.compile(
    r"""\s*(?:
        !\s*(?P<absent>[^\s,()!=<>]+)
      | (?P<key>[^\s,()!=<>]+)\s*(?:
            (?P<equal>==?|!=)\s*(?P<value>[^\s,()!=<>]*)
          | \s(?P<set>in|notin)\s*\((?P<members>[^()]*)\)
        )?
    )\s*(?:,|$)""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Requirement:
    """One condition; if `members` is None, it concerns only whether the key exists."""

    key: str
    negative: bool
    members: tuple[str, ...] | None = None

    def is_met(self, labels: t.Mapping[str, str]) -> bool:
        """Whether the labels meet the condition; as in the API server, a missing key meets a negative condition."""
        if self.members is None:
            return (self.key in labels) is not self.negative
        return (labels.get(self.key) in self.members) is not self.negative


def selects(selector: t.Mapping[str, t.Any], labels: t.Mapping[str, str]) -> bool:
    """Whether a selector in the notation of objects (matchLabels, matchExpressions) selects these labels. An empty selector selects nothing here."""
    equal, rules = selector.get("matchLabels") or {}, selector.get("matchExpressions") or ()
    return (
        bool(equal or rules)
        and all(labels.get(key) == value for key, value in equal.items())
        and all(rule_matches(rule, labels) for rule in rules)
    )


def term_matches(term: t.Mapping[str, t.Any], labels: t.Mapping[str, str], name: str) -> bool:
    """Whether a term of a required node affinity matches a node with these labels and this name. An empty term matches no node."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    return bool(expressions or fields) and (
        all(rule_matches(rule, labels) for rule in expressions)
        and all(rule_matches(rule, {"metadata.name": name}) for rule in fields)
    )


def rule_matches(rule: t.Mapping[str, t.Any], labels: t.Mapping[str, str]) -> bool:
    """Whether labels meet one of matchExpressions; as in the API server, a missing key meets a negative rule."""
    value, operands = labels.get(str(rule.get("key"))), rule.get("values") or []
    operator = rule.get("operator")
    if operator in ("Exists", "DoesNotExist"):
        return bool((value is not None) == (operator == "Exists"))
    if operator == "NotIn":
        return value not in operands
    if operator == "In" or value is None:
        return value is not None and value in operands
    try:
        return int(value) > int(operands[0]) if operator == "Gt" else int(value) < int(operands[0])
    except (ValueError, IndexError):
        return False


def parse_selector(text: str) -> list[Requirement]:
    """The conditions of a selector, all of which a node must meet; raises ValueError with the position of the first error."""
    requirements: list[Requirement] = []
    position = 0
    while position < len(text.rstrip()):
        match = _REQUIREMENT.match(text, position)
        if match is None:
            raise ValueError(
                f"is not a label selector: there is an error at {text[position:].strip()!r}; use the syntax of kubectl"
            )
        requirements.append(_requirement(match))
        position = match.end()
    return requirements


def _requirement(match: re.Match[str]) -> Requirement:
    if match["absent"]:
        return Requirement(match["absent"], negative=True)
    if match["equal"]:
        return Requirement(match["key"], match["equal"] == "!=", (match["value"],))
    if match["set"]:
        members = tuple(member.strip() for member in match["members"].split(","))
        return Requirement(match["key"], match["set"] == "notin", members)
    return Requirement(match["key"], negative=False)


# Recognizes the Kubernetes distribution of nodes by their labels and by the versions that their kubelets report (pure).
#
# Kubelet versions have a suffix, as in v1.33.5+k3s1, v1.33.5+rke2r1 and v1.33.4+k0s.0. MicroK8s labels its nodes with microk8s.io/cluster=true
# (documentation of microk8s-addons and launcher). The only mark of a kubeadm node is the annotation with its CRI socket, which kubeadm v1.36 no
# longer writes.

CONTAINERD = "containerd://"


def distribution_of(node: Node) -> Distribution | None:
    """The distribution of a node; None if nothing identifies it."""
    suffix = node.kubelet_version.partition("+")[2]
    for each in DISTRIBUTIONS:
        if each.version_suffix and suffix.startswith(each.version_suffix):
            return each
    for each in DISTRIBUTIONS:
        if each.has_label(node.labels):
            return each
    return next((each for each in DISTRIBUTIONS if each.annotation in node.annotations), None)


def is_openshift(node: Node) -> bool:
    """Whether a node belongs to an OpenShift cluster."""
    distribution = distribution_of(node)
    return distribution is not None and distribution.name == OPENSHIFT


def other_nodes(declared: Distribution, nodes: t.Iterable[Node]) -> list[Node]:
    """The nodes that do not belong to this distribution, except nodes whose kubelet has not reported its version.

    A node whose distribution is unknown is included only if all nodes of the declared distribution have a mark.
    """
    return [
        node
        for node in nodes
        if node.kubelet_version
        and (distribution := distribution_of(node)) is not declared
        and (distribution is not None or bool(declared.mark))
    ]


def contradiction(declared: Distribution, nodes: t.Iterable[Node]) -> str:
    """The warning that nodes do not belong to the declared distribution; empty if all nodes belong to it."""
    others = other_nodes(declared, nodes)
    if not others:
        return ""
    shown = abbreviate(sorted(f"{node.name} ({_describe(node)})" for node in others))
    mark = f", which is recognized by a {declared.mark}" if declared.mark else ""
    return (
        f"gpu_cluster.distribution is {declared.name}, but {len(others)} node(s) are not recognized as {declared.title}{mark}: {shown}. With settings for "
        "a different distribution, the container toolkit does not find containerd; correct or remove gpu_cluster.distribution"
    )


def _describe(node: Node) -> str:
    distribution = distribution_of(node)
    return f"{f'{distribution.title}, ' if distribution else ''}kubelet {node.kubelet_version}"


def distributions_of(nodes: t.Iterable[Node]) -> dict[str, list[str]]:
    """Node names by distribution name, in the order of the catalog; nodes of an unknown distribution are listed under an empty name."""
    by_distribution: dict[str, list[str]] = {}
    for node in nodes:
        distribution = distribution_of(node)
        by_distribution.setdefault(distribution.name if distribution else "", []).append(node.name)
    order = [*BY_NAME, ""]
    return {name: sorted(by_distribution[name]) for name in sorted(by_distribution, key=order.index)}
