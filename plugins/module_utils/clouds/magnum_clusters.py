# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Magnum clusters: flavors, kubeconfig, and the base of the modules."""

from __future__ import annotations

import base64
import datetime
import functools
import re
import typing as t
from dataclasses import dataclass

from ..catalog import models
from ..catalog.secrets import NOT_SHOWN
from ..core.module import ArgumentSpec, BaseModule, merge_specs
from ..core.values import format_time
from .kubeconfig_file import (
    CRYPTOGRAPHY_IMPORT_ERROR,
    YAML_IMPORT_ERROR,
    client_certificate,
    current_context,
    decoded,
    expiry,
    server_of,
)
from .magnum_client import CloudOptions, Glance, Magnum, Nova, OpenStackError, Session, enable_logging, explain

if t.TYPE_CHECKING:
    from ..core.errors import ServiceError
    from ..core.values import Document, Object

# Compares a declared Magnum cluster with the actual one, and composes the request that creates it (pure).

# The options and their names in Magnum's API.
FIELDS: dict[str, str] = {
    "cluster_template": "cluster_template_id",
    "keypair": "keypair",
    "flavor": "flavor_id",
    "master_flavor": "master_flavor_id",
    "node_count": "node_count",
    "master_count": "master_count",
    "docker_volume_size": "docker_volume_size",
    "fixed_network": "fixed_network",
    "fixed_subnet": "fixed_subnet",
    "floating_ip_enabled": "floating_ip_enabled",
    "master_lb_enabled": "master_lb_enabled",
    "create_timeout": "create_timeout",
}
# These options affect only the creation and are not compared later. After the creation, the size of the default group is managed like that of any group.
_CREATION_ONLY = ("create_timeout", "node_count")
_NAMED = ("cluster_template", "flavor", "master_flavor")
# The results for the clusters of all providers use the same names.
_STATUS_FIELDS = {
    "id": "uuid",
    "status": "status",
    "status_reason": "status_reason",
    "health_status": "health_status",
    "server": "api_address",
    "version": "coe_version",
    "node_count": "node_count",
    "project_id": "project_id",
}
# magnum/api/controllers/v1/cluster.py
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_.-]{0,241}")


def cluster_problems(options: Document) -> list[str]:
    """All problems in the options that can be detected without the cloud."""
    problems_so_far = []
    if _NAME.fullmatch(str(options["name"])) is None:
        problems_so_far.append(
            f"name: {options['name']!r} is not a Magnum cluster name; use up to 242 letters, digits, '_', '.' and '-', starting with a letter."
        )
    for option, least in (("node_count", 0), ("master_count", 1), ("docker_volume_size", 1), ("create_timeout", 0)):
        if options.get(option) is not None and options[option] < least:
            problems_so_far.append(f"{option} is {options[option]}; set {least} or more.")
    if (options.get("master_count") or 1) % 2 == 0:
        problems_so_far.append(
            f"master_count is {options['master_count']}; etcd needs an odd number, and Magnum rejects other numbers."
        )
    return problems_so_far


def cluster_options(cluster: Document) -> dict[str, t.Any]:
    """A cluster in the format of the module's options."""
    return {
        "name": cluster.get("name"),
        **{option: cluster.get(field) for option, field in FIELDS.items() if option not in _CREATION_ONLY},
        "labels": {key: magnum_label(value) for key, value in (cluster.get("labels") or {}).items()},
    }


def cluster_result(cluster: Document) -> dict[str, t.Any]:
    """A cluster in the format of module results."""
    return {
        **cluster_options(cluster),
        **{name: cluster.get(field) for name, field in _STATUS_FIELDS.items()},
        "node_addresses": list(cluster.get("node_addresses") or ()),
        "master_addresses": list(cluster.get("master_addresses") or ()),
    }


def declared_cluster(options: Document) -> dict[str, t.Any]:
    """The options that are set, with the values of labels as strings. Labels with the value null are omitted."""
    declared = {option: options[option] for option in FIELDS if options.get(option) is not None}
    if options.get("labels") is not None:
        declared["labels"] = {key: text for key, text in magnum_labels(options["labels"]).items() if text is not None}
    return declared


def cluster_differences(
    options: Document, cluster: Document, same: t.Callable[[str, str, str], bool]
) -> dict[str, tuple[t.Any, t.Any]]:
    """The declared options that differ from the cluster, each with the actual and the declared value. `labels` contains only the labels that differ.

    same(option, one, other) returns whether two names or ids refer to the same template or flavor.
    """
    actual = cluster_options(cluster)
    differing: dict[str, tuple[t.Any, t.Any]] = {}
    for option, declared in declared_cluster(options).items():
        current: t.Any = actual.get(option)
        if option in _CREATION_ONLY or current == declared:
            continue
        if option == "labels":
            changed = {key: value for key, value in declared.items() if current.get(key) != value}
            if changed:
                differing[option] = ({key: current.get(key) for key in changed}, changed)
        elif option not in _NAMED or not same(option, str(current), str(declared)):
            differing[option] = (current, declared)
    return differing


