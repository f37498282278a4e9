# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The content of the licensing objects, and the objects that the operator reads (pure)."""

from __future__ import annotations

import base64
import binascii
import typing as t
from dataclasses import dataclass, field, replace

from ..catalog.names import (
    CREATED_ANNOTATION,
    DRIVER_LICENSE_FIELDS,
    LICENSE_CONFIG_KEY,
    LICENSE_FIELDS,
    LICENSE_TOKEN_KEY,
    LICENSING_CONFIG,
    POOL_LABEL,
)
from ..catalog.releases import LICENSING_SECRET_SINCE, release_of
from ..catalog.vgpu import AUTOMATIC, feature_mismatch
from ..core.errors import InvalidOptions
from ..core.messages import abbreviate, join_words, quote
from ..core.values import Document, Object, get_nested
from ..gpu_operator.cluster_policy import uses_driver_objects
from ..schema.driver import VGPU_TYPE
from .token import (
    FEATURE_TYPE_OPTION,
    GRIDD_CONF_HEADER,
    REPLACE_OPTION,
    SHORT,
    TOKEN_ENV,
    TOKEN_OPTION,
    TOKEN_PATH_OPTION,
    GriddOptions,
    InvalidToken,
    TokenInfo,
    feature_type_of,
    fingerprint,
    gridd_conf_warnings,
    is_managed_gridd_conf,
    parse_gridd_conf,
    parse_token,
    shown_gridd_conf,
    with_parameters,
)

if t.TYPE_CHECKING:
    from ..pools.plan import Plan, PoolPlan

# Determines which object with the token (a Secret or a ConfigMap) a pool's driver pods mount, and how the ClusterPolicy refers to it (pure).
#
# Source: gpu-operator api/nvidia/v1/clusterpolicy_types.go (DriverLicensingConfigSpec) and controllers/object_controls.go (transformDriverContainer) in the
# tags v24.9.2 to v26.7.0: secretName has existed since v25.10, and takes precedence over configMapName; the token is mounted only with nlsEnabled.

Path = tuple[str, ...]

SECRET, CONFIG_MAP = "Secret", "ConfigMap"
DEFAULT_NAME = "licensing-config"
# The messages for reports and failures.
NO_OPERATOR = (
    "The GPU operator is not installed (no ClusterPolicy exists), so no driver reads a token. Run the playbook site with the token: it installs the operator "
    "and writes the Secret."
)
NO_OBJECT = "Neither an NVIDIADriver nor the ClusterPolicy names a Secret with a licensing token. Run the playbook license with a token."


@dataclass(frozen=True)
class LicenseTarget:
    """One object with a token, and the pools whose driver pods mount it; without pools, all driver pods mount it."""

    kind: str
    name: str
    pools: tuple[str, ...] = ()

    def label(self, namespace: str) -> str:
        """The kind, namespace and name of the object, for messages."""
        return f"{self.kind} {namespace}/{self.name}"

    def is_same_object(self, other: LicenseTarget) -> bool:
        """Whether both are the same object, regardless of their pools."""
        return (self.kind, self.name) == (other.kind, other.name)

    def label_with_pools(self, namespace: str) -> str:
        """The label, followed by the pools, if any."""
        word = "pool" if len(self.pools) == 1 else "pools"
        return f"{self.label(namespace)} ({word} {abbreviate(self.pools)})" if self.pools else self.label(namespace)


@dataclass(frozen=True)
class LicensingConfigDiff:
    """The ClusterPolicy's current licensingConfig, and the fields that make it refer to the desired object."""

    before: Document
    after: Document

    @property
    def changed(self) -> bool:
        """Whether the ClusterPolicy must change."""
        return bool(self.paths)

    @property
    def paths(self) -> list[Path]:
        """The changed fields below spec."""
        return [
            (*LICENSING_CONFIG, key)
            for key, value in sorted(self.after.items())
            if (self.before.get(key) or None) != (value or None)
        ]

    @property
    def fields(self) -> list[str]:
        """The changed fields for messages and results, such as spec.driver.licensingConfig.secretName."""
        return [".".join(("spec", *path)) for path in self.paths]


def has_secret_name(version: str) -> bool:
    """Whether this release of the operator can mount a Secret; true for an unknown (empty) version."""
    return not version or release_of(version) >= LICENSING_SECRET_SINCE


