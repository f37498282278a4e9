# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Passwords of registries are found nowhere: not in output, results, objects of the cluster, files, or arguments of skopeo, buildah and other processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.cluster import Cluster
from tests.helpers.driver_context import remove_storage, write_context, write_installer
from tests.helpers.planted_secrets import Planted, Shown, objects_with
from tests.helpers.registries import Object, Registries
from tests.helpers.registry_images import push_image
from tests.helpers.snapshot import kinds
from tests.programs import run

pytestmark = [pytest.mark.lab, pytest.mark.usual(60), pytest.mark.timeout(900)]

VERSION = "580.95.05"
SECRET = "registry-login"
COPY = {
    "name": "Copy an image",
    "hosts": "gpu_clusters",
    "connection": "local",
    "gather_facts": False,
    "vars": {"ansible_python_interpreter": "{{ ansible_playbook_python }}"},
    "tasks": [
        {
            "name": "Copy",
            "accel.gpu.registry_image": {"images": "{{ images }}", "registries": "{{ gpu_registries }}"},
            "register": "copied",
        },
        {"name": "Show the result", "ansible.builtin.debug": {"var": "copied"}},
    ],
}


class Logins:
    """A cluster whose images come from the registry with a login; another login is for a registry that does not answer."""

    def __init__(self, registries: Registries, folder: Path) -> None:
        self.registries, self.lab = registries, registries.lab
        self.folder = folder / "work"
        self.folder.mkdir()
        self.planted = Planted()
        self.planted.add("password", registries.password)
        places = {"TMPDIR": "", "ANSIBLE_LOCAL_TEMP": "local", "ANSIBLE_REMOTE_TEMP": "remote"}
        environ = {name: str(self.folder / below) for name, below in places.items()}
        self.shown = Shown(
            {**self.lab.env, **environ, "ANSIBLE_LOG_PATH": str(self.folder / "ansible.log")}, self.folder
        )
        self.installers, self.context, self.storage = folder / "installers", folder / "context", folder / "storage"
        write_context(self.context)
        write_installer(self.installers, VERSION)

    @property
    def repository(self) -> str:
        return f"{self.registries.tls}/{self.registries.unique}"

    @property
    def variables(self) -> Object:
        charts = self.lab.env["LAB_CHARTS"]
        operator = {"version": "v25.10.1", "image_pull_secrets": [SECRET], "chart": f"{charts}/gpu-operator-v25.10.1"}
        driver = {"type": "vgpu", "version": VERSION, "repository": f"{self.repository}/nvidia"}
        nfd = {"chart": f"{charts}/node-feature-discovery"}
        unreachable = {"registry": "127.0.0.1:1", "username": "x", "password": self.planted.new("other password")}
        return {
            "gpu_cluster": {"name": self.lab.name, "operator": operator, "nfd": nfd},
            "gpu_pools": [{"name": "vdi", "match": {"labels": {"team": "vdi"}}, "driver": driver}],
            "gpu_registries": [*self.registries.options(), unreachable],
            "gpu_driver_image_installers": str(self.installers),
            "gpu_driver_image_build_context": str(self.context),
            "gpu_driver_image_storage_root": str(self.storage),
            "gpu_driver_image_storage_driver": "vfs",
            "gpu_driver_image_operating_systems": ["ubuntu24.04"],
        }

    def play(self, name: str, *arguments: str, **options: Any) -> int:
        """Run a playbook with the greatest verbosity, with the logins in a file that only this call reads."""
        given = {**self.variables, **options.pop("variables", {})}
        return self.shown.play(name, *arguments, variables=given, **options)

    def close(self) -> None:
        """Remove the storage of buildah."""
        remove_storage(self.storage)


@pytest.fixture
def logins(registries: Registries, tmp_path: Path) -> Iterator[Logins]:
    registries.lab.reset()
    actual = Logins(registries, tmp_path)
    yield actual
    actual.close()


def require_nowhere(logins: Logins, seen: list[str]) -> None:
    """No password is in the output, in arguments, in files, or in objects other than Secrets."""
    assert logins.planted.found_in(logins.shown.text) == []
    assert seen == []
    assert logins.planted.found_below(logins.folder) == []
    assert objects_with(Cluster(logins.lab), logins.planted, kinds(logins.lab)) == []


@pytest.mark.sampled(1, group="planted secrets")
def test_passwords_of_registries_are_found_nowhere(logins: Logins, tmp_path: Path) -> None:
    source = push_image(logins.registries.client("LAB_REGISTRY_TLS"), f"{logins.registries.unique}/source", "1")
    assert source.digest
    copy = tmp_path / "copy.yml"
    copy.write_text(yaml.safe_dump([COPY]))
    pair = {"source": f"{logins.repository}/source:1", "destination": f"{logins.repository}/copy:1"}
    lost = {"source": "127.0.0.1:1/lost:1", "destination": f"{logins.repository}/lost:1"}
    # The files with variables of each run are deleted before the next search.
    with logins.planted.watched(tmp_path / "storage") as seen:
        assert logins.play(str(copy), variables={"images": [pair]}) == 0, logins.shown.text[-3000:]
        assert logins.play(str(copy), variables={"images": [pair]}, json_output=True) == 0, logins.shown.text[-3000:]
        assert logins.play(str(copy), variables={"images": [lost]}) != 0
        assert logins.play("accel.gpu.driver_image") == 0, logins.shown.text[-3000:]
        assert logins.play("accel.gpu.site", "--tags", "pools,nfd", "--check") == 0, logins.shown.text[-3000:]
        assert logins.play("accel.gpu.site", "--tags", "pools,nfd") == 0, logins.shown.text[-3000:]
    require_nowhere(logins, seen)
    assert logins.registries.client("LAB_REGISTRY_TLS").digest(f"{logins.registries.unique}/copy", "1") == source.digest
    # The login was used: the Secret for pulling images has it.
    actual = json.loads(run("kubectl", "get", "secrets", "-A", "-o", "json", env=logins.lab.env))["items"]
    assert [item["metadata"]["name"] for item in actual if item["type"] == "kubernetes.io/dockerconfigjson"] == [SECRET]