def immutable_problems(name: str, differing: t.Mapping[str, tuple[t.Any, t.Any]]) -> list[str]:
    """An error message for each difference, because an existing cluster cannot be changed."""
    return [
        f"Cluster {name}: {option} is {actual!r}, not {declared!r}, and Magnum sets this option only when it creates a cluster. Declare the actual "
        "value, or delete the cluster and create it again."
        for option, (actual, declared) in sorted(differing.items())
    ]


def cluster_body(options: Document) -> dict[str, t.Any]:
    """The body of the request that creates the cluster."""
    declared = declared_cluster(options)
    body = {FIELDS.get(option, option): value for option, value in declared.items()}
    if "labels" in declared:
        body["merge_labels"] = bool(options.get("merge_labels", True))
    return {"name": options["name"], **body}


def magnum_label(value: t.Any) -> str:
    """The value of a Magnum label as a string, for comparisons and requests.

    Booleans become `true` and `false`, whereas Magnum itself would convert them to `True` and `False`.
    """
    text = str(value)
    return text.lower() if text.lower() in ("true", "false") else text


def magnum_labels(labels: t.Mapping[str, t.Any] | None) -> dict[str, str | None]:
    """Magnum's labels with their values as strings. The value None removes a label."""
    return {str(key): None if value is None else magnum_label(value) for key, value in (labels or {}).items()}


# Determines the GPUs of a flavor from Nova's extra specs (pure).
#
# Sources: Nova's admin guide, "Attaching physical PCI devices to guests" and "Attaching virtual GPU devices to guests", and its
# "Extra Specs" reference; os-resource-classes (VGPU, PGPU, PCI_DEVICE); os-traits (HW_GPU_*).

# The kinds of GPUs: virtual GPUs, physical GPUs, and GPUs that only a trait or a device profile suggests.
VIRTUAL, PHYSICAL, HINT = "vgpu", "gpu", "hint"

_ALIAS = "pci_passthrough:alias"
_RESOURCE = re.compile(r"resources\d*(?:_[\w-]+)?:(?P<class>[A-Z0-9_]+)$")
_TRAIT = re.compile(r"trait\d*(?:_[\w-]+)?:(?P<trait>[A-Z0-9_]+)$")
_PROFILE = "accel:device_profile"
_CUSTOM = re.compile(r"CUSTOM_\w*(?:GPU|NVIDIA)\w*$")
# Words that cloud operators add to a model's name.
_NOISE = frozenset(
    {"nvidia", "gpu", "gpus", "tesla", "pci", "passthrough", "custom", "resource", "pgpu", "vgpu", "geforce"}
)
# Distinguishes the aliases of GPUs from those of network cards if an alias does not contain a model from the catalog.
_GPU_WORD = re.compile(r"gpu|nvidia|tesla|quadro|rtx|(?<![a-z0-9])[abhlptv]\d{1,3}(?![0-9])", re.IGNORECASE)


@dataclass(frozen=True)
class MagnumFlavorGpus:
    """The GPUs of one machine.

    count: the number of GPUs, or None if only a hint suggests GPUs. models: the possible models, as keys of the catalog. source: the extra spec that
    specifies or suggests the GPUs.
    """

    count: int | None
    kind: str
    models: tuple[str, ...]
    source: str

    def to_result(self) -> dict[str, t.Any]:
        """The GPUs in the format of results. `model` is null unless exactly one model is possible."""
        model = self.models[0] if len(self.models) == 1 else None
        return {**vars(self), "models": list(self.models), "model": model}


def gpus_of(specs: t.Mapping[str, str] | None, aliases: t.Mapping[str, str] | None = None) -> MagnumFlavorGpus | None:
    """The GPUs of a flavor with these extra specs, or None if the specs do not contain GPUs or cannot be read.

    aliases: maps the cloud operator's names for GPUs (PCI aliases, custom resource classes and traits) to models of the catalog.
    """
    known = {name.casefold(): model for name, model in (aliases or {}).items()}
    specs = specs or {}
    matching = [*_by_alias(specs, known), *_by_class(specs, known)] or list(_by_hint(specs, known))
    if not matching:
        return None
    # VGPU and PGPU do not identify the model, but an additional trait may identify it.
    hinted = next((hint.models for hint in _by_hint(specs, known) if hint.models), ())
    best = max(matching, key=lambda gpus: (gpus.count is not None, bool(gpus.models)))
    return best if best.models else MagnumFlavorGpus(best.count, best.kind, hinted, best.source)


