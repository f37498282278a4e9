# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ClusterPolicy: effective settings, differences, and which of them restart drivers (pure)."""

from __future__ import annotations

import json
import math
import typing as t
from dataclasses import dataclass, field, replace

from ..catalog import releases
from ..catalog.names import (
    CREATED_ANNOTATION,
    DEFAULT_MIG_CONFIGMAP,
    DRIVER_DEPLOY_LABEL,
    FIELD_MANAGER,
    FORMER_ANNOTATION,
    GPU_PRESENT_LABEL,
    GPU_TAINT_KEY,
    MIG_CONFIGMAP,
    OWNED_TOLERATIONS_ANNOTATION,
    POOL_LABEL,
)
from ..catalog.openshift import OPERATOR
from ..catalog.operands import DRIVER, restarted_apps
from ..catalog.releases import compares_digests, restarts_in_place
from ..catalog.taints import Taint, Toleration, is_covered, toleration_identity, untolerated_taints
from ..core.messages import abbreviate, join_words, option_of_role, quote
from ..core.values import Document, Object, apply_merge_patch, get_nested, parse_json
from ..kube.fields import child, difference, helm_release_of, is_created_by_collection, owned_by
from ..nodes.pods import daemonset_status
from ..schema.variables import merge

if t.TYPE_CHECKING:
    from ..pools.plan import Plan, PolicyPlan

# Selects the ClusterPolicy that the operator uses, and reads its tolerations and the recorded previous values of changed fields (pure).

Spec = dict[str, t.Any]


def active_policy(policies: t.Iterable[Document]) -> Document | None:
    """The ClusterPolicy that the operator uses: the oldest one, or the first by name if two have the same age."""
    return min(
        policies, key=lambda policy: (policy["metadata"]["creationTimestamp"], policy["metadata"]["name"]), default=None
    )


def uses_driver_objects(spec: Document) -> bool:
    """Whether, under this spec, NVIDIADriver objects describe the driver instead of the ClusterPolicy."""
    driver = spec.get("driver") or {}
    return driver.get("enabled") is not False and driver.get("useNvidiaDriverCRD") is True


# The toleration in the manifest of every operand's and driver's DaemonSet. The operator replaces it only with a list that is not empty
# (gpu-operator v25.3.2 and v25.10.1 controllers/object_controls.go, applyCommonDaemonsetConfig).
_GPU_TOLERATION = {"key": GPU_TAINT_KEY, "operator": "Exists", "effect": "NoSchedule"}


def policy_tolerations(policy: Document) -> list[dict[str, t.Any]]:
    """The tolerations of the operands' DaemonSets under a ClusterPolicy: the list in its spec or, without entries, the operator's default."""
    return written_tolerations(policy) or [dict(_GPU_TOLERATION)]


def written_tolerations(policy: Document) -> list[dict[str, t.Any]]:
    """The entries of the list in a ClusterPolicy's spec; empty if the operator's default applies."""
    return list(((policy.get("spec") or {}).get("daemonsets") or {}).get("tolerations") or [])


def plugin_configmap(policy: Document | None) -> str:
    """The name of the device plugin's ConfigMap according to a ClusterPolicy; empty if the ClusterPolicy does not set it."""
    return str(get_nested(policy, "spec", "devicePlugin", "config", "name") or "")


def mig_configmap(policy: Document | None) -> str:
    """The name of the MIG manager's ConfigMap according to this ClusterPolicy, or the default name if the ClusterPolicy does not set it."""
    return str(get_nested(policy, "spec", "migManager", "config", "name") or DEFAULT_MIG_CONFIGMAP)


def recorded_tolerations(policy: Document) -> list[dict[str, t.Any]] | None:
    """The tolerations that the annotation records as set by the collection; None without the annotation, empty if it cannot be parsed."""
    text = (policy["metadata"].get("annotations") or {}).get(OWNED_TOLERATIONS_ANNOTATION)
    if text is None:
        return None
    return [entry for entry in parse_json(text, list) or () if isinstance(entry, dict)]


def recorded_previous_spec(policy: Document) -> Spec:
    """The part of the previous spec that is recorded in the annotation; empty if nothing is recorded or the record cannot be parsed."""
    return parse_json((policy["metadata"].get("annotations") or {}).get(FORMER_ANNOTATION), dict) or {}


def restore_previous_spec(spec: Spec, previous: Spec) -> Spec:
    """Restore the previous values in a spec without the collection's fields; a field that has been set to another value since then keeps that value."""
    result = dict(spec)
    for key, value in previous.items():
        below = result.get(key)
        if isinstance(value, dict) and isinstance(below or {}, dict):
            result[key] = restore_previous_spec(below or {}, value)
        elif key not in result:
            result[key] = value
    return result


# Evaluates NVIDIADriver objects: the nodes that they select, their state, and the taints that their pods do not tolerate (pure).
#
# Sources: gpu-operator v25.10.1 and v26.7.0, api/nvidia/v1alpha1/nvidiadriver_types.go, internal/validator/validator.go and
# internal/nvidiadriver/nvidiadriver.go.

Labels = t.Mapping[str, str]