def licensing_of(policy: Document | None) -> Document:
    """The ClusterPolicy's licensingConfig without empty values."""
    given = get_nested(policy, "spec", *LICENSING_CONFIG)
    return {key: value for key, value in given.items() if value not in (None, "")} if isinstance(given, dict) else {}


def live_target(policy: Document | None) -> LicenseTarget | None:
    """The object that the ClusterPolicy refers to; None if it refers to none."""
    return _named_in(licensing_of(policy), LICENSE_FIELDS)


def _named_in(config: t.Any, fields: t.Mapping[str, str]) -> LicenseTarget | None:
    """The object that a licensingConfig refers to; a Secret takes precedence over a ConfigMap."""
    given = config if isinstance(config, dict) else {}
    return next((LicenseTarget(kind, str(given[field])) for kind, field in fields.items() if given.get(field)), None)


def _policy_describes_driver(plan: Plan, policy: Document) -> bool:
    """Whether the ClusterPolicy describes the driver; False if NVIDIADriver objects do, or if the operator does not install the driver."""
    spec = policy.get("spec") or {}
    enabled = get_nested(spec, "driver", "enabled") is not False
    return enabled and not plan.declares_drivers and not uses_driver_objects(spec)


def declares_vgpu(plan: Plan, policy: Document | None, drivers: t.Iterable[Document]) -> bool:
    """Whether a pool, an NVIDIADriver or the ClusterPolicy (by a token or by the name of the driver image) declares the vGPU driver."""
    if vgpu_pools(plan):
        return True
    spec = (policy or {}).get("spec") or plan.operator.values
    if uses_driver_objects(spec):
        return any(get_nested(item, "spec", "driverType") == VGPU_TYPE for item in drivers)
    driver = spec.get("driver") or {}
    image = f"{driver.get('repository') or ''}/{driver.get('image') or ''}"
    return driver.get("enabled") is not False and (live_target({"spec": spec}) is not None or VGPU_TYPE in image)


def vgpu_pools(plan: Plan) -> list[PoolPlan]:
    """The pools that declare the vGPU driver."""
    return [pool for pool in plan.pools if (pool.driver or {}).get("type") == VGPU_TYPE]


def declared_vgpu_types(plan: Plan, pools: t.Collection[str] = ()) -> list[str]:
    """The vGPU types in `vgpu` and in `match` of the vGPU pools with these names, or of all vGPU pools; other products are included."""
    return [
        name
        for pool in vgpu_pools(plan)
        if not pools or pool.name in pools
        for name in (*([pool.vgpu["profile"]] if pool.vgpu else ()), *pool.match.products)
    ]


def desired_targets(
    plan: Plan, policy: Document | None, version: str, secret_name: str | None, drivers: t.Iterable[Document] = ()
) -> list[LicenseTarget]:
    """The objects that must contain the token; raises InvalidOptions if the driver pods of a pool would mount none.

    If there are vGPU pools, the name for each pool is `driver.licensing_secret` or, if that is not set, the name in the ClusterPolicy, which the pool's
    NVIDIADriver inherits. Otherwise, the names come from NVIDIADriver objects if these describe the driver. If they do not, the name is `secret_name`,
    the name in the ClusterPolicy, or the default, in this order. A new name in the ClusterPolicy restarts the driver on every node. `drivers` contains
    the NVIDIADriver objects.
    """
    # A ClusterPolicy that does not exist yet is created from the values.
    expected = policy if policy is not None else {"spec": plan.operator.values}
    live = live_target(expected)
    if pools := vgpu_pools(plan):
        # The operator mounts the token only with nlsEnabled, which the pools also inherit.
        return _targets_of_pools(pools, live if licensing_of(expected).get("nlsEnabled") is True else None)
    if not _policy_describes_driver(plan, expected):
        if named := mounted_targets(policy, drivers):
            return named
        raise InvalidOptions(
            [
                "No driver pod mounts a licensing token: no pool has driver.type: vgpu, and no NVIDIADriver names a Secret. Set driver.type and "
                "driver.licensing_secret of the pool."
            ]
        )
    name = secret_name or (live.name if live is not None else DEFAULT_NAME)
    return [LicenseTarget(SECRET if has_secret_name(version) else CONFIG_MAP, name)]


def declared_targets(plan: Plan) -> list[LicenseTarget]:
    """The Secrets that pools declare, with the pools that declare them."""
    return _with_pools((pool, target) for pool in vgpu_pools(plan) if (target := _declared_target(pool)) is not None)