def models_of(name: str, known: t.Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The possible models, as keys of the catalog, to which a cloud operator's name for a GPU can refer.

    For example, "nvidia_t4" refers to T4, and "a100" can refer to any A100 model.
    """
    given = (known or {}).get(name.casefold())
    if given is not None:
        model = models.find(given)
        return (model.key,) if model else ()
    words = [word for word in re.split(r"[^a-z0-9]+", name.casefold()) if word and word not in _NOISE]
    for length in range(len(words), 0, -1):
        for start in range(len(words) - length + 1):
            name_part = "-".join(words[start : start + length])
            if exact := models.find(name_part):
                return (exact.key,)
            if matches := _models_beginning_with(name_part):
                return matches
    return ()


def _models_beginning_with(name_part: str) -> tuple[str, ...]:
    """The models whose names begin with these whole words. For example, "l4" does not match L40S."""
    return tuple(
        dict.fromkeys(
            model.key
            for model in models.MODELS
            for name in (model.key, model.product, *model.aliases)
            if models.normalized(name).startswith(f"{name_part}-")
        )
    )


def _by_alias(specs: t.Mapping[str, str], known: t.Mapping[str, str]) -> t.Iterator[MagnumFlavorGpus]:
    """Yields the GPUs in a PCI alias such as `t4:1,other:2`. Network cards use the same key."""
    for part in str(specs.get(_ALIAS) or "").split(","):
        name, dummy, count = part.strip().partition(":")
        matching = models_of(name, known)
        if name and (matching or name.casefold() in known or _GPU_WORD.search(name)):
            yield MagnumFlavorGpus(_number(count or "1"), PHYSICAL, matching, f"{_ALIAS}={part.strip()}")


def _by_class(specs: t.Mapping[str, str], known: t.Mapping[str, str]) -> t.Iterator[MagnumFlavorGpus]:
    for key, value in sorted(specs.items()):
        match = _RESOURCE.match(key)
        if match is None or not _number(value):
            continue
        name = match["class"]
        if name in ("VGPU", "PGPU"):
            yield MagnumFlavorGpus(_number(value), VIRTUAL if name == "VGPU" else PHYSICAL, (), f"{key}={value}")
        elif _CUSTOM.match(name) or name.casefold() in known:
            kind = VIRTUAL if "VGPU" in name else PHYSICAL
            yield MagnumFlavorGpus(_number(value), kind, models_of(name, known), f"{key}={value}")


def _by_hint(specs: t.Mapping[str, str], known: t.Mapping[str, str]) -> t.Iterator[MagnumFlavorGpus]:
    for key, value in sorted(specs.items()):
        match = _TRAIT.match(key)
        if match and value == "required":
            trait = match["trait"]
            if trait.startswith("HW_GPU_") or _CUSTOM.match(trait) or trait.casefold() in known:
                yield MagnumFlavorGpus(None, HINT, models_of(trait, known), f"{key}={value}")
        elif key == _PROFILE and (models_of(value, known) or _GPU_WORD.search(value)):
            yield MagnumFlavorGpus(None, HINT, models_of(value, known), f"{key}={value}")


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdecimal() else None


# Creates kubeconfigs with a client certificate signed by the cluster's CA, and compares them with the cluster.

if CRYPTOGRAPHY_IMPORT_ERROR is None:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID
if YAML_IMPORT_ERROR is None:
    import yaml

# The user and the group of the cluster's administrator, which `openstack coe cluster config` also sets (python-magnumclient,
# magnumclient/common/utils.py).
USER, GROUP = "admin", "system:masters"


@dataclass(frozen=True)
class ClusterEndpoint:
    """The data of a cluster that a kubeconfig contains. `ca` is the CA certificate of the API server in PEM format."""

    name: str
    server: str
    ca: str


@dataclass(frozen=True)
class CertificateRequest:
    """A private key and a certificate signing request, both in PEM format."""

    key: str
    csr: str


def new_certificate_request(user: str = USER, group: str = GROUP) -> CertificateRequest:
    """A new key, and the signing request for a certificate. Kubernetes reads the user's name and groups from the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group), x509.NameAttribute(NameOID.COMMON_NAME, user)]
    )
    csr = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return CertificateRequest(private.decode(), csr.public_bytes(serialization.Encoding.PEM).decode())


def kubeconfig_document(endpoint: ClusterEndpoint, key: str, certificate: str) -> str:
    """The text of the kubeconfig. The context, the cluster and the user have the cluster's name, so that later runs recognize the cluster."""
    name = endpoint.name
    user = {"client-certificate-data": _encoded(certificate), "client-key-data": _encoded(key)}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [
                {
                    "name": name,
                    "cluster": {"server": endpoint.server, "certificate-authority-data": _encoded(endpoint.ca)},
                }
            ],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "users": [{"name": name, "user": user}],
        },
        sort_keys=False,
    )