DRIVER_API_VERSION, DRIVER_KIND = "nvidia.com/v1alpha1", "NVIDIADriver"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
# The reasons that the operator gives if the only problem is that operands are not ready (gpu-operator internal/conditions).
NOT_READY_REASONS = ("OperandNotReady", "DriverNotReady")
# The default selector.
_ALL_GPU_NODES = {GPU_PRESENT_LABEL: "true"}


def driver_node_selector(driver: Document) -> Labels:
    """The labels that the object requires of a node; without a selector, the label of all GPU nodes."""
    return get_nested(driver, "spec", "nodeSelector") or _ALL_GPU_NODES


def is_default(driver: Document) -> bool:
    """Whether the object applies to the nodes that no other object selects (since v26.7)."""
    return get_nested(driver, "spec", "default") is True


def follows_own_policies(drivers: t.Iterable[Document], version: str) -> bool:
    """Whether the operator supports an upgrade policy in each object, and default objects; v26.7 introduced both.

    Since v26.7, the API server sets the field `default` in each object. If no object has this field, the result depends on the operator's `version`,
    and is False if the version is unknown (empty).
    """
    if any("default" in (item.get("spec") or {}) for item in drivers):
        return True
    return bool(version) and releases.release_of(version) >= releases.OWN_UPGRADE_POLICY_SINCE


def is_managed_driver(driver: Document) -> bool:
    """Whether this collection has created the object."""
    return (driver["metadata"].get("labels") or {}).get(MANAGED_BY_LABEL) == FIELD_MANAGER


def driver_of_nodes(drivers: t.Sequence[Document], nodes: t.Iterable[tuple[str, Labels]]) -> dict[str, list[str]]:
    """For each GPU node whose driver the operator installs, the names of the objects that select the node.

    The default object is included only if no other object selects the node.
    """
    default = [item["metadata"]["name"] for item in drivers if is_default(item)]
    selectors = [(item["metadata"]["name"], driver_node_selector(item)) for item in drivers if not is_default(item)]
    by_node: dict[str, list[str]] = {}
    for name, labels in nodes:
        if labels.get(GPU_PRESENT_LABEL) != "true" or labels.get(DRIVER_DEPLOY_LABEL) != "true":
            continue
        selecting = [
            driver for driver, selector in selectors if all(labels.get(key) == value for key, value in selector.items())
        ]
        by_node[name] = selecting or default
    return by_node


def driver_state_message(driver: Document) -> str:
    """The reason why the operator does not report the object as ready; empty if the operator reports it as ready."""
    status = driver.get("status") or {}
    state = str(status.get("state") or "")
    if state == "ready":
        return ""
    error = _error(driver)
    details, reason = str(error.get("message") or "").strip(), str(error.get("reason") or "")
    return ": ".join(filter(None, (f"state {state or 'none'}" + (f" ({reason})" if reason else ""), details)))


def reports_only_pods(driver: Document) -> bool:
    """Whether the operator reports only that driver pods are not ready."""
    state = (driver.get("status") or {}).get("state")
    return state == "notReady" and _error(driver).get("reason") in (None, *NOT_READY_REASONS)


def _error(driver: Document) -> Document:
    """The condition Error if it is true; otherwise, an empty map."""
    conditions = {item.get("type"): item for item in (driver.get("status") or {}).get("conditions") or []}
    error: Document = conditions.get("Error") or {}
    return error if error.get("status") == "True" else {}


def driver_results(drivers: t.Sequence[Document], nodes: t.Iterable[tuple[str, Labels]]) -> list[dict[str, t.Any]]:
    """The objects in the format of a report, with pool (None if the selector has no pool label), version, number of nodes and state."""
    selecting = driver_of_nodes(drivers, nodes)
    return [
        {
            "name": item["metadata"]["name"],
            "managed": is_managed_driver(item),
            "pool": get_nested(item, "spec", "nodeSelector", POOL_LABEL),
            "default": is_default(item),
            "version": get_nested(item, "spec", "version"),
            "nodes": sum(item["metadata"]["name"] in names for names in selecting.values()),
            "state": get_nested(item, "status", "state"),
            "message": driver_state_message(item),
        }
        for item in sorted(drivers, key=lambda item: item["metadata"]["name"])
    ]


def untolerated_by_driver(
    drivers: t.Sequence[Document], pool: str, taints: t.Sequence[Taint], expected: t.Iterable[Document] = ()
) -> list[Taint]:
    """The taints of a pool that the driver pods on its nodes do not tolerate; managed objects count as having the `expected` tolerations.

    The pods belong to the objects that select the pool's label or, if there are none, to the default object and the objects for all GPU nodes.
    """
    own = [item for item in drivers if driver_node_selector(item).get(POOL_LABEL) == pool]
    for_all = [item for item in drivers if is_default(item) or driver_node_selector(item) == _ALL_GPU_NODES]
    missing: list[Taint] = []
    for item in own or for_all:
        # The DaemonSet of every object keeps the toleration of its manifest (manifests/state-driver/0500_daemonset.yaml).
        tolerations = [_GPU_TOLERATION, *(get_nested(item, "spec", "tolerations") or ())]
        tolerations += expected if is_managed_driver(item) else ()
        missing += [taint for taint in untolerated_taints(tolerations, taints) if taint not in missing]
    return missing