def _declared_target(pool: PoolPlan) -> LicenseTarget | None:
    name = (pool.driver or {}).get("licensing_secret")
    return LicenseTarget(SECRET, str(name)) if name else None


def _with_pools(pairs: t.Iterable[tuple[PoolPlan, LicenseTarget]]) -> list[LicenseTarget]:
    by_target: dict[LicenseTarget, list[str]] = {}
    for pool, target in pairs:
        by_target.setdefault(target, []).append(pool.name)
    return [replace(target, pools=tuple(names)) for target, names in by_target.items()]


def _targets_of_pools(pools: t.Iterable[PoolPlan], inherited: LicenseTarget | None) -> list[LicenseTarget]:
    targets = [(pool, _declared_target(pool) or inherited) for pool in pools]
    if unnamed := [pool.name for pool, target in targets if target is None]:
        raise InvalidOptions(
            [
                f"Pool {name} names no licensing Secret, and neither does the ClusterPolicy with nlsEnabled. Set driver.licensing_secret of the pool, for "
                f"example to {DEFAULT_NAME}."
                for name in unnamed
            ]
        )
    return _with_pools((pool, target) for pool, target in targets if target is not None)


def mounted_targets(policy: Document | None, drivers: t.Iterable[Document] = ()) -> list[LicenseTarget]:
    """The objects that NVIDIADrivers refer to, or that the ClusterPolicy refers to if it describes the driver; empty if there are none."""
    if not uses_driver_objects((policy or {}).get("spec") or {}):
        live = live_target(policy)
        return [live] if live is not None else []
    by_target: dict[LicenseTarget, list[str]] = {}
    for item in drivers:
        target = target_of_driver(item)
        if target is not None:
            pool = get_nested(item, "spec", "nodeSelector", POOL_LABEL)
            by_target.setdefault(target, []).append(str(pool or ""))
    # An NVIDIADriver that does not select a pool may apply to any node.
    named = [replace(target, pools=tuple(pools) if all(pools) else ()) for target, pools in by_target.items()]
    return sorted(named, key=lambda target: target.name)


def target_of_driver(driver: Document) -> LicenseTarget | None:
    """The object that an NVIDIADriver refers to, without pools; None if it refers to none, or does not describe the vGPU driver."""
    is_vgpu = get_nested(driver, "spec", "driverType") == VGPU_TYPE
    return _named_in(get_nested(driver, "spec", "licensingConfig"), DRIVER_LICENSE_FIELDS) if is_vgpu else None


def target_of_pool(targets: t.Sequence[LicenseTarget], pool: str | None) -> LicenseTarget | None:
    """The object that the driver pods of a pool mount; None if there is none, or if several exist and none belongs to the pool."""
    own = next((target for target in targets if pool in target.pools), None)
    return own or (targets[0] if len(targets) == 1 else None)


def plan_licensing_config(plan: Plan, policy: Document | None, target: LicenseTarget) -> LicensingConfigDiff | None:
    """The change that makes the ClusterPolicy refer to the object; None if the ClusterPolicy does not describe the driver."""
    if policy is None or not _policy_describes_driver(plan, policy):
        return None
    before = licensing_of(policy)
    after: dict[str, t.Any] = {LICENSE_FIELDS[target.kind]: target.name, "nlsEnabled": True}
    if target.kind == SECRET and before.get("configMapName"):
        after["configMapName"] = ""
    return LicensingConfigDiff(before, after)


# Reads, compares and composes the content of the object with the licensing files: a Secret or, for old operators, a ConfigMap (pure).
#
# Source: NVIDIA's cloud-native-docs, install-gpu-operator-vgpu: the operator mounts exactly these two keys.

_SET_TOKEN = f"Set the environment variable {TOKEN_ENV}, {TOKEN_OPTION} or {TOKEN_PATH_OPTION}"
_OPAQUE = "Opaque"
# The keys that keep the files that a write has replaced. The operator mounts neither of them.
PREVIOUS_TOKEN_KEY, PREVIOUS_CONFIG_KEY = f"previous.{LICENSE_TOKEN_KEY}", f"previous.{LICENSE_CONFIG_KEY}"
_KEYS = (LICENSE_TOKEN_KEY, LICENSE_CONFIG_KEY, PREVIOUS_TOKEN_KEY, PREVIOUS_CONFIG_KEY)