def endpoint_problem(
    config: Object | None, endpoint: ClusterEndpoint, renew_before: datetime.timedelta, now: datetime.datetime
) -> str | None:
    """The reason why a kubeconfig does not give access to this cluster or will expire soon, or None if it can be used."""
    if config is None:
        return "the file does not exist"
    context, cluster, user = current_context(config)
    if cluster is None or user is None:
        return "it has no current context"
    if context != endpoint.name:
        return f"its context is {context}, but the cluster is {endpoint.name}"
    if cluster.get("server") != endpoint.server:
        return f"its server is {server_of(cluster)}, but the cluster's is {endpoint.server}"
    ca = decoded(cluster.get("certificate-authority-data"))
    if ca is None or ca.strip() != endpoint.ca.strip():
        return "it trusts a different CA than the cluster's"
    certificate = client_certificate(user)
    if certificate is None:
        return "it has no client certificate"
    if _public_key_of(user) != _public_bytes(certificate.public_key()):
        return "its key and its certificate do not match"
    if not _is_signed_by(certificate, endpoint.ca):
        return "its client certificate is signed by a different CA than the cluster's"
    end = expiry(certificate)
    if end <= now:
        return f"its client certificate expired at {format_time(end)}"
    return f"its client certificate expires at {format_time(end)}" if end - now <= renew_before else None


def _is_signed_by(certificate: x509.Certificate, ca: str) -> bool:
    try:
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(ca.encode()))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _public_key_of(user: Object) -> bytes:
    key = decoded(user.get("client-key-data"))
    try:
        return _public_bytes(serialization.load_pem_private_key((key or "").encode(), None).public_key())
    except (ValueError, TypeError):
        return b""


def _public_bytes(key: t.Any) -> bytes:
    return t.cast(
        "bytes", key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# Defines the base class of the Magnum modules, with the connection options of openstack.cloud and clients for the services of one cloud.

# The options have the same names as in openstack.cloud.
CONNECTION: ArgumentSpec = {
    "cloud": {"type": "raw"},
    "auth": {"type": "dict", "no_log": True},
    "auth_type": {"type": "str"},
    "region_name": {"type": "str"},
    "api_timeout": {"type": "int"},
    "validate_certs": {"type": "bool", "aliases": ["verify"]},
    "ca_cert": {"type": "str", "aliases": ["cacert"]},
    "client_cert": {"type": "str", "aliases": ["cert"]},
    "client_key": {"type": "str", "no_log": True, "aliases": ["key"]},
    "interface": {
        "type": "str",
        "choices": ["admin", "internal", "public"],
        "default": "public",
        "aliases": ["endpoint_type"],
    },
    "sdk_log_path": {"type": "str"},
    "sdk_log_level": {"type": "str", "choices": ["INFO", "DEBUG"], "default": "INFO"},
}
WAIT: ArgumentSpec = {
    "wait": {"type": "bool", "default": True},
    "wait_timeout": {"type": "int", "default": 3600, "aliases": ["timeout"]},
    "wait_sleep": {"type": "int", "default": 5},
}


class MagnumModule(BaseModule):
    """The base class of modules that send requests to a cloud with Magnum. It provides the connection options."""

    def __init__(self, argument_spec: ArgumentSpec, **kwargs: t.Any) -> None:
        """Compose the argument spec without sending a request."""
        super().__init__(merge_specs(CONNECTION, argument_spec), **kwargs)

    def shown_params(self) -> dict[str, t.Any]:
        """The options to print. A cloud that is given as a map is hidden, because it contains credentials."""
        shown = super().shown_params()
        if isinstance(shown.get("cloud"), dict):
            shown["cloud"] = NOT_SHOWN
        return shown

    @functools.cached_property
    def session(self) -> Session:
        """The session with the cloud. Raises ConnectionProblem if the cloud's configuration cannot be used."""
        options = CloudOptions.from_params(self.params)
        self.no_log_values.update(options.secrets)
        enable_logging(self.params["sdk_log_path"], self.params["sdk_log_level"])
        return Session(options, self.user_agent)

    @functools.cached_property
    def magnum(self) -> Magnum:
        """The client for clusters and node groups."""
        return Magnum(self.session)

    @functools.cached_property
    def nova(self) -> Nova:
        """The client for flavors, keypairs and limits."""
        return Nova(self.session)

    @functools.cached_property
    def glance(self) -> Glance:
        """The client for images."""
        return Glance(self.session)

    def explain_error(self, error: ServiceError) -> str:
        """The error message, with the cloud, the region and the project."""
        return (
            explain(error, self.session.origin) if isinstance(error, OpenStackError) else super().explain_error(error)
        )