# Finds the fields of a ClusterPolicy that affect the template of the driver's DaemonSet, and describes the resulting driver rollout (pure).
#
# Source: gpu-operator v25.10.1 controllers/object_controls.go (TransformDriver, applyCommonDaemonsetMetadata and -Config) and
# controllers/upgrade_controller.go. The update strategy of this DaemonSet is OnDelete, so the operator treats every change to its template as an
# upgrade and upgrades one node after another.
#
# In v26.3 and earlier, every upgrade evicts the GPU pods of the node. Since v26.7, the operator compares the digest of the driver's configuration in the
# running pod with the one in the template (internal/predicates/restart_only.go, internal/config/driver_config_digest.go). If they are equal, it cordons the
# node and restarts the driver pod without evicting GPU pods, and the driver manager keeps the loaded driver (k8s-driver-manager
# v0.10, cmd/driver-manager/main.go, shouldSkipUninstall).
#
# With driver.useNvidiaDriverCRD, the driver's DaemonSets belong to NVIDIADriver objects instead (internal/state/driver.go): the only field of the
# ClusterPolicy that affects them is hostPaths.rootFS. Since v26.7, each object has its own upgrade policy (controllers/upgrade_controller.go).

Path = tuple[str, ...]

ALLOW_DRIVER_ROLLOUT = option_of_role("gpu_operator_allow_driver_rollout", "allow_driver_rollout")

PARTS = ("driver", "daemonsets", "gds", "gdrcopy", "hostPaths")
# The sidecars, which the template contains only if they are enabled.
_SIDECARS = frozenset({"gds", "gdrcopy"})
# Fields that affect the template but not the digest. The digest is computed from the images, commands, arguments, environment and mounts of the
# driver's containers, and the volumes of the pod (gpu-operator v26.7.0 controllers/object_controls.go, extractDriverInstallConfig).
_NOT_IN_DIGEST: frozenset[Path] = frozenset(
    {
        *(
            ("daemonsets", name)
            for name in ("annotations", "labels", "podSecurityContext", "priorityClassName", "tolerations")
        ),
        *(("driver", name) for name in ("hostNetwork", "livenessProbe", "readinessProbe", "resources", "startupProbe")),
        *(
            (*component, name)
            for component in (("driver",), ("driver", "manager"), ("gds",), ("gdrcopy",))
            for name in ("imagePullPolicy", "imagePullSecrets")
        ),
    }
)
_DIGEST = "DRIVER_CONFIG_DIGEST"
# The driver manager and the setting that makes it always unload the driver.
_MANAGER, _FORCE_REINSTALL = "k8s-driver-manager", "FORCE_REINSTALL"
# Fields whose values may be shown in messages. Boolean and numeric values of all fields may also be shown; other values may be confidential.
_SHOWN = frozenset(
    {
        *(
            "configMapName",
            "default",
            "image",
            "imagePullPolicy",
            "kernelModuleType",
            "name",
            "repository",
            "secretName",
        ),
        *("strategy", "version"),
    }
)
# The field whose value is a list of names, which may be shown.
_SHOWN_LIST = "imagePullSecrets"


# The field that replaces the ClusterPolicy's driver DaemonSet with those of NVIDIADriver objects.
SWITCH: Path = ("driver", "useNvidiaDriverCRD")
_ROOT: Path = ("hostPaths", "rootFS")


def driver_fields(before: Document, after: Document) -> list[Path]:
    """The paths at which the specs of two policies differ in a way that changes a driver DaemonSet."""
    if uses_driver_objects(before) and uses_driver_objects(after):
        return [] if get_nested(before, *_ROOT) == get_nested(after, *_ROOT) else [_ROOT]
    paths: list[Path] = []
    before, after = _with_tolerations(before), _with_tolerations(after)
    for part in PARTS:
        old, new = before.get(part), after.get(part)
        if part in _SIDECARS and not any(isinstance(item, dict) and item.get("enabled") for item in (old, new)):
            continue
        paths += [path for path in differing_fields(old, new, (part,)) if DRIVER in restarted_apps(path)]
    return paths


def _with_tolerations(spec: Document) -> Document:
    """The spec with the tolerations that its DaemonSets have, because the operator's default equals a list with only this entry."""
    daemonsets = spec.get("daemonsets") or {}
    return {**spec, "daemonsets": {**daemonsets, "tolerations": policy_tolerations({"spec": spec})}}


def differing_fields(before: t.Any, after: t.Any, path: Path = ()) -> list[Path]:
    """The paths at which two documents differ; lists are compared as a whole, and an empty value equals a missing one."""
    if isinstance(before, dict) or isinstance(after, dict):
        old, new = (value if isinstance(value, dict) else {} for value in (before, after))
        return [
            difference
            for key in sorted({*old, *new})
            for difference in differing_fields(old.get(key), new.get(key), (*path, key))
        ]
    return [] if before == after or (is_unset(before) and is_unset(after)) else [path]


