# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Foreign installations of NFD and GPU operators: by Helm, by OLM, as a cloud's add-on.

OLM's metadata is from operator-lifecycle-manager v0.46 with NVIDIA's bundle: pkg/lib/ownerutil for the labels, the bundle's
alm-examples for the ClusterPolicy. A cloud's add-on manager applies the rendered charts.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from tests.labs import Lab
from tests.programs import run

Object = dict[str, Any]

CSV = "gpu-operator-certified.v25.10.1"
OLM_NAMESPACE, OLM_NFD_NAMESPACE = "nvidia-gpu-operator", "openshift-nfd"
CLOUD, CLOUD_NAMESPACE = "cern-magnum", "kube-system"
HELM, HELM_NAMESPACE = "nvidia-gpu-operator", "gpus"


def nothing(_lab: Lab) -> None:
    """An empty cluster."""


def nfd_alone(lab: Lab) -> None:
    """NFD by Helm, with the chart's own values."""
    _helm_install(lab, "discovery", "hardware", "node-feature-discovery")


def by_helm(lab: Lab) -> None:
    """NVIDIA's chart including NFD, as in its installation guide, under other names."""
    _helm_install(lab, HELM, HELM_NAMESPACE, "gpu-operator")


def by_olm(lab: Lab) -> None:
    """Two operators from OLM: NVIDIA's, with the ClusterPolicy of its examples, and NFD's operands."""
    objects = list(_rendered(lab, "gpu-operator", OLM_NAMESPACE, "gpu-operator", "--set=nfd.enabled=false"))
    for item in objects:
        metadata = item["metadata"]
        metadata["labels"] = _without_helm(metadata.get("labels"))
        if item["kind"] == "ClusterPolicy":
            metadata["name"] = "gpu-cluster-policy"
        else:
            metadata["labels"] |= _of_olm(CSV, OLM_NAMESPACE)
    _apply(lab, objects, OLM_NAMESPACE)
    features = list(_rendered(lab, "nfd", OLM_NFD_NAMESPACE, "node-feature-discovery"))
    for item in features:
        item["metadata"]["labels"] = _without_helm(item["metadata"].get("labels"))
        if item["kind"] in ("Deployment", "DaemonSet"):
            _as_operand(item)
    _apply(lab, features, OLM_NFD_NAMESPACE)


def by_a_cloud(lab: Lab) -> None:
    """Both in kube-system, applied by an add-on manager: with Helm's labels, without a release."""
    _apply(lab, list(_rendered(lab, CLOUD, CLOUD_NAMESPACE, "gpu-operator")), CLOUD_NAMESPACE)


STATES: dict[str, Callable[[Lab], None]] = {
    "nothing": nothing,
    "nfd": nfd_alone,
    "helm": by_helm,
    "olm": by_olm,
    "cloud": by_a_cloud,
}


def _helm_install(lab: Lab, release: str, namespace: str, chart: str, *options: str) -> None:
    run(
        "helm",
        "install",
        release,
        f"{_charts(lab)}/{chart}",
        "-n",
        namespace,
        "--create-namespace",
        *options,
        env=lab.env,
    )


def _rendered(lab: Lab, release: str, namespace: str, chart: str, *options: str) -> Iterator[Object]:
    """The objects that Helm would install: CRDs first, without hooks."""
    words = ("--include-crds", "--no-hooks", "-n", namespace, *options)
    text = run("helm", "template", release, f"{_charts(lab)}/{chart}", *words, env=lab.env)
    return (item for item in yaml.load_all(text, Loader=yaml.CSafeLoader) if item)


def _charts(lab: Lab) -> str:
    return lab.env["LAB_CHARTS"]


def _apply(lab: Lab, objects: list[Object], namespace: str) -> None:
    first = [item for item in objects if item["kind"] == "CustomResourceDefinition"]
    rest = [item for item in objects if item["kind"] != "CustomResourceDefinition"]
    place = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    for part in ([place, *first], rest):
        if not part:
            continue
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": part})
        words = [
            "kubectl",
            "apply",
            "--server-side",
            "--validate=false",
            "--field-manager=add-on-manager",
            "-n",
            namespace,
            "-f",
            "-",
        ]
        subprocess.run(words, input=listed, text=True, env=lab.env, check=True, stdout=subprocess.DEVNULL)
        for item in part:
            if item["kind"] == "CustomResourceDefinition":
                name = item["metadata"]["name"]
                run("kubectl", "wait", "--for=condition=Established", f"crd/{name}", env=lab.env)


def _without_helm(labels: Object | None) -> Object:
    return {
        key: value for key, value in (labels or {}).items() if not key.startswith(("helm.sh/", "app.kubernetes.io/"))
    }


def _of_olm(csv: str, namespace: str) -> Object:
    return {
        "olm.managed": "true",
        "olm.owner": csv,
        "olm.owner.kind": "ClusterServiceVersion",
        "olm.owner.namespace": namespace,
        f"operators.coreos.com/gpu-operator-certified.{namespace}": "",
    }


def _as_operand(item: Object) -> None:
    """Change an object to what the NFD operator creates: only its app as name and label."""
    app = f"nfd-{item['metadata']['name'].rpartition('-')[2]}"
    item["metadata"]["name"] = app
    item["metadata"]["labels"] = {"app": app}
    labels = {"app": app}
    item["spec"]["selector"] = {"matchLabels": labels}
    item["spec"]["template"]["metadata"]["labels"] = labels
