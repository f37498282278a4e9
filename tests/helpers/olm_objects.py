# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OLM's objects as OLM 0.46 writes them, shortened to the fields that matter."""

from __future__ import annotations

from typing import Any

from ansible_collections.accel.gpu.plugins.module_utils.olm.observed import Observed

Object = dict[str, Any]

NAMESPACE = "nvidia-gpu-operator"
PACKAGE = "gpu-operator-certified"
OLD, NEW = f"{PACKAGE}.v25.3.2", f"{PACKAGE}.v25.10.1"
OWN_MODES = [
    {"type": "OwnNamespace", "supported": True},
    {"type": "SingleNamespace", "supported": True},
    {"type": "MultiNamespace", "supported": False},
    {"type": "AllNamespaces", "supported": False},
]


def metadata(name: str, /, **more: Any) -> Object:
    return {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "resourceVersion": "1"} | more


def group(name: str = "group", **spec: Any) -> Object:
    return {"metadata": metadata(name), "spec": spec or {"targetNamespaces": [NAMESPACE]}, "status": {}}


def subscription(name: str = PACKAGE, *, conditions: list[Object] | None = None, **more: Any) -> Object:
    """`more`: fields of the status; `spec` and `metadata` are merged."""
    spec = {
        "name": PACKAGE,
        "channel": "stable",
        "source": "certified-operators",
        "sourceNamespace": "openshift-marketplace",
        "installPlanApproval": "Manual",
        **more.pop("spec", {}),
    }
    body = metadata(name, **more.pop("metadata", {}))
    status = {**more, "conditions": conditions or []}
    if "plan" in status:
        status["installPlanRef"] = {"name": status.pop("plan")}
    return {"metadata": body, "spec": spec, "status": status}


def condition(kind: str, reason: str = "", message: str = "", status: str = "True") -> Object:
    actual = {"type": kind, "status": status}
    return {**actual, **({"reason": reason} if reason else {}), **({"message": message} if message else {})}


def plan(*csvs: str, phase: str = "RequiresApproval", name: str = "install-1", **status: Any) -> Object:
    approved = phase != "RequiresApproval"
    spec = {"approval": "Manual", "approved": approved, "clusterServiceVersionNames": list(csvs), "generation": 1}
    return {"metadata": metadata(name), "spec": spec, "status": {"phase": phase, **status}}


def csv(name: str = NEW, phase: str = "Succeeded", reason: str = "", message: str = "", **more: Any) -> Object:
    package, dummy, version = name.partition(".v")
    deployment = {"name": package, "spec": {"template": {"spec": more.pop("pod", {})}}}
    spec = {
        "version": version,
        "installModes": OWN_MODES,
        "install": {"spec": {"deployments": [deployment]}},
        **more.pop("spec", {}),
    }
    status = {"phase": phase, "reason": reason, "message": message, **more.pop("status", {})}
    return {"metadata": metadata(name, **more.pop("metadata", {})), "spec": spec, "status": status}


def deployment(name: str = PACKAGE, ready: int = 1, **pod: Any) -> Object:
    status = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": ready}
    template = {"spec": {"containers": [{"name": "main"}], **pod}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"metadata": metadata(name, generation=1), "spec": spec, "status": status}


def installed(name: str = NEW, **more: Any) -> Object:
    """The Subscription of an installed version."""
    return subscription(state="AtLatestKnown", currentCSV=name, installedCSV=name, plan="install-1", **more)


def observed(**objects: Any) -> Observed:
    """A healthy, complete installation of NEW, with some collections replaced."""
    healthy: dict[str, Any] = {
        "groups": (group(),),
        "subscriptions": (installed(),),
        "plans": (plan(NEW, phase="Complete"),),
        "csvs": (csv(),),
        "deployments": (deployment(),),
    }
    return Observed(NAMESPACE, **{**healthy, **{key: tuple(value) for key, value in objects.items()}})


def manifest(source: str = "certified-operators", **more: Any) -> Object:
    """The PackageManifest of the GPU operator with the channels stable, v25.3 and v25.10."""
    channels = more.pop("channels", {"stable": [NEW, OLD], "v25.10": [NEW], "v25.3": [OLD]})
    status = {
        "packageName": PACKAGE,
        "catalogSource": source,
        "catalogSourceNamespace": "openshift-marketplace",
        "defaultChannel": "v25.10",
        "channels": [_channel(name, csvs) for name, csvs in channels.items()],
        **more,
    }
    return {"metadata": {"name": PACKAGE}, "status": status}


def _channel(name: str, csvs: list[str]) -> Object:
    version = csvs[0].partition(".v")[2]
    description = {
        "version": version,
        "installModes": OWN_MODES,
        "annotations": {"olm.skipRange": f">=1.9.0 <{version}"},
    }
    entries = [{"name": item, "version": item.partition(".v")[2]} for item in csvs]
    return {"name": name, "currentCSV": csvs[0], "currentCSVDesc": description, "entries": entries}