def keeps_digest(paths: t.Iterable[Path]) -> bool:
    """Whether changes at these paths below spec leave the digest of the driver's configuration unchanged."""
    return all(any(path[:length] in _NOT_IN_DIGEST for length in (2, 3)) for path in paths)


def is_in_place(paths: t.Iterable[Path], version: str, policy: UpgradePolicy, drivers: t.Collection[Document]) -> bool:
    """Whether changes at these paths restart the pods of these driver DaemonSets without evicting GPU pods.

    `version` is the operator's release. Do not call this function if the release changes, because a new release may change the templates themselves.
    DaemonSets with outdated pods do not qualify, because these pods may have a different digest than the template.
    """
    return (
        policy.automatic
        and restarts_in_place(version)
        and keeps_digest(paths)
        and all(_has_digest(item) and not daemonset_status(item).is_outdated for item in drivers)
    )


def _has_digest(daemonset: Document) -> bool:
    """Whether the operator and the driver manager compare digests: the template contains a digest, and no setting forces a driver reinstallation."""
    spec = daemonset["spec"]["template"]["spec"]
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    managers = [str(item.get("image") or "") for item in containers if item.get("name") == _MANAGER]
    env = {item["name"]: item.get("value") for each in containers for item in each.get("env") or ()}
    return (
        bool(env.get(_DIGEST))
        and env.get(_FORCE_REINSTALL) != "true"
        and bool(managers)
        and all(map(compares_digests, managers))
    )


def format_change(before: Document, after: Document, path: Path) -> str:
    """Describe a difference between two specs: its path, and both values unless they may be confidential."""
    name = ".".join(path)
    values = [get_nested(document, *path) for document in (before, after)]
    if not may_show(path, *values):
        return name
    old, new = map(_format_value, values)
    return f"{name} {old} becomes {new}"


def may_show(path: Path, *values: t.Any) -> bool:
    """Whether messages may contain these values of a field; maps are never shown, and lists are shown only if they contain names of Secrets."""
    allowed = (bool, int, str) if path[-1] in _SHOWN else (list,) if path[-1] == _SHOWN_LIST else (bool, int)
    return all(value is None or isinstance(value, allowed) for value in values)


def is_unset(value: t.Any) -> bool:
    """Whether a value is None or empty; False and 0 are not."""
    return value is None or (isinstance(value, (str, list, dict)) and not value)