@dataclass(frozen=True)
class LicenseFiles:
    """The two files as bytes; a file is None if the object does not have its key. `stray` contains the object's other keys, and `previous` the files that
    an earlier write has replaced.
    """

    token: bytes | None = None
    config: bytes | None = None
    stray: tuple[str, ...] = ()
    previous: LicenseFiles | None = field(default=None, compare=False)

    @property
    def is_complete(self) -> bool:
        """Whether driver pods can mount both files."""
        return self.token is not None and self.config is not None

    def completed_by(self, other: LicenseFiles) -> LicenseFiles:
        """These files, with the missing ones taken from another object. An empty gridd.conf is valid, so it does not count as missing."""
        return replace(
            self,
            token=other.token if self.token is None else self.token,
            config=other.config if self.config is None else self.config,
        )

    @property
    def config_text(self) -> str:
        """gridd.conf as text; empty if it is missing."""
        return (self.config or b"").decode(errors="replace")

    def digests(self) -> dict[str, str]:
        """The shortened fingerprints of the files, by key."""
        files = {LICENSE_TOKEN_KEY: self.token, LICENSE_CONFIG_KEY: self.config}
        return {key: fingerprint(content)[:SHORT] for key, content in files.items() if content is not None}

    def shown(self) -> dict[str, t.Any]:
        """The content for a diff: the parameters of gridd.conf that may be shown, and the fingerprint of the token."""
        content: dict[str, t.Any] = {}
        if self.config is not None:
            content[LICENSE_CONFIG_KEY] = shown_gridd_conf(self.config_text)
        if self.token is not None:
            content[LICENSE_TOKEN_KEY] = f"sha256:{fingerprint(self.token)[:SHORT]}"
        return content


def read_files(target: LicenseTarget, live: Document | None, namespace: str) -> LicenseFiles:
    """The files in the object; raises InvalidOptions if the object is a Secret of a type other than Opaque."""
    if live is None:
        return LicenseFiles()
    if target.kind == SECRET and live.get("type") not in (None, _OPAQUE):
        raise InvalidOptions(
            [
                f"{target.label(namespace)} has the type {quote(live.get('type'))}, not {_OPAQUE}; choose a different name for the licensing Secret"
            ]
        )
    data = {key: _decode(value) for key, value in _entries(live, "data" if target.kind == SECRET else "binaryData")}
    if target.kind == CONFIG_MAP:
        data |= {key: str(value).encode() for key, value in _entries(live, "data")}
    stray = tuple(sorted(key for key in data if key not in _KEYS))
    former = data.get(PREVIOUS_TOKEN_KEY)
    previous = LicenseFiles(former, data.get(PREVIOUS_CONFIG_KEY, b"")) if former is not None else None
    return LicenseFiles(data.get(LICENSE_TOKEN_KEY), data.get(LICENSE_CONFIG_KEY), stray, previous)


def kept_files(before: LicenseFiles, after: LicenseFiles, *, verified: bool = True) -> LicenseFiles | None:
    """The files that an object keeps as the previous ones when `after` replaces `before`; None if there are none.

    These are the replaced files. If they were not `verified`, because a node has no license with them, an earlier pair of files is kept instead.
    """
    if (before.token, before.config) == (after.token, after.config):
        return before.previous
    kept = before.previous if before.previous is not None and not verified else before
    if kept.token is None or token_of(kept) is None or (kept.token, kept.config) == (after.token, after.config):
        return None
    return kept


def _unusable_message(target: LicenseTarget, files: LicenseFiles, namespace: str, *, exists: bool) -> str:
    """The reason why driver pods cannot get a license with the object, and the remedy."""
    if not exists:
        return f"{target.label(namespace)} does not exist, and no token was provided. {_SET_TOKEN}."
    return f"{_missing_keys(target, files, namespace)} {_SET_TOKEN}, and the run adds the keys; or create the object with these keys (docs/licensing.md)."


def _missing_keys(target: LicenseTarget, files: LicenseFiles, namespace: str) -> str:
    missing = [
        key for key, value in ((LICENSE_TOKEN_KEY, files.token), (LICENSE_CONFIG_KEY, files.config)) if value is None
    ]
    unused = f", and contains unused keys: {abbreviate(files.stray)}" if files.stray else ""
    keys = f"The GPU operator mounts only the keys {LICENSE_TOKEN_KEY} and {LICENSE_CONFIG_KEY}"
    return f"{target.label(namespace)} lacks {join_words(missing)}{unused}. {keys}."


@dataclass(frozen=True)
class DesiredFiles:
    """The desired files of the object, the values of its token, and warnings about both."""

    files: LicenseFiles
    token: TokenInfo
    warnings: tuple[str, ...]


