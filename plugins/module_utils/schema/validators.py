# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of single declared values, of labels that select nodes, and of how a change is rolled out."""

from __future__ import annotations

import dataclasses
import math
import re
import typing as t
import urllib.parse

from ..catalog import models, names, secrets, taints
from ..catalog.names import (
    DEPLOY_PREFIX,
    DISCOVERY_DEPLOY_LABEL,
    OPERANDS_LABEL,
    PLUGIN_DEPLOY_LABEL,
    VGPU_CONFIG_LABEL,
    WORKLOAD_LABEL,
)
from ..catalog.releases import SYSTEMS
from ..core.messages import is_whole, join_words, quote, type_name
from ..core.types import (
    MAX_NODES,
    Boolean,
    Choice,
    Integer,
    ListOf,
    Rule,
    Section,
    Text,
    integer_between,
    unrendered_template,
)
from ..kube.connection_options import is_kubeconfig_text
from ..sharing_modes.mig import PROFILE

# The node labels by which users select the GPU operator's operands, and their effects (pure).
#
# Source: gpu-operator v25.10.1 controllers/state_manager.go (gpuStateLabels, getWorkloadConfig, hasOperandsDisabled).

Labels = t.Mapping[str, str]

WORKLOADS = ("container", "vm-passthrough", "vm-vgpu")
VIRTUAL_MACHINES = ("vm-passthrough", "vm-vgpu")
_SWITCHES = ("true", "false")
# The operator sets these only on nodes for virtual machines.
_SANDBOX_LABELS = tuple(f"{DEPLOY_PREFIX}sandbox-{name}" for name in ("device-plugin", "validator"))


def is_for_users(key: str) -> bool:
    """Whether users may set this NVIDIA label."""
    return key in (WORKLOAD_LABEL, VGPU_CONFIG_LABEL) or key.startswith(DEPLOY_PREFIX)


def invalid_value(key: str, value: str) -> str | None:
    """The reason why the value is invalid for this label; None if it is valid."""
    if key == WORKLOAD_LABEL and value not in WORKLOADS:
        return f"is not a valid value; use {', '.join(WORKLOADS[:-1])} or {WORKLOADS[-1]}"
    if key.startswith(DEPLOY_PREFIX) and value not in _SWITCHES:
        return 'is not a valid value; use "true" or "false"'
    return None


def reason_without_discovery(labels: Labels) -> str:
    """The reason why gpu-feature-discovery never labels a node with these labels; empty if it may label the node."""
    for key in (OPERANDS_LABEL, DISCOVERY_DEPLOY_LABEL):
        if labels.get(key) == "false":
            return f"label {key}=false keeps gpu-feature-discovery away"
    if labels.get(WORKLOAD_LABEL) in VIRTUAL_MACHINES:
        return f"label {WORKLOAD_LABEL}={labels[WORKLOAD_LABEL]} assigns its GPUs to virtual machines"
    if DISCOVERY_DEPLOY_LABEL not in labels and any(labels.get(key) == "true" for key in _SANDBOX_LABELS):
        return "the GPU operator prepares its GPUs for virtual machines (sandboxWorkloads.defaultWorkload of the ClusterPolicy)"
    return ""


def reason_without_containers(labels: Labels) -> str:
    """The reason why a node with these labels offers no GPU to containers; empty if it may offer one."""
    if labels.get(PLUGIN_DEPLOY_LABEL) == "false":
        return f"label {PLUGIN_DEPLOY_LABEL}=false keeps the device plugin away"
    return reason_without_discovery(labels)


# The conditions of a pool's `match`, converted from all its notations to one form.


@dataclasses.dataclass(frozen=True)
class Match:
    """The conditions under which existing nodes belong to a pool; `model` is a catalog key, `products` contains GFD's bare product names."""

    model: str | None
    product: str | None
    products: tuple[str, ...]
    labels: dict[str, str]

    @property
    def pins_only(self) -> bool:
        """Whether only nodes with the pool's own label belong to it."""
        return not self.products and not self.labels