def _format_value(value: t.Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if is_unset(value):
        return "(not set)"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@dataclass(frozen=True)
class UpgradePolicy:
    """How driver pods are replaced: automatically by the operator or only when they are deleted manually.

    `setting` is the field that determines this; `at_once` is true if all pods are deleted at the same time.
    """

    automatic: bool
    parallel: int = 1
    unavailable: str = "25%"
    setting: str = "the ClusterPolicy's driver.upgradePolicy.autoUpgrade"
    at_once: bool = False

    @classmethod
    def from_spec(cls, spec: Document) -> UpgradePolicy:
        """Create a policy from a ClusterPolicy's spec; without an upgradePolicy, the operator does not replace driver pods."""
        policy = (spec.get("driver") or {}).get("upgradePolicy") or {}
        sandbox = (spec.get("sandboxWorkloads") or {}).get("enabled")
        return cls(bool(policy.get("autoUpgrade")) and not sandbox, *_limits(policy))

    @classmethod
    def from_driver(cls, name: str, spec: Document) -> UpgradePolicy:
        """Create a policy from an NVIDIADriver's spec; upgrades are automatic unless the upgradePolicy disables them."""
        policy = spec.get("upgradePolicy") or {}
        automatic = policy.get("autoUpgrade", True)
        return cls(bool(automatic), *_limits(policy), f"the upgradePolicy.autoUpgrade of NVIDIADriver {name}")

    def max_parallel(self, nodes: int) -> int:
        """The maximum number of nodes, out of `nodes`, that are upgraded at the same time; a percentage is rounded up, as in the operator."""
        if self.at_once:
            return nodes
        limit = nodes
        if self.unavailable.endswith("%"):
            limit = math.ceil(nodes * int(self.unavailable[:-1]) / 100)
        elif self.unavailable.isdecimal():
            limit = int(self.unavailable)
        return min(nodes, limit, self.parallel or nodes)


def _limits(policy: Document) -> tuple[int, str]:
    parallel, unavailable = policy.get("maxParallelUpgrades"), policy.get("maxUnavailable")
    # These are the defaults of the CRD; 0 is a valid value.
    return (1 if parallel is None else int(parallel), "25%" if unavailable is None else str(unavailable))


@dataclass(frozen=True)
class DriverRollout:
    """A change that restarts the driver: the number of nodes, the upgrade policy, and the reasons.

    `in_place` is true if the driver stays loaded while its pod restarts; no GPU pod is then evicted, so the change requires no permission.
    `parts` contains pairs of a number of nodes and the upgrade policy that their NVIDIADriver sets; `upgrade_policy` applies to all other nodes.
    """

    nodes: int
    upgrade_policy: UpgradePolicy
    reasons: tuple[str, ...]
    in_place: bool = False
    parts: tuple[tuple[int, UpgradePolicy], ...] = ()

    def __str__(self) -> str:
        if self.in_place:
            reasons = "; ".join(self.reasons)
            return f"the driver pods of {self.nodes} nodes restart in place, at most {self.max_parallel} at a time: {reasons}"
        return self._describe("the driver restarts on", "the driver is out of date on")

    def refused(self, change: str) -> str:
        """The description of a rollout that does not take place because `change` is held back or not made."""
        return self._describe(f"{change} would restart the driver on", "the driver would be out of date on")

    def _describe(self, restarts: str, outdated: str) -> str:
        reasons = f": {'; '.join(self.reasons)}" if self.reasons else ""
        manual = [(nodes, policy) for nodes, policy in self._all_parts() if nodes and not policy.automatic]
        manual_nodes = sum(nodes for nodes, dummy in manual)
        rolling = self.nodes - manual_nodes
        texts = []
        if rolling or not manual:
            where = "at the same time" if self.at_once else f"at most {self.max_parallel} at a time"
            texts.append(f"{restarts} {rolling} nodes, {where}{reasons}")
        if manual:
            fields = join_words([policy.setting for dummy, policy in manual])
            because = "" if texts else reasons
            texts.append(
                f"{outdated} {manual_nodes} nodes{because}. {fields[:1].upper()}{fields[1:]} "
                f"{'is' if len(manual) == 1 else 'are'} off, so each node keeps its driver until its driver pod is deleted"
            )
        return "; ".join(texts)

    @property
    def max_parallel(self) -> int:
        """The maximum number of nodes that are upgraded at the same time; 0 if driver pods must be deleted manually."""
        return sum(policy.max_parallel(nodes) for nodes, policy in self._all_parts() if policy.automatic)

    @property
    def at_once(self) -> bool:
        """Whether the operator deletes all driver pods at the same time."""
        return any(policy.at_once and nodes for nodes, policy in self._all_parts())

    @property
    def announcement(self) -> str:
        """A sentence for the warning before the change."""
        text = str(self)
        return f"{text[0].upper()}{text[1:]}. {self.effect}"

    @property
    def effect(self) -> str:
        """A sentence about the GPU pods on these nodes."""
        if self.in_place:
            return "Each node is cordoned while its driver pod restarts, and no GPU pod is evicted."
        return f"GPU pods are evicted {self._where}."

    @property
    def refused_effect(self) -> str:
        """The sentence about the GPU pods for a rollout that does not take place."""
        return f"GPU pods would be evicted {self._where}."

    @property
    def _where(self) -> str:
        return "there" if self.at_once else "from each node first"

    def as_dict(self) -> dict[str, t.Any]:
        """The rollout, formatted for a module's result."""
        return {
            "nodes": self.nodes,
            "max_parallel": self.max_parallel,
            "reasons": list(self.reasons),
            "in_place": self.in_place,
        }

    def _all_parts(self) -> list[tuple[int, UpgradePolicy]]:
        rest = max(0, self.nodes - sum(nodes for nodes, dummy in self.parts))
        # Nodes with the same policy are counted together, because the policy's limits apply to all of them.
        merged: dict[UpgradePolicy, int] = {self.upgrade_policy: rest} if rest or not self.parts else {}
        for nodes, policy in self.parts:
            merged[policy] = merged.get(policy, 0) + nodes
        return [(nodes, policy) for policy, nodes in merged.items()]


def changed_fields(paths: t.Iterable[str]) -> list[str]:
    """The reasons for a rollout, one for each changed field of the ClusterPolicy, such as spec.driver.version."""
    return [f"{path} of the ClusterPolicy changes" for path in paths]


def held_back_warning(parts: t.Sequence[str], rollout: DriverRollout, source: str = "the ClusterPolicy") -> str:
    """The warning about held-back parts of a change: fields of `source` and NVIDIADriver objects."""
    names = [part if part.startswith("NVIDIADriver ") else f"{part} of {source}" for part in parts]
    was, change = ("was", "it") if len(names) == 1 else ("were", "they")
    known = {f"{name} changes" for name in names}
    rollout = replace(rollout, reasons=tuple(reason for reason in rollout.reasons if reason not in known))
    return (
        f"{abbreviate(names)} {was} held back, because {rollout.refused(change)}. {rollout.refused_effect} "
        f"Set {ALLOW_DRIVER_ROLLOUT} to allow it."
    )


# The rollout that modules return if the driver does not change.
NO_ROLLOUT: t.Mapping[str, t.Any] = {"nodes": 0, "max_parallel": 0, "reasons": [], "in_place": False}


@dataclass(frozen=True)
class UpgradePolicies:
    """The upgrade policy of the ClusterPolicy, and the policies of NVIDIADriver objects that have their own, by name."""

    policy: UpgradePolicy
    by_driver: t.Mapping[str, UpgradePolicy] = field(default_factory=dict)

    @classmethod
    def read(cls, spec: Document, drivers: t.Iterable[Document] = (), *, own: bool) -> UpgradePolicies:
        """Create the policies from a ClusterPolicy's spec and the NVIDIADriver objects; `own` is the result of follows_own_policies()."""
        by_driver = {
            item["metadata"]["name"]: UpgradePolicy.from_driver(item["metadata"]["name"], item.get("spec") or {})
            for item in (drivers if own else ())
        }
        return cls(UpgradePolicy.from_spec(spec), by_driver)

    def of(self, driver: str) -> UpgradePolicy:
        """The policy for the driver DaemonSets of this NVIDIADriver, or, if the name is empty, of the ClusterPolicy."""
        return self.by_driver.get(driver, self.policy)

    def rollout(self, nodes: t.Mapping[str, int], reasons: t.Sequence[str]) -> DriverRollout:
        """The rollout; `nodes` contains the number of affected nodes by NVIDIADriver."""
        parts = tuple(
            (count, self.by_driver[name]) for name, count in sorted(nodes.items()) if count and name in self.by_driver
        )
        return DriverRollout(sum(nodes.values()), self.policy, tuple(reasons), parts=parts)


# Plans the change to the ClusterPolicy that the pools require, and determines how this change affects the driver (pure).
#
# Maps and scalars are applied under the collection's field manager. The list daemonsets.tolerations is atomic in the CRD. The collection
# therefore merges its entries into the list and records them in an annotation so that it can remove them later; equal foreign entries are kept.

POLICY_API_VERSION, POLICY_KIND = "nvidia.com/v1", "ClusterPolicy"
# The name of the ClusterPolicy in NVIDIA's chart.
CHART_NAME = "cluster-policy"
_VERSION_LABEL = "app.kubernetes.io/version"


def policy_version(live: Document) -> str:
    """The operator's version, according to the label that its chart sets on the policy; empty if another tool has created the policy."""
    return str((live["metadata"].get("labels") or {}).get(_VERSION_LABEL) or "")


def with_planned_values(live: Document, plan: Plan) -> Document:
    """The policy with the planned Helm values for the driver; unchanged if the policy belongs to another release.

    The defaults of a new chart are not known.
    """
    operator = plan.operator
    if helm_release_of(live) != (operator.name, operator.namespace):
        return live
    values = {part: operator.values[part] for part in PARTS if part in operator.values}
    return {**live, "spec": apply_merge_patch(live.get("spec") or {}, values)}


def planned_upgrade(live: Document, plan: Plan) -> tuple[str, str] | None:
    """The installed and the planned version of the operator if a run upgrades its release; otherwise None. Other releases are never upgraded."""
    operator, installed = plan.operator, policy_version(live)
    if operator.installed:
        return operator.installed, operator.version
    if not installed or helm_release_of(live) != (operator.name, operator.namespace):
        return None
    same = installed.removeprefix("v") == operator.version.removeprefix("v")
    return None if same else (installed, operator.version)


@dataclass(frozen=True)
class DesiredPolicy:
    """The fields that the pools require. If the policy is `adopted`, the values that these fields replace are recorded."""

    spec: Object
    tolerations: tuple[Toleration, ...]
    mig_by_node: bool = False
    adopted: bool = False
    name: str = CHART_NAME
    mig_strategies: frozenset[str] = frozenset()

    @classmethod
    def derive(cls, plan: Plan, live: Document | None) -> DesiredPolicy:
        """Derive the fields from the plan; a policy that does not belong to the planned Helm release is adopted.

        If OLM has installed the operator, this collection creates the policy. The policy then also gets the fields of gpu_cluster.operator.
        """
        tolerations = (*plan.policy.tolerations, *plan.policy.kept_tolerations)
        if plan.operator.olm is not None and (live is None or is_created_by_collection(live)):
            values = dict(plan.operator.values)
            daemonsets = dict(values.pop("daemonsets", None) or {})
            tolerations += tuple(daemonsets.pop("tolerations", None) or ())
            values = merge(values, {"daemonsets": daemonsets} if daemonsets else {})
            new_name = plan.operator.olm["resource"] or OPERATOR.resource
            name = str(live["metadata"]["name"]) if live is not None else new_name
            return cls(
                merge(values, plan.policy.spec),
                tolerations,
                plan.policy.mig_by_node,
                name=name,
                mig_strategies=plan.policy.mig_strategies,
            )
        adopted = live is not None and helm_release_of(live) != (plan.operator.name, plan.operator.namespace)
        return cls(
            plan.policy.spec, tolerations, plan.policy.mig_by_node, adopted, mig_strategies=plan.policy.mig_strategies
        )


@dataclass(frozen=True)
class PolicyChange:
    """The change that a server-side apply makes; `body` is None if no apply is needed. `before` and `after` contain the fields that the collection owns.

    `driver_paths` contains the changed paths below spec that affect the driver's DaemonSet. `removal` is an additional merge patch, because an
    apply cannot remove a field that another manager owns.
    """

    body: Object | None
    before: Object
    after: Object
    driver_paths: tuple[Path, ...] = ()
    removal: Object | None = None

    @property
    def changed(self) -> bool:
        """Whether there is any change."""
        return self.body is not None or self.removal is not None


def initial_change(desired: DesiredPolicy) -> PolicyChange:
    """The change to a policy that does not exist yet: all desired fields."""
    body = _body(desired.name, desired.spec, list(desired.tolerations), desired.tolerations)
    return PolicyChange(body=body, before={}, after=_without_version(body))


def new_policy(example: Document, desired: DesiredPolicy) -> Object:
    """A new policy: the operator's example with all desired fields and with the annotation that marks objects created by this collection.

    If pools partition GPUs, the policy has no MIG strategy, because a strategy would override the configuration of each node.
    """
    name = str(get_nested(example, "metadata", "name") or desired.name)
    tolerations = list(get_nested(example, "spec", "daemonsets", "tolerations") or ())
    merged, owned = merge_tolerations(tolerations, (), desired.tolerations)
    body = _body(name, desired.spec, merged, owned)
    spec = merge(example.get("spec") or {}, body["spec"])
    if desired.mig_by_node:
        spec["mig"] = {key: value for key, value in (spec.get("mig") or {}).items() if key != "strategy"}
    annotations = {**body["metadata"]["annotations"], CREATED_ANNOTATION: "true"}
    return {**body, "metadata": {**body["metadata"], "annotations": annotations}, "spec": spec}


def plan_change(live: Document, desired: DesiredPolicy, *, seeded: bool, hold_driver: bool = False) -> PolicyChange:
    """Compare the live policy with the desired one.

    `seeded` is true if the collection passed these tolerations to the chart when it installed the chart; equal entries then count as the
    collection's own, even without an annotation.
    `hold_driver` omits the changes that affect the driver's DaemonSet.
    """
    current = written_tolerations(live)
    recorded = recorded_tolerations(live)
    if recorded is None:
        recorded = [
            item for item in current if seeded and toleration_identity(item) in _identities(desired.tolerations)
        ]
    merged, owned = merge_tolerations(current, recorded, desired.tolerations)
    if merged == policy_tolerations(live) != current:
        # The operator's default is all that the pools need, so the list stays empty.
        merged, owned = [], []
    spec = _with_driver_objects(live, _with_mig_configmap(live, desired.spec))
    if hold_driver:
        merged, owned = current, [item for item in recorded if toleration_identity(item) in _identities(current)]
        # Fields that an earlier apply contained must also be in this apply; otherwise, the server would remove them.
        parts = child(owned_by(live, FIELD_MANAGER), "spec")
        kept = {part: _owned_part(value, {}, child(parts, part)) for part, value in (live.get("spec") or {}).items()}
        kept = {part: value for part, value in kept.items() if part in PARTS and value and child(parts, part)}
        spec = {**{key: value for key, value in spec.items() if key not in PARTS}, **kept}
    # Once the collection has applied the list, every later apply must contain it; otherwise, the server would remove it.
    applied = child(child(owned_by(live, FIELD_MANAGER), "spec"), "daemonsets")
    include_list = merged != current or "f:tolerations" in applied
    name = live["metadata"]["name"]
    strategy = _mig_strategy(live) if needs_own_strategies(live, desired) else None
    previous = _previous_spec(live, desired, spec)
    body = _body(name, spec, merged if include_list else None, owned, previous)
    differs = difference(t.cast("Object", live), body, FIELD_MANAGER).changed
    if not differs and not strategy:
        return PolicyChange(None, {}, {})
    view = _body(name, spec, merged or None, owned, previous)
    before = _without_version(_owned_part(dict(live), view, owned_by(live, FIELD_MANAGER)))
    if strategy:
        before["spec"] = {**before.get("spec", {}), "mig": {"strategy": strategy}}
    version = {"resourceVersion": live["metadata"]["resourceVersion"]}
    actual = live.get("spec") or {}
    return PolicyChange(
        body={**body, "metadata": {**body["metadata"], **version}} if differs else None,
        before=before,
        after=_without_version(view),
        driver_paths=tuple(driver_fields(actual, t.cast("Document", apply_merge_patch(actual, view["spec"])))),
        removal={"spec": {"mig": {"strategy": None}}} if strategy else None,
    )


def policy_changes(live: Document, desired: DesiredPolicy) -> list[str]:
    """The changes to the policy's fields, each as a part of a sentence; the tolerations are reported elsewhere."""
    change = plan_change(live, desired, seeded=False)
    before, after = (dict(_leaves(part.get("spec"))) for part in (change.before, change.after))
    title = f"ClusterPolicy {live['metadata']['name']}"
    texts = []
    for path in sorted({*before, *after} - {("daemonsets", "tolerations")}):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        effect = f"{quote(old)} is removed" if path not in after else f"{quote(old)} becomes {quote(new)}"
        texts.append(f"{title}: {'.'.join(path)} {effect if path in before else f'is set to {quote(new)}'}")
    return texts


def _leaves(value: t.Any, path: tuple[str, ...] = ()) -> t.Iterator[tuple[tuple[str, ...], t.Any]]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _leaves(below, (*path, key))
    elif path:
        yield path, value


def merge_tolerations(
    current: t.Sequence[Object], recorded: t.Sequence[Toleration], desired: t.Sequence[Toleration]
) -> tuple[list[Object], list[Object]]:
    """The list to write and the collection's entries in that list.

    Foreign entries keep their order, and an entry that a foreign entry covers is not added.
    """
    own, needed = _identities(recorded), _identities(desired)
    foreign = [item for item in current if toleration_identity(item) not in own]
    merged = [item for item in current if toleration_identity(item) in _identities(foreign) | needed]
    present = _identities(merged)
    merged += [
        dict(item) for item in desired if toleration_identity(item) not in present and not is_covered(item, foreign)
    ]
    owned = _identities(merged) - _identities(foreign)
    return merged, [dict(item) for item in desired if toleration_identity(item) in owned]


def needs_own_tolerations(policy: Document, tolerations: t.Iterable[Document]) -> bool:
    """Whether the list of a policy must contain entries of the collection so that the DaemonSets have these tolerations."""
    own = _identities(recorded_tolerations(policy) or ())
    foreign = [item for item in written_tolerations(policy) if toleration_identity(item) not in own]
    return any(not is_covered(item, foreign or [_GPU_TOLERATION]) for item in tolerations)


def _with_mig_configmap(live: Document, spec: Object) -> Object:
    """Keep the collection's MIG ConfigMap in the policy even if no pool uses MIG any longer, because node labels may still refer to its entries."""
    if "migManager" in spec or _mig_configmap(live.get("spec")) != MIG_CONFIGMAP:
        return spec
    return {**spec, "migManager": {"config": {"name": MIG_CONFIGMAP}}}


def _with_driver_objects(live: Document, spec: Object) -> Object:
    """Keep NVIDIADriver objects enabled even if no pool declares `driver` any longer, because disabling them would restart the driver on every node."""
    key, *below = SWITCH
    applied = child(child(owned_by(live, FIELD_MANAGER), "spec"), key)
    if key in spec or f"f:{below[0]}" not in applied or not uses_driver_objects(live.get("spec") or {}):
        return spec
    return {**spec, key: {below[0]: True}}


def _previous_spec(live: Document, desired: DesiredPolicy, spec: Object) -> Object:
    """The previous values to record: those already recorded and those that the change overwrites."""
    previous = recorded_previous_spec(live)
    if not desired.adopted:
        return previous
    strategy = _mig_strategy(live) if needs_own_strategies(live, desired) else None
    if strategy:
        previous = {**previous, "mig": {"strategy": strategy}}
    current = _mig_configmap(live.get("spec"))
    if current and current != (_mig_configmap(spec) or current):
        previous = {**previous, "migManager": {"config": {"name": current}}}
    return previous


def needs_own_strategies(live: Document, desired: DesiredPolicy | PolicyPlan) -> bool:
    """Whether the policy must have no MIG strategy, because it would override the strategy of a pool.

    A strategy that equals those of the pools stays: nodes outside the pools may depend on it, and without it, nodes of the pools would not offer their
    MIG devices until they have their own configuration.
    """
    return desired.mig_by_node and desired.mig_strategies != {_mig_strategy(live)}


def removed_mig_strategy(live: Document, planned: PolicyPlan) -> str:
    """The MIG strategy that a run removes from the policy, so that nodes outside the pools lose their MIG devices; empty if there is none."""
    strategy = _mig_strategy(live) if needs_own_strategies(live, planned) else None
    return "" if strategy == "none" else str(strategy or "")


def _mig_strategy(live: Document) -> t.Any:
    return get_nested(live, "spec", "mig", "strategy")


def _mig_configmap(spec: t.Any) -> t.Any:
    return get_nested(spec, "migManager", "config", "name")


def _body(
    name: str,
    spec: Object,
    tolerations: t.Sequence[Toleration] | None,
    owned: t.Sequence[Toleration],
    previous: Object | None = None,
) -> Object:
    annotations = {OWNED_TOLERATIONS_ANNOTATION: json.dumps([dict(item) for item in owned], sort_keys=True)}
    if previous:
        annotations[FORMER_ANNOTATION] = json.dumps(previous, sort_keys=True)
    if tolerations is not None:
        spec = {**spec, "daemonsets": {**spec.get("daemonsets", {}), "tolerations": tolerations}}
    metadata = {"name": name, "annotations": annotations}
    return {"apiVersion": POLICY_API_VERSION, "kind": POLICY_KIND, "metadata": metadata, "spec": dict(spec)}


def _without_version(body: Object) -> Object:
    return {key: value for key, value in body.items() if key != "apiVersion"}


def _owned_part(live: t.Any, desired: t.Any, applied: Object) -> t.Any:
    """The part of the live object that contains the desired fields and the fields that the collection has applied before."""
    if not isinstance(live, dict):
        return live
    below = desired if isinstance(desired, dict) else {}
    keys = dict.fromkeys([*below, *(entry[2:] for entry in applied if entry.startswith("f:"))])
    parts = {key: _owned_part(live[key], below.get(key), child(applied, key)) for key in keys if key in live}
    return {key: part for key, part in parts.items() if part != {}}


def _identities(tolerations: t.Iterable[Document]) -> set[tuple[t.Any, ...]]:
    return {toleration_identity(item) for item in tolerations}
