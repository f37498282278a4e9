# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of `site` from a cluster without GPUs to licensed vGPU workers: vCenter, OpenShift's machine controller, OLM, a private registry, licenses."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import audit
from lab import build as lab_build
from lab.layout import Lab as LabLayout
from lab.registry import requests as registry_log
from lab.tools import PARTS
from tests.conftest import SEED
from tests.helpers.driver_context import remove_storage, write_context, write_installer
from tests.helpers.license_tokens import make_token
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.playbook_kills import killed_at
from tests.labs import Lab, shared_lab
from tests.programs import REPO, run

Object = dict[str, Any]
INVENTORY = REPO / "inventories" / "openshift-vsphere"
HOST = "openshift"
REGISTRY = "registry-tls"
VERSION = "580.95.05"
# Longer than an uninterrupted run on an idle machine takes; a kill after its end is skipped.
LONGEST = 60
KILLS = 25

pytestmark = [pytest.mark.timeout(1200), pytest.mark.usual(120), pytest.mark.sampled(1, group="chain on vSphere")]

BURST = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "burst", "namespace": "default"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "burst"}},
        "template": {
            "metadata": {"labels": {"app": "burst"}},
            "spec": {
                "nodeSelector": {"accel.gpu/pool": "burst"},
                "containers": [
                    {
                        "name": "burst",
                        "image": "nvcr.io/nvidia/cuda:12.9.1-base-ubuntu24.04",
                        "command": ["sleep", "infinity"],
                        "resources": {"limits": {"nvidia.com/gpu": 1}},
                    }
                ],
            },
        },
    },
}


class Chain:
    """A lab with everything that the inventory openshift-vsphere declares, and runs with an installer of the guest driver."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.storage, self.token = lab, folder / "storage", make_token()
        write_installer(folder / "installers", VERSION)
        self.variables: Object = {
            "gpu_driver_image_installers": str(folder / "installers"),
            "gpu_driver_image_build_context": str(write_context(folder / "context")),
            "gpu_driver_image_storage_root": str(self.storage),
            "gpu_driver_image_storage_driver": "vfs",
            "gpu_licensing_token": self.token,
        }

    @property
    def options(self) -> Object:
        return {"inventory": INVENTORY, "variables": self.variables}

    def play(self, name: str, *arguments: str, **variables: Any) -> PlaybookRun:
        options = {**self.options, "variables": {**self.variables, **variables}}
        return run_playbook(f"accel.gpu.{name}", environ=self.lab.env, arguments=arguments, timeout=900, **options)

    def kubectl(self, *words: str) -> Object:
        listed: Object = json.loads(run("kubectl", *words, "-o", "json", env=self.lab.env) or "{}")
        return listed

    def wait(self, *words: str) -> None:
        """Run kubectl until it ends, which must succeed."""
        run("kubectl", *words, env=self.lab.env)

    def govc(self, *words: str) -> list[str]:
        return run(self.lab.env["LAB_GOVC"], *words, env=self.lab.env).split()

    def licensed(self) -> dict[str, str]:
        """The license of each node of a pool."""
        nodes = self.kubectl("get", "nodes", "-l", "accel.gpu/pool")["items"]
        return {
            node["metadata"]["name"]: json.loads(node["metadata"]["annotations"]["lab.accel.gpu/license"])["status"]
            for node in nodes
        }

    def leases(self) -> int:
        """The number of leases that the license service lists."""
        env = self.lab.env
        url = f"{env['LAB_NLS']}/v1/org/{env['LAB_NLS_ORG']}/virtual-groups/1/leases"
        key = Path(env["LAB_NLS_API_KEY_FILE"]).read_text().strip()
        words = ("curl", "-sS", "--fail", "--cacert", env["LAB_NLS_CA"], "-H", f"X-API-KEY: {key}", url)
        return len(json.loads(run(*words, env=env))["clients"])

    def machines(self) -> list[str]:
        """The names of the virtual machines with GPUs."""
        groups = ("desktops", "inference", "burst")
        paths = self.govc("find", "/DC1/vm/openshift", "-type", "m")
        return sorted(name for path in paths if (name := path.rpartition("/")[2]).startswith(groups))

    def writes(self) -> tuple[int, int, int]:
        """How many changes vCenter, the API server and the registry have received from the collection."""
        layout = LabLayout.named(self.lab.name)
        calls = Path(self.lab.env["LAB_VSPHERE_CALLS"]).read_text().splitlines()
        own = [
            call
            for call in map(json.loads, calls)
            if call["method"] in ("ImportVApp", "MarkAsTemplate", "CreateFolder")
        ]
        requests = [
            one for one in audit.requests(layout, agent="accel.gpu/") if one.mutating and "dryRun" not in one.uri
        ]
        return len(own), len(requests), len(registry_log.writes(layout, REGISTRY))

    def empty(self) -> None:
        self.lab.reset()
        remove_storage(self.storage)

    def require_complete(self) -> None:
        """Three licensed workers as declared, and nothing besides them: no machine, template, image or folder of the storage."""
        assert set(self.licensed().values()) == {"Licensed"}
        assert [name.rpartition("-")[0] for name in self.machines()] == [
            "desktops-zone-a",
            "desktops-zone-a",
            "inference-zone-b",
        ]
        assert self.leases() == 3
        names = [path.rpartition("/")[2] for path in self.govc("find", "/DC1/vm/accel-gpu", "-type", "m")]
        assert [name.partition("-418")[0] for name in sorted(names)] == [
            "burst-zone-a",
            "desktops-zone-a",
            "inference-zone-b",
        ]
        storage = ("--root", self.storage, "--runroot", self.storage / "run", "--storage-driver", "vfs")
        assert run("buildah", *storage, "images", "--quiet").split() == []


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab with OpenShift on vSphere, registries and licenses. ACCEL_GPU_TEST_CHAIN names a running one."""
    lab_build.ensure(PARTS["vsphere"])
    options = ["--openshift", "--platform", "VSphere"]
    builds = [("registry", "toxiproxy")]
    with shared_lab(
        request, "ACCEL_GPU_TEST_CHAIN", "chain", "registry", "nls", builds=builds, options=options
    ) as running:
        yield running