def resolve_match(match: t.Mapping[str, t.Any]) -> Match:
    """The conditions of a valid `match`; `model` is None if the catalog does not contain it.

    A model that is not in the catalog is matched by GFD's product label. Sharing adds suffixes to this label; they are ignored, as for a
    model of the catalog.
    """
    labels = dict(match.get("labels") or {})
    name = match.get("model") or labels.pop(names.PRODUCT_LABEL, None)
    model = models.find(name) if name else None
    if model:
        return Match(model=model.key, product=model.product, products=model.products, labels=labels)
    bare = models.bare_product(name) if name else None
    return Match(model=None, product=bare, products=(bare,) if bare else (), labels=labels)


class MatchTerms(t.NamedTuple):
    """The conditions of a match, in a form that can be compared with another match."""

    products: frozenset[str]
    labels: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, match: Match) -> MatchTerms:
        """The terms of a match, with one spelling for each product."""
        return cls(frozenset(map(models.normalized, match.products)), frozenset(match.labels.items()))

    def implies(self, other: MatchTerms) -> bool:
        """Whether every node that meets these conditions also meets the other conditions."""
        products = not other.products or (bool(self.products) and self.products <= other.products)
        return products and other.labels <= self.labels


# Rules for single values; each returns the problem and the remedy, as the end of the sentence "<path>: <value> ...".
#
# The docstring or comment of a rule describes the values that it accepts.

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_CHART_NAME = re.compile(r"[a-z0-9]([-a-z0-9._]*[a-z0-9])?")
_IMAGE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]+)?(/[A-Za-z0-9][A-Za-z0-9._-]*)*(:[A-Za-z0-9_][A-Za-z0-9._-]*|@sha256:[0-9a-f]{64})"
)
_REGISTRY_HOST = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]+)?")
_REGISTRY_FOLDER = re.compile(r"[a-z0-9]+([._-]+[a-z0-9]+)*")
_REGISTRY_SCHEMES = ("http", "https", "oci", "docker")
# A single number is the branch of a precompiled driver.
_DRIVER_VERSION = re.compile(r"[1-9][0-9]*(\.[0-9]+){0,2}|sha256:[0-9a-f]{64}")
# The suffix that the operator appends to a driver's tag: ID and VERSION_ID of the node's operating system (gpu-operator
# controllers/object_controls.go, resolveDriverTag), as in rhcos4.18, rhel9.6 or ubuntu22.04.
_DRIVER_OS_TAG = re.compile(rf"(?P<bare>[\w.-]+?)-(?P<system>({'|'.join(system.name for system in SYSTEMS)})[0-9.X]*)")
_LETTERS = "a-z, A-Z, 0-9, '-', '_' and '.', with a letter or digit at both ends"
_PATH_STARTS = ("/", "./", "../", "~")
# Labels in Kubernetes' namespaces that a kubelet may set on its own node ("NodeRestriction"). Magnum 23 refuses other
# labels (magnum/api/controllers/v1/nodegroup.py); with older releases, the kubelet does not start with them.
_KUBELET_PREFIXES = ("kubelet.kubernetes.io/", "node.kubernetes.io/")
_KUBELET_LABELS = frozenset(
    {
        *(f"beta.kubernetes.io/{name}" for name in ("arch", "instance-type", "os")),
        *(f"failure-domain.beta.kubernetes.io/{name}" for name in ("region", "zone")),
        *(f"kubernetes.io/{name}" for name in ("arch", "hostname", "os")),
        *(f"topology.kubernetes.io/{name}" for name in ("region", "zone")),
    }
)
# IsEnvVarName of k8s.io/apimachinery pkg/util/validation.
# Plain strings that Helm reads as numbers, after it has removed underscores (go-yaml resolve.go: yamlStyleFloat, and strconv.ParseInt with base 0), and those
# that PyYAML quotes because it reads them as numbers (PyYAML resolver.py).
_HELM_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_HELM_INTEGER = re.compile(r"[-+]?0([oO][0-7]+|[xX][0-9a-fA-F]+|[bB][01]+)")
_QUOTED_NUMBER = re.compile(
    r"[-+]?(0|[1-9][0-9_]*|0[0-7_]+|0b[01_]+|0x[0-9a-fA-F_]+)|([-+]?[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+][0-9]+)?"
)
_VARIABLE_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*", re.ASCII)
_IMAGE_NAME = re.compile(r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*")
_NO_SECRET = (
    "contains a secret, which would be readable on the command line of helm; remove it from the address, and log in before the run "
    "(helm registry login, helm repo add), or download the chart and set its path"
)

# The writers of these labels; a pool that also sets them would conflict with the writers.
_LABEL_OWNERS = (
    (names.OWN_PREFIX, "this collection writes it"),
    ("cluster-api/accelerator", "this collection writes it on MachineSets, from model and sharing"),
    ("nvidia.com/", "NVIDIA's operands write it"),
    (names.NFD_PREFIX, "NFD writes it"),
    ("kubernetes.io/hostname", "the kubelet writes it"),
    ("kubernetes.io/os", "the kubelet writes it"),
    ("kubernetes.io/arch", "the kubelet writes it"),
)
_TAINT_OWNERS = ((names.OWN_PREFIX, "this collection writes it"),)


def matches(pattern: str, problem: str) -> Rule:
    """A rule that rejects text that does not match the pattern."""
    compiled = re.compile(pattern)
    return lambda value: None if compiled.fullmatch(value) else problem


# A profile in nvidia-smi's notation; whether a GPU supports it is checked with the whole pool.
mig_profile = matches(PROFILE.pattern, "is not a MIG profile; write it as nvidia-smi mig -lgip does, such as 3g.20gb")
# One exact version, because a range would allow automatic upgrades.
release_version = matches(
    r"v?[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?",
    "is not an exact version; use a full version, such as v25.10.1 (no range)",
)
# The address of an API, without user and password, because other users could read them.
http_address = matches(r"https?://[^\s/@]+(/\S*)?", "is not an address; use https://host, without user and password")
# The UID of an object, as the API server assigns it (RFC 4122).
uid = matches(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "is not a UID; kubectl get namespace kube-system -o jsonpath='{.metadata.uid}' shows it",
)


def dns_label(value: str) -> str | None:
    """A DNS label (RFC 1123): the name of a namespace, or of a pool, whose name becomes a label's value."""
    if len(value) > 63:
        return f"has {len(value)} characters; a DNS label has at most 63"
    if _DNS_LABEL.fullmatch(value):
        return None
    corrected = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")
    example = f", for example {corrected}" if corrected and secrets.is_quotable(value) else ""
    return f"is not a DNS label (RFC 1123); use a-z, 0-9 and '-', with a letter or digit at both ends{example}"


def release_name(value: str) -> str | None:
    """A DNS label within Helm's limit for the names of releases, because the names of a release's objects begin with it."""
    return dns_label(value) or (f"has {len(value)} characters; Helm allows 53" if len(value) > 53 else None)


def label_key(value: str) -> str | None:
    """Kubernetes' qualified name: an optional DNS prefix, a slash, and a name of at most 63 characters."""
    prefix, slash, name = value.rpartition("/")
    if slash and not (_DNS_SUBDOMAIN.fullmatch(prefix) and len(prefix) <= 253):
        return "is not a label key; the part before '/' must be a DNS name such as example.com"
    if not _QUALIFIED.fullmatch(name) or len(name) > 63:
        return f"is not a label key; use at most 63 of {_LETTERS}"
    return None


def label_value(value: str) -> str | None:
    """The value of a Kubernetes label, which may be empty."""
    if len(value) > names.LABEL_LENGTH:
        return f"has {len(value)} characters; a label's value has at most {names.LABEL_LENGTH}"
    if value and not _QUALIFIED.fullmatch(value):
        return f"is not a valid label value; use {_LETTERS}"
    return None


def kubelet_label(value: str) -> str | None:
    """A label that a kubelet may set on its own node, because the kubelet sets the labels of a node group."""
    reserved = re.match(r"([^/]+\.)?(kubernetes|k8s)\.io/", value)
    if not reserved or value in _KUBELET_LABELS or value.startswith(_KUBELET_PREFIXES):
        return None
    return (
        "is in a Kubernetes namespace that a kubelet must not use, so nodes with this label would not start; choose your own key, such as "
        "example.com/team"
    )


def _reserved(owners: tuple[tuple[str, str], ...], value: str, remedy: str) -> str | None:
    for start, owner in owners:
        if value == start or (start.endswith("/") and value.startswith(start)):
            return f"is reserved: {owner}; choose your own key, {remedy}"
    return None


def unowned_label(value: str) -> str | None:
    """A label that a pool may set on its nodes."""
    return None if is_for_users(value) else _reserved(_LABEL_OWNERS, value, "such as example.com/team")


def unowned_taint(value: str) -> str | None:
    """A taint that a pool may set on its nodes."""
    reason = taints.temporary_reason(value)
    if reason:
        return f"is reserved: {reason}, but a pool's taints are kept; omit it, or choose your own key, such as nvidia.com/gpu"
    return _reserved(_TAINT_OWNERS, value, "or nvidia.com/gpu")


def stays_text_in_helm(value: str) -> str | None:
    """A string that Helm's values keep as a string. Ansible writes the values with PyYAML, which does not quote some strings that Helm reads as other types."""
    if value in ("y", "Y", "n", "N"):
        return "becomes a boolean in Helm's values; choose a different one, such as yes"
    digits = value.replace("_", "") if value[:1] != "_" else ""
    is_finite = _HELM_NUMBER.fullmatch(digits) and math.isfinite(float(digits))
    if (is_finite or _HELM_INTEGER.fullmatch(digits)) and not _QUOTED_NUMBER.fullmatch(value):
        return "becomes a number in Helm's values; choose a different text"
    return None


def not_the_pool_label(value: str) -> str | None:
    """A label without the prefix accel.gpu/, because a node with the label accel.gpu/pool belongs to that pool regardless of `match`."""
    if value.startswith(names.OWN_PREFIX):
        return "cannot be matched: this collection sets the labels that begin with accel.gpu/; omit it"
    return None


def known_model(value: str) -> str | None:
    """A model of the catalog, by any of its names."""
    if models.find(value):
        return None
    if models.vgpu_memory_mib(value) is not None:
        return (
            "is a vGPU type, and models are those of physical GPUs; match a vGPU by its type instead, with match.labels: "
            f"{{{names.PRODUCT_LABEL}: {value}}}"
        )
    similar = models.nearest(value)
    hint = (
        f"did you mean {join_words(similar, 'or')}?"
        if similar
        else f"known: {', '.join(m.key for m in models.MODELS)}."
    )
    return f"is not a GPU model in the catalog; {hint} Match other models by labels: {names.PRODUCT_LABEL}"


def not_in_defaults(remedy: str) -> Rule:
    """A rule that rejects a value that must be unique to each pool or node group."""
    return lambda value: f"cannot be set in the defaults; {remedy}"


def is_bare_chart(value: str) -> bool:
    """Whether the text is only a chart's name, which must be looked up in a repository."""
    return bool(_CHART_NAME.fullmatch(value)) and ".tgz" not in value


def chart(value: str) -> str | None:
    """A chart in one of its four forms: a name, an OCI reference, an address, or a path."""
    if secrets.address_holds_a_secret(value):
        return _NO_SECRET
    local = value.startswith(_PATH_STARTS) or (".tgz" in value and "://" not in value)
    remote = re.fullmatch(r"(oci|https?)://[^\s/]+/\S+", value)
    if local or remote or is_bare_chart(value):
        return None
    forms = (
        "a name (with chart_repo), oci://registry/chart, an https:// address, or a path that begins with / ./ ../ or ~"
    )
    return f"is not a chart; use {forms}"


def chart_repo(value: str) -> str | None:
    """The address of a Helm repository; empty means none."""
    if secrets.address_holds_a_secret(value):
        return _NO_SECRET
    if not value or re.fullmatch(r"https?://[^\s/]+\S*", value):
        return None
    if value.startswith("oci://"):
        return "is a registry, not a repository; put the whole oci:// reference in chart and omit chart_repo"
    return "is not the address of a Helm repository; it begins with https://"


def image(value: str) -> str | None:
    """An image with its tag or digest, because CUDA images have no tag `latest`."""
    if "://" not in value and _IMAGE.fullmatch(value) and ":" in value.rpartition("/")[2]:
        return None
    return "is not an image with a tag or digest; write it as registry/name:tag, without https://"


def cuda_version(value: str) -> str | None:
    """A CUDA version with major and minor number."""
    if re.fullmatch(r"\d{1,2}\.\d{1,2}", value, re.ASCII):
        return None
    return 'is not a CUDA version; write its first two numbers in quotes, such as "12.5"'


def variable_name(value: str) -> str | None:
    """The name of a container's environment variable."""
    if _VARIABLE_NAME.fullmatch(value):
        return None
    return "is not the name of an environment variable; use letters, digits, underscores, dots and hyphens, and no digit at the start"


def image_name(value: str) -> str | None:
    """The name of an image below its repository, without tag and digest."""
    if _IMAGE_NAME.fullmatch(value):
        return None
    return "is not the name of an image; write it without registry, tag and digest, such as driver"


def kubeconfig_path(value: str) -> str | None:
    """A file on the machine that runs the tasks; never the content, which contains secrets."""
    if is_kubeconfig_text(value):
        return "contains the content of a kubeconfig; write it to a file and set the path of that file"
    if "://" in value:
        return "is an address; set the path to a kubeconfig file (or use the modules' option host)"
    if value and not value.startswith(("/", "~")):
        # Modules and Helm do not always start in the same folder, so each could find a different file.
        return 'is a relative path; use an absolute path, ~/... or "{{ inventory_dir }}/..."'
    return None


def object_name(value: str) -> str | None:
    """The name of a ConfigMap or Secret: a DNS subdomain of at most 253 characters (RFC 1123)."""
    if len(value) > 253:
        return f"has {len(value)} characters; an object's name has at most 253"
    if _DNS_SUBDOMAIN.fullmatch(value):
        return None
    return "is not an object's name (RFC 1123); use a-z, 0-9, '-' and '.', with a letter or digit at both ends"


def registry(value: str) -> str | None:
    """A registry and optionally a path; the images' paths below nvcr.io and registry.k8s.io are appended."""
    if "://" in value:
        scheme = value.partition("://")[0]
        unwanted = f"{scheme}://" if scheme in _REGISTRY_SCHEMES else "a scheme"
        return f"is an address; write it without {unwanted}, as in registry.example.com/mirror"
    host, *folders = value.split("/")
    if host.startswith("sha256:"):
        return "is a digest of an image; write the registry, as in registry.example.com/mirror"
    if _REGISTRY_HOST.fullmatch(host) and ("." in host or ":" in host or host == "localhost"):
        invalid = next((folder for folder in folders if not _REGISTRY_FOLDER.fullmatch(folder)), None)
        if invalid is None:
            return None
        if not invalid:
            return "has an empty path component; write it without '//' and without '/' at its end"
        return f"has the path component {quote(invalid)}; components are lower-case letters and digits, with '.', '_' or '-' between them"
    return "is not a registry; write host[:port] and the path below it, as in registry.example.com/mirror"


def proxy_url(value: str) -> str | None:
    """The address of a proxy, without a user and password, which would be readable in the ClusterPolicy."""
    try:
        parts = urllib.parse.urlsplit(value)
        host, dummy = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or any(character.isspace() for character in value):
        return "is not a proxy's address; write it as http://host:port"
    if "@" in parts.netloc:
        return (
            "contains a user or password, which would be readable in the ClusterPolicy; "
            "store the variable in a Secret, and name the Secret in driver.secret_env"
        )
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        return "has a path; a proxy is a host and a port, as in http://host:port"
    return None


def no_proxy_entry(value: str) -> str | None:
    """One host, domain or network that is reached directly."""
    if "," in value or any(character.isspace() for character in value):
        return "contains several entries; list each one separately"
    return "is an address; use only the host, the domain or the network" if "://" in value else None


def driver_version(value: str) -> str | None:
    """A driver's version without the operating system, which the operator appends."""
    if _DRIVER_VERSION.fullmatch(value):
        return None
    return os_tag(value) or (
        "is not a driver's version; write only its numbers, two or three such as 580.105.08, or sha256: and the digest of an image"
    )


def os_tag(value: str) -> str | None:
    """The message for a version that ends with an operating system's tag; None for other versions."""
    match = _DRIVER_OS_TAG.fullmatch(value)
    if not match:
        return None
    return (
        f"ends with the tag of an operating system, which the operator appends: the nodes would look for "
        f"{value}-{match['system']}; write {match['bare']}"
    )


# The schema of `rollout`: how a change to sharing is rolled out to the nodes of a pool.

NONE, GPU_PODS, ALL = "none", "gpu-pods", "all"
IDLE_FIRST, BY_NAME = "idle-first", "name"
ROLLBACK, LEAVE = "rollback", "leave"

_DAY = 24 * 3600
_PER_CENT = re.compile(r"([1-9][0-9]?|100)%")


@dataclasses.dataclass(frozen=True)
class NodeAmount(Integer):
    """A number of nodes, or a percentage of the pool's nodes."""

    def mistyped(self, value: t.Any) -> str | None:
        if is_whole(value):
            if value > MAX_NODES:
                return f'is not allowed: no cluster has more than {MAX_NODES} nodes; use "100%" for all nodes of a pool'
            return None if value >= 1 else "is not allowed: at least one node is changed at a time; set 1 or more"
        if not isinstance(value, str):
            return f'is {type_name(value)}, not a number of nodes; use a whole number, or a percentage such as "25%"'
        if _PER_CENT.fullmatch(value):
            return None
        return unrendered_template(value) or 'is not a number of nodes; use a whole number, or "1%" to "100%"'


def _seconds(low: int, **more: t.Any) -> Integer:
    too_low, too_high = f"set {low} seconds or more", "set at most one day (86400 seconds)"
    return integer_between(low, _DAY, too_low, too_high, **more)


def _names_the_node(value: list[t.Any]) -> str | None:
    if any("{node}" in word for word in value if isinstance(word, str)):
        return None
    return "does not contain the node's name; use the placeholder {node}, as in [ssh, core@{node}, sudo, reboot]"


ROLLOUT = Section(
    doc="How changes to the sharing settings are rolled out to the nodes of the pool.",
    fields={
        "max_unavailable": NodeAmount(
            doc='Number of nodes that are changed at the same time, or a percentage such as V("25%"), rounded up. Nodes that are new to the pool and '
            "have no pods to evict do not count toward this number.",
            default=1,
        ),
        "drain": Choice(
            doc="Which pods are evicted from a node before it is changed. V(gpu-pods) evicts GPU pods that cannot keep running during the change. V(all) "
            "evicts all pods except static pods and pods of DaemonSets. V(none) evicts no pods; the node stays cordoned until the pods have terminated.",
            known=(NONE, GPU_PODS, ALL),
            default=GPU_PODS,
            blank_is_unset=False,
        ),
        "force": Boolean(
            doc="Whether pods without a controller are also evicted. If V(false), a pod of this kind that uses a GPU blocks the change to its node, and "
            "one that does not use a GPU stays on the node.",
            default=False,
        ),
        "grace_period": _seconds(
            0,
            doc="Time in seconds within which an evicted pod must terminate. By default, each pod's own grace period.",
        ),
        "drain_timeout": _seconds(
            1,
            doc="Timeout in seconds for draining one node, including the time spent waiting for PodDisruptionBudgets.",
            default=600,
        ),
        "order": Choice(
            doc="With V(idle-first), the nodes with the fewest pods to evict are changed first. With V(name), the nodes are changed in order of their names.",
            known=(IDLE_FIRST, BY_NAME),
            default=IDLE_FIRST,
        ),
        "limit": NodeAmount(
            doc="Maximum number of nodes that one run changes, or a percentage. The next run continues with the remaining nodes, up to the same limit. "
            "By default, all nodes are changed.",
            blank_is_unset=False,
        ),
        "pause_on_failure": Boolean(
            doc="Whether the rollout of the pool stops after a node has failed. Changes that are already in progress on other nodes are completed.",
            default=True,
        ),
        "on_failure": Choice(
            doc="V(rollback) rolls the node back to its last working configuration. V(leave) keeps the node cordoned and adds a taint that contains the "
            "reason.",
            known=(ROLLBACK, LEAVE),
            default=ROLLBACK,
        ),
        "reboot": Section(
            doc="How a node is rebooted if the node's GPUs cannot be reset. Without this setting, no node is rebooted.",
            fields={
                "command": ListOf(
                    (_names_the_node,),
                    doc='Command and arguments, with C({node}) as the placeholder for the node\'s name, such as C([ssh, "core@{node}", sudo, systemctl, '
                    "reboot]). The command runs without a shell, on the machine or in the execution environment where the playbook runs.",
                    required=True,
                    missing="set the command that reboots {node}",
                    item=Text(),
                    splits=False,
                ),
                "timeout": _seconds(
                    1,
                    doc="Timeout in seconds. It applies separately to the command and to the subsequent wait until the node is ready with a new boot ID.",
                    default=900,
                ),
            },
        ),
    },
)


# The options of a drain: settings in a pool's `rollout`, and the option `drain` of the modules that remove nodes (pure).


def _longest(periods: t.Sequence[int | None]) -> int | None:
    """The longest period. If any is None (each pod's own grace period), the result is None, because only each pod's own period cannot be too short."""
    known = [period for period in periods if period is not None]
    return max(known) if len(known) == len(periods) else None


def _option(kind: str, most_careful: t.Callable[[t.Any], t.Any]) -> dict[str, t.Any]:
    """The metadata of a field: the type of the option in argument specs, and the function that selects one of the values of several pools."""
    return {"type": kind, "most_careful": most_careful}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DrainSettings:
    """The settings of a drain that have the same names in a pool's `rollout` and in the option `drain` of modules (docs/rollout.md).

    force: also evict pods without a controller. grace_period: seconds for every pod; None keeps the grace period of each pod.
    drain_timeout: seconds for a node.
    """

    force: bool = dataclasses.field(default=False, metadata=_option("bool", all))
    grace_period: int | None = dataclasses.field(default=None, metadata=_option("int", _longest))
    drain_timeout: float = dataclasses.field(
        default=ROLLOUT.fields["drain_timeout"].default, metadata=_option("int", max)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DrainOptions(DrainSettings):
    """The options of a drain. evict: if False, a drain waits until the pods terminate (`drain: none` in `rollout`)."""

    evict: bool = dataclasses.field(default=True, metadata=_option("bool", all))

    @classmethod
    def most_careful(cls, pools: t.Sequence[DrainOptions]) -> DrainOptions:
        """The most careful combination of the options of several pools, for nodes of all of them; the defaults if there are no pools."""
        if not pools:
            return cls()
        fields = dataclasses.fields(cls)
        return cls(
            **{
                field.name: field.metadata["most_careful"]([getattr(pool, field.name) for pool in pools])
                for field in fields
            }
        )

    @classmethod
    def argument_spec(cls) -> dict[str, dict[str, t.Any]]:
        """The suboptions of the module option `drain`."""
        return {
            field.name: {"type": field.metadata["type"], "default": field.default} for field in dataclasses.fields(cls)
        }
