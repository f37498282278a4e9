# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Both operators in the lab, installed through OLM without the collection: the real programs do their work on RHCOS nodes."""

from __future__ import annotations

import pytest

from tests.helpers.openshift import GPU_CSV, GPU_NAMESPACE, GPU_PACKAGE, NFD_NAMESPACE, OpenShift
from tests.helpers.polling import until
from tests.labs import Lab

pytestmark = [pytest.mark.usual(60)]


@pytest.fixture(scope="module")
def cluster(openshift_lab: Lab) -> OpenShift:
    return OpenShift(openshift_lab).installed()


def test_the_catalogs_offer_the_real_releases(cluster: OpenShift) -> None:
    assert cluster.channels(GPU_PACKAGE) == {
        "stable": GPU_CSV,
        "v25.3": f"{GPU_PACKAGE}.v25.3.2",
        "v25.10": GPU_CSV,
    }
    assert cluster.channels("nfd") == {"stable": "nfd.v4.12.0"}


def test_the_gpu_operator_runs_in_openshift_mode(cluster: OpenShift) -> None:
    """The driver's DaemonSet is that of the nodes' RHCOS release, and has the driver toolkit as a second container."""
    sets = cluster.client.list(f"/apis/apps/v1/namespaces/{GPU_NAMESPACE}/daemonsets")
    driver = [one for one in sets if one["metadata"]["name"].startswith("nvidia-driver-daemonset-418.94.")]
    assert len(driver) == 1
    names = [container["name"] for container in driver[0]["spec"]["template"]["spec"]["containers"]]
    assert "openshift-driver-toolkit-ctr" in names


def test_nodes_get_labels_and_gpus(cluster: OpenShift) -> None:
    def nodes() -> dict[str, str]:
        actual = cluster.client.list("/api/v1/nodes", label_selector="nvidia.com/gpu.present=true")
        return {one["metadata"]["name"]: one["status"]["allocatable"].get("nvidia.com/gpu", "0") for one in actual}

    assert until(lambda: (actual := nodes()) == {"t4-1": "1", "t4-2": "1", "a100-1": "8"} and actual, limit=60)


def test_the_nfd_operator_applies_worker_tolerations(cluster: OpenShift) -> None:
    """A change of the custom resource's tolerations reaches the workers, in addition to the toleration that they always have."""
    toleration = {"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}
    instance = f"/apis/nfd.openshift.io/v1/namespaces/{NFD_NAMESPACE}/nodefeaturediscoveries/nfd-instance"
    workers = f"/apis/apps/v1/namespaces/{NFD_NAMESPACE}/daemonsets/nfd-worker"
    cluster.client.patch(instance, {"spec": {"operand": {"workerTolerations": [toleration]}}})
    expected = [{"operator": "Exists", "effect": "NoSchedule"}, toleration]
    until(lambda: cluster.get(workers)["spec"]["template"]["spec"]["tolerations"] == expected)