def desired_files(
    target: LicenseTarget,
    live: LicenseFiles,
    token: str | None,
    options: GriddOptions,
    series: t.Collection[str],
    namespace: str,
    *,
    exists: bool,
) -> DesiredFiles:
    """The content for an object: the given token (a result of normalize_token()) or the existing one, and gridd.conf with the options. Raises
    InvalidOptions if nodes would get no license from this content.
    """
    if token is None and (live.token is None or (exists and live.config is None)):
        raise InvalidOptions([_unusable_message(target, live, namespace, exists=exists)])
    content = token.encode() if token is not None else t.cast("bytes", live.token)
    # A given token has already been checked, so only an existing one can be invalid.
    info = _require_token(content, target.label(namespace), f"{_SET_TOKEN}.")
    config, warnings = _config(target, live, options, series, namespace)
    if token is None or (live.token is not None and _same_token(live.token, content)):
        content = t.cast("bytes", live.token)
    if live.stray:
        warnings.append(
            f"{target.label(namespace)} also has {abbreviate(live.stray)}, which the GPU operator does not read. Delete the keys that are not needed."
        )
    return DesiredFiles(LicenseFiles(content, config, live.stray), info, tuple(warnings))


def restored_files(
    target: LicenseTarget, live: LicenseFiles, previous: LicenseFiles, series: t.Collection[str], namespace: str
) -> DesiredFiles:
    """The files that an object has kept, as its content; raises InvalidOptions if nodes would get no license from them."""
    label = target.label(namespace)
    info = _require_token(previous.token or b"", f"{label}, key {PREVIOUS_TOKEN_KEY},", f"{_SET_TOKEN}.")
    _require_fitting(previous.config_text, series, f"{_SET_TOKEN}, and correct gridd.conf.")
    return DesiredFiles(
        LicenseFiles(previous.token, previous.config, live.stray),
        info,
        tuple(gridd_conf_warnings(previous.config_text)),
    )


def managed_files(
    target: LicenseTarget,
    live: LicenseFiles,
    token: str | None,
    options: GriddOptions,
    series: t.Collection[str],
    namespace: str,
    manager: str,
) -> DesiredFiles:
    """The content of an object that another tool manages; the object is not changed. Raises InvalidOptions if nodes would get no license from it."""
    label = target.label(namespace)
    remedy = managed_remedy(target, namespace, manager)
    if live.token is None or live.config is None:
        raise InvalidOptions([f"{_missing_keys(target, live, namespace)} {remedy}"])
    info = _require_token(live.token, label, remedy)
    _require_fitting(live.config_text, series, remedy)
    present = parse_gridd_conf(live.config_text)
    differing = ["the token"] if token is not None and not _same_token(live.token, token.encode()) else []
    differing += [LICENSE_CONFIG_KEY] if options.parameters.items() - present.items() else []
    warnings = gridd_conf_warnings(live.config_text)
    if differing:
        warnings.append(f"{label} is managed by {manager}, and is not changed. Set {join_words(differing)} there.")
    return DesiredFiles(live, info, tuple(warnings))


def _require_token(content: bytes, label: str, remedy: str) -> TokenInfo:
    """The values of the token in an object; raises InvalidOptions if the token is not valid."""
    try:
        return parse_token(content)
    except InvalidToken as error:
        raise InvalidOptions([f"The token in {label} {error}. {remedy}"]) from None


def managed_remedy(target: LicenseTarget, namespace: str, manager: str) -> str:
    """The remedy for an object that another tool manages."""
    return f"{target.label(namespace)} is managed by {manager}; correct it there."


def token_of(files: LicenseFiles) -> TokenInfo | None:
    """The values of the token; None if there is no valid token."""
    try:
        return parse_token(files.token) if files.token is not None else None
    except InvalidToken:
        return None


def require_renewal(
    target: LicenseTarget, live: LicenseFiles, desired: DesiredFiles, namespace: str, *, given: bool = True
) -> None:
    """Raise InvalidOptions if the token would replace a newer one. If the user has provided the token, also raise it if the existing token is for a
    different license server.
    """
    current = token_of(live)
    if current is None:
        return
    if reasons := desired.token.not_a_renewal_of(current) if given else desired.token.older_than(current):
        raise InvalidOptions(
            [
                f"The token ({desired.token.description}) is not a renewal of the one in {target.label(namespace)} ({current.description}): "
                f"{join_words(reasons)}. Provide a newer token from the same license server, or set {REPLACE_OPTION} to true."
            ]
        )