@pytest.fixture
def chain(lab: Lab, tmp_path: Path) -> Iterator[Chain]:
    chain = Chain(lab, tmp_path)
    chain.empty()
    yield chain
    remove_storage(chain.storage)


def test_one_run_gives_licensed_workers(chain: Chain) -> None:
    empty = chain.writes()
    preview = chain.play("site", "--check", "--diff").require_success()
    assert (chain.machines(), chain.writes()) == ([], empty)
    first = chain.play("site").require_success()
    assert first.changed(HOST) == preview.changed(HOST)
    chain.require_complete()
    (image,) = {
        container["image"]
        for pod in chain.kubectl("get", "pods", "-A", "-l", "app.kubernetes.io/component=nvidia-driver")["items"]
        for container in pod["spec"]["containers"]
        if container["name"] == "nvidia-driver-ctr"
    }
    assert image == f"{chain.lab.env['LAB_REGISTRY_TLS']}/nvidia/driver:{VERSION}-rhcos4.18"
    before = chain.writes()
    assert chain.play("site").require_success().changed(HOST) == 0
    # The validation of the first run is still valid, so the second run creates no pod either.
    assert chain.writes() == before
    secrets = [
        chain.token,
        chain.lab.env["LAB_VSPHERE_PASSWORD"],
        Path(chain.lab.env["LAB_REGISTRY_PASSWORD_FILE"]).read_text(),
    ]
    for played in (preview, first):
        assert not [secret for secret in secrets if secret in played.stdout + played.stderr]


def test_a_pool_is_scaled_to_zero_and_back(chain: Chain) -> None:
    """The license returns, the virtual machine is deleted, and the next machine is licensed."""
    chain.lab.become("vsphere-chain", lambda: chain.play("site").require_success())
    machines = chain.machines()
    chain.play("scale", gpu_pool="inference", gpu_node_count="0").require_success()
    assert chain.machines() == [name for name in machines if not name.startswith("inference")]
    assert chain.leases() == 2
    chain.play("site").require_success()
    chain.require_complete()
    assert not {name for name in chain.machines() if name.startswith("inference")} & set(machines)


def test_the_autoscaler_creates_licensed_machines(chain: Chain, tmp_path: Path) -> None:
    """Its machines are powered off without a run, so their leases remain until they expire."""
    chain.lab.become("vsphere-chain", lambda: chain.play("site").require_success())
    file = tmp_path / "burst.json"
    file.write_text(json.dumps(BURST))
    patch = json.dumps({"spec": {"scaleDown": {"delayAfterAdd": "1s", "unneededTime": "1s"}}})
    chain.wait("patch", "clusterautoscaler", "default", "--type", "merge", "-p", patch)
    for already_deleted in range(2):
        chain.wait("apply", "-f", str(file))
        chain.wait("wait", "--for=condition=Available", "deployment/burst", "--timeout=180s")
        (machine,) = {name for name in chain.machines() if name.startswith("burst")}
        marked = "--for=jsonpath={.metadata.annotations.lab\\.accel\\.gpu/license}"
        chain.wait("wait", marked, f"node/{machine}", "--timeout=180s")
        assert chain.licensed()[machine] == "Licensed"
        chain.wait("delete", "-f", str(file))
        chain.wait("wait", "--for=delete", f"node/{machine}", "--timeout=300s")
        assert machine not in chain.machines()
        assert chain.leases() == 4 + already_deleted


@pytest.mark.soak
@pytest.mark.parametrize("number", range(KILLS))
def test_a_killed_run_is_continued(chain: Chain, number: int) -> None:
    seconds = random.Random(f"{SEED} {number}").uniform(1, LONGEST)
    if not killed_at(chain.lab, "accel.gpu.site", seconds, **chain.options):
        pytest.skip("the run had ended")
    chain.play("site").require_success()
    chain.require_complete()
    assert chain.play("site").require_success().changed(HOST) == 0
