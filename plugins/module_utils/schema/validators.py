# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for single values: each returns what is wrong and what to do, as the end of the sentence "<path>: <value> ..."."""

from __future__ import annotations

import re

from ..catalog import models, names, secrets, taints
from ..mig.layout import PROFILE
from .messages import join_words
from .operand_labels import is_for_users
from .types import Rule

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_VERSION = re.compile(r"v?[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
_CHART_NAME = re.compile(r"[a-z0-9]([-a-z0-9._]*[a-z0-9])?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*(:[A-Za-z0-9_][A-Za-z0-9._-]*|@sha256:[0-9a-f]{64})")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LETTERS = "a-z, A-Z, 0-9, '-', '_' and '.', with a letter or digit at both ends"
_PATH_STARTS = ("/", "./", "../", "~")
# Labels in Kubernetes' namespaces that a kubelet may put on its own node ("NodeRestriction"). Magnum 23 refuses the others
# (magnum/api/controllers/v1/nodegroup.py); with older releases such a kubelet does not start.
_KUBELET_PREFIXES = ("kubelet.kubernetes.io/", "node.kubernetes.io/")
_KUBELET_LABELS = frozenset(
    {
        *(f"beta.kubernetes.io/{name}" for name in ("arch", "instance-type", "os")),
        *(f"failure-domain.beta.kubernetes.io/{name}" for name in ("region", "zone")),
        *(f"kubernetes.io/{name}" for name in ("arch", "hostname", "os")),
        *(f"topology.kubernetes.io/{name}" for name in ("region", "zone")),
    }
)
_NO_SECRET = (
    "contains a secret, which would be readable on the command line of helm; remove it from the address, and log in before the run "
    "(helm registry login, helm repo add), or download the chart and give its path"
)

# The writers of these labels; a pool that set them, too, would conflict with them.
_LABEL_OWNERS = (
    ("accel.gpu/", "this collection writes it"),
    ("nvidia.com/", "NVIDIA's operands write it"),
    (names.NFD_PREFIX, "NFD writes it"),
    ("kubernetes.io/hostname", "the kubelet writes it"),
    ("kubernetes.io/os", "the kubelet writes it"),
    ("kubernetes.io/arch", "the kubelet writes it"),
)
_TAINT_OWNERS = (
    ("accel.gpu/", "this collection writes it"),
    ("node.kubernetes.io/", "Kubernetes' node controller writes it"),
    ("node.cloudprovider.kubernetes.io/", "the cloud's controller writes it"),
    (
        taints.STARTUP_TAINT_PREFIX,
        "startup taints are removed once a node has started, and a pool's taints stay (use startup_taint)",
    ),
)


def dns_label(value: str) -> str | None:
    """RFC 1123: the name of a namespace, and of a pool (it becomes a label's value)."""
    if len(value) > 63:
        return f"has {len(value)} characters; a DNS label has at most 63"
    if _DNS_LABEL.fullmatch(value):
        return None
    corrected = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")
    example = f", for example {corrected}" if corrected and secrets.is_quotable(value) else ""
    return f"is not a DNS label (RFC 1123); use a-z, 0-9 and '-', with a letter or digit at both ends{example}"


def release_name(value: str) -> str | None:
    """Helm's limit: the names of a release's objects begin with its name."""
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
    """Kubernetes' label value: may be empty."""
    if len(value) > names.LABEL_LENGTH:
        return f"has {len(value)} characters; a label's value has at most {names.LABEL_LENGTH}"
    if value and not _QUALIFIED.fullmatch(value):
        return f"is not a label value; use {_LETTERS}"
    return None


def kubelet_label(value: str) -> str | None:
    """A label that a kubelet may put on its own node, as it does with the labels of a node group."""
    reserved = re.match(r"([^/]+\.)?(kubernetes|k8s)\.io/", value)
    if not reserved or value in _KUBELET_LABELS or value.startswith(_KUBELET_PREFIXES):
        return None
    return (
        "is in a Kubernetes namespace that a kubelet must not use, so nodes with it would not start; choose a key of your own, such as "
        "example.com/team"
    )


def _owned_by(owners: tuple[tuple[str, str], ...], value: str) -> str | None:
    return next(
        (owner for start, owner in owners if value == start or (start.endswith("/") and value.startswith(start))), None
    )


def free_label(value: str) -> str | None:
    """A label that a pool may set on its nodes."""
    if is_for_users(value):
        return None
    owner = _owned_by(_LABEL_OWNERS, value)
    return f"is reserved: {owner}; choose a key of your own, such as example.com/team" if owner else None


def free_taint(value: str) -> str | None:
    """A taint that a pool may set on its nodes."""
    owner = _owned_by(_TAINT_OWNERS, value)
    return f"is reserved: {owner}; choose a key of your own, or nvidia.com/gpu" if owner else None


def stays_text_in_helm(value: str) -> str | None:
    """A value that stays text in Helm's values, whose YAML 1.1 has more booleans than Ansible's."""
    if value in ("y", "Y", "n", "N"):
        return "becomes a boolean in Helm's values; choose another one, such as yes"
    return None


def not_the_pool_label(value: str) -> str | None:
    """The label accel.gpu/pool is not matched: a node that has it belongs to its pool already."""
    if value.startswith("accel.gpu/"):
        return "cannot be matched: a node with accel.gpu/pool belongs to that pool anyway; leave it out"
    return None


def known_model(value: str) -> str | None:
    """A model of the catalog, by any of its names."""
    if models.find(value):
        return None
    similar = models.nearest(value)
    hint = (
        f"did you mean {join_words(similar, 'or')}?"
        if similar
        else f"known: {', '.join(m.key for m in models.MODELS)}."
    )
    return f"is not a GPU model of the catalog; {hint} Match other models by labels: {names.PRODUCT_LABEL}"


def not_in_defaults(remedy: str) -> Rule:
    """Refuses a value of which each pool, or each node group, has its own."""
    return lambda value: f"cannot be set in the defaults; {remedy}"


def mig_profile(value: str) -> str | None:
    """A profile as nvidia-smi lists it; whether a GPU supports it is checked with the whole pool."""
    if PROFILE.fullmatch(value):
        return None
    return "is not a MIG profile; write it as nvidia-smi mig -lgip does, such as 3g.20gb"


def release_version(value: str) -> str | None:
    """One exact version, since a range would upgrade automatically."""
    if _VERSION.fullmatch(value):
        return None
    return "is not one exact version; write all of it, such as v25.10.1 (no range)"


def is_bare_chart(value: str) -> bool:
    """Whether it is only a chart's name, to be found in a repository."""
    return bool(_CHART_NAME.fullmatch(value)) and ".tgz" not in value


def chart(value: str) -> str | None:
    """The four forms of a chart: a name, an OCI reference, an address, or a path."""
    if secrets.address_holds_a_secret(value):
        return _NO_SECRET
    local = value.startswith(_PATH_STARTS) or (".tgz" in value and "://" not in value)
    remote = re.fullmatch(r"(oci|https?)://[^\s/]+/\S+", value)
    if local or remote or is_bare_chart(value):
        return None
    forms = (
        "a name (with chart_repo), oci://registry/chart, an https:// address, or a path that begins with / ./ ../ or ~"
    )
    return f"is not a chart; give {forms}"


def chart_repo(value: str) -> str | None:
    """The address of a Helm repository; empty means none."""
    if secrets.address_holds_a_secret(value):
        return _NO_SECRET
    if not value or re.fullmatch(r"https?://[^\s/]+\S*", value):
        return None
    if value.startswith("oci://"):
        return "is a registry, not a repository; put the whole oci:// reference in chart and leave chart_repo out"
    return "is not the address of a Helm repository; it begins with https://"


def image(value: str) -> str | None:
    """An image with its tag or digest: CUDA images have no `latest`."""
    if "://" not in value and _IMAGE.fullmatch(value) and ":" in value.rpartition("/")[2]:
        return None
    return "is not an image with a tag or digest; write it as registry/name:tag, without https://"


def http_address(value: str) -> str | None:
    """The address of an API, without user and password, which other users could read."""
    if not re.fullmatch(r"https?://[^\s/@]+(/\S*)?", value):
        return "is not an address; write it as https://host, without user and password"
    return None


def uid(value: str) -> str | None:
    """The UID of an object, as the API server gives it (RFC 4122)."""
    if _UID.fullmatch(value):
        return None
    return "is not a UID; kubectl get namespace kube-system -o jsonpath='{.metadata.uid}' shows it"


def kubeconfig_path(value: str) -> str | None:
    """A file on the machine that runs the tasks; never the content, which contains secrets."""
    if "\n" in value or "apiVersion" in value:
        return "contains a kubeconfig's content; write that to a file and give its path"
    if "://" in value:
        return "is an address; give the path of a kubeconfig file (or the modules' own option host)"
    return None
