# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the fields of a ClusterPolicy that affect the template of the driver's DaemonSet, and describes the resulting driver rollout (pure).

Source: gpu-operator v25.10.1 controllers/object_controls.go (TransformDriver, applyCommonDaemonsetMetadata and -Config) and
controllers/upgrade_controller.go. The update strategy of this DaemonSet is OnDelete, so the operator treats every change to its template as an
upgrade and upgrades one node after another.

In v26.3 and earlier, every upgrade evicts the GPU pods of the node. Since v26.7, the operator compares the digest of the driver's configuration in the
running pod with the one in the template (internal/predicates/restart_only.go, internal/config/driver_config_digest.go). If they are equal, it cordons the
node and restarts the driver pod without evicting GPU pods, and the driver manager keeps the loaded driver (k8s-driver-manager
v0.10, cmd/driver-manager/main.go, shouldSkipUninstall).

With driver.useNvidiaDriverCRD, the driver's DaemonSets belong to NVIDIADriver objects instead (internal/state/driver.go): the only field of the
ClusterPolicy that affects them is hostPaths.rootFS. Since v26.7, each object has its own upgrade policy (controllers/upgrade_controller.go).
"""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass, field, replace

from ..catalog.operands import DRIVER, restarted_apps
from ..catalog.releases import compares_digests, restarts_in_place
from ..cluster_state.cluster_policy import uses_driver_objects
from ..cluster_state.operand_pods import daemonset_status
from ..common.nested import get_nested
from ..schema.messages import abbreviate, join_words, option_of_role

Document = t.Mapping[str, t.Any]
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
    for part in PARTS:
        old, new = before.get(part), after.get(part)
        if part in _SIDECARS and not any(isinstance(item, dict) and item.get("enabled") for item in (old, new)):
            continue
        paths += [path for path in differing_fields(old, new, (part,)) if DRIVER in restarted_apps(path)]
    return paths


def differing_fields(before: t.Any, after: t.Any, path: Path = ()) -> list[Path]:
    """The paths at which two documents differ; lists are compared as a whole, and an empty value equals a missing one."""
    if isinstance(before, dict) or isinstance(after, dict):
        old, new = (value if isinstance(value, dict) else {} for value in (before, after))
        return [
            difference
            for key in sorted({*old, *new})
            for difference in differing_fields(old.get(key), new.get(key), (*path, key))
        ]
    return [] if before == after or (is_empty(before) and is_empty(after)) else [path]


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


def is_empty(value: t.Any) -> bool:
    """Whether a value is None or empty; False and 0 are not."""
    return value is None or (isinstance(value, (str, list, dict)) and not value)


def _format_value(value: t.Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if is_empty(value):
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