def other_config_warning(
    target: LicenseTarget, desired: LicenseFiles, origin: LicenseTarget, mounted: LicenseFiles, namespace: str
) -> str:
    """A warning if the object's gridd.conf differs from the one in the object that the drivers mount now; empty otherwise."""
    if mounted.config is None or parse_gridd_conf(mounted.config_text) == parse_gridd_conf(desired.config_text):
        return ""
    return f"gridd.conf of {target.label(namespace)} differs from that of {origin.label(namespace)}, which the drivers mount until they restart."


def _config(
    target: LicenseTarget, live: LicenseFiles, options: GriddOptions, series: t.Collection[str], namespace: str
) -> tuple[bytes, list[str]]:
    """The content of gridd.conf, and warnings about it; raises InvalidOptions if nodes would get no license.

    Undeclared parameters are kept, with one exception: in a managed file, a FeatureType that is missing or does not fit the nodes is set automatically.
    """
    # Bytes that are not valid UTF-8 are also kept.
    before = GRIDD_CONF_HEADER if live.config is None else live.config.decode(errors="surrogateescape")
    parameters = options.parameters
    if is_managed_gridd_conf(before) and options.feature_type is None:
        present = feature_type_of(before)
        if present is None or any(feature_mismatch(present, kind) for kind in series):
            parameters = {"FeatureType": str(AUTOMATIC), **parameters}
    text = with_parameters(before, parameters)
    if options.feature_type is None:
        remedy = f"Correct it in {target.label(namespace)}, or set {FEATURE_TYPE_OPTION}."
    else:
        remedy = f"Set another {FEATURE_TYPE_OPTION}, or remove it."
    _require_fitting(text, series, remedy)
    return text.encode(errors="surrogateescape"), gridd_conf_warnings(text)


def _require_fitting(text: str, series: t.Collection[str], remedy: str) -> None:
    """Raise InvalidOptions if nodes with vGPU types of these series would get no license with this gridd.conf."""
    feature = feature_type_of(text)
    if mismatches := [reason for kind in sorted(series) if (reason := feature_mismatch(feature, kind))]:
        raise InvalidOptions([f"gridd.conf: {reason}. {remedy}" for reason in mismatches])


def object_body(
    target: LicenseTarget,
    namespace: str,
    live: Document | None,
    before: LicenseFiles,
    after: LicenseFiles,
    previous: LicenseFiles | None = None,
) -> Object | None:
    """The object to create, or the patch for the existing one; None if the existing object already contains the files. `previous` contains the files to
    keep beside them.
    """
    if live is not None and (before.token, before.config) == (after.token, after.config):
        return None
    metadata: Object = {"name": target.name, "namespace": namespace}
    if live is None:
        metadata["annotations"] = {CREATED_ANNOTATION: "true"}
    else:
        metadata["resourceVersion"] = live["metadata"]["resourceVersion"]
    files: dict[str, bytes | None] = {LICENSE_TOKEN_KEY: after.token or b"", LICENSE_CONFIG_KEY: after.config or b""}
    if previous is not None:
        files |= {PREVIOUS_TOKEN_KEY: previous.token, PREVIOUS_CONFIG_KEY: previous.config or b""}
    elif before.previous is not None:
        # In a merge patch, null deletes a key.
        files |= {PREVIOUS_TOKEN_KEY: None, PREVIOUS_CONFIG_KEY: None}
    body: Object = {"apiVersion": "v1", "kind": target.kind, "metadata": metadata}
    if target.kind == SECRET:
        return {**body, "type": _OPAQUE, "data": {key: _encode(value) for key, value in files.items()}}
    texts = {key: value.decode(errors="replace") if value is not None else None for key, value in files.items()}
    return {**body, "data": texts}


def _encode(value: bytes | None) -> str | None:
    return base64.b64encode(value).decode() if value is not None else None


def _same_token(one: bytes, other: bytes) -> bool:
    """Whether two files have the same token; a line break at the end is ignored."""
    return one.strip() == other.strip()


def _entries(live: Document, field: str) -> t.Iterable[tuple[str, t.Any]]:
    return (live.get(field) or {}).items()


def _decode(value: t.Any) -> bytes:
    try:
        return base64.b64decode(str(value))
    except (binascii.Error, ValueError):
        return b""
