# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module vgpu_template against the simulated vCenter; the results are read with govc."""

from __future__ import annotations

import functools
import http.server
import ssl
import threading
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.vsphere import templates
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.settings import set_extra_config
from lab import pki
from lab.vsphere import ova
from tests.helpers.vsphere_modules import FOLDER, RELEASE, Site

Object = dict[str, Any]


def test_a_template_has_the_vgpus_and_all_that_they_need(site: Site) -> None:
    preview = site.template(check=True)
    assert site.center.methods() == []
    result = site.template()
    assert result["changed"], result
    assert result["diff"] == preview["diff"], result
    entry = result["templates"]["vdi"]
    assert entry == preview["templates"]["vdi"] | {"release": RELEASE}
    actual = site.machine(entry["path"])
    assert entry["path"].startswith(f"{FOLDER}/vdi-")
    options = actual.pop("extra")
    assert actual == {
        "template": True,
        "firmware": "efi",
        "secure_boot": False,
        "memory_locked": True,
        "hardware": "vmx-15",
        "profiles": ["grid_a100-10c", "grid_a100-10c"],
        "disks": 1,
    }
    assert options["pciPassthru.use64bitMMIO"] == "TRUE"
    assert options["pciPassthru.64bitMMIOSizeGB"] == "256"
    site.center.forget_calls()
    again = site.template()
    assert not again["changed"], again
    assert again["templates"]["vdi"]["path"] == entry["path"]
    assert site.center.methods() == []


def test_a_new_release_makes_a_new_template_beside_the_old_one(site: Site) -> None:
    old = site.template()["templates"]["vdi"]
    newer = site.folder / "newer.ova"
    options: Object = {"path": str(newer), "checksum": ova.write(newer, "418.94.202509100653-0")}
    new = site.template(**options)["templates"]["vdi"]
    assert new["action"] == "create"
    assert new["superseded"] == [old["path"]]
    assert site.machines() == sorted([old["path"], new["path"]])
    # Without the cluster, nobody knows whether the old one is in use.
    again = site.template(**options)
    assert not again["changed"]
    assert again["templates"]["vdi"]["superseded"] == [old["path"]]


def test_the_same_template_in_another_folder(site: Site) -> None:
    """Its name is taken in the datastore, but not in the folder."""
    results = [site.template(folder=folder) for folder in ("first", "second")]
    paths = [result["templates"]["vdi"]["path"] for result in results]
    assert "warnings" not in results[0]
    assert f"{paths[0]} is not in the declared folder" in str(results[1]["warnings"])
    assert [path.partition("/vdi-")[0] for path in paths] == ["/DC1/vm/first", "/DC1/vm/second"]
    assert site.machines() == paths
    assert not site.template(folder="second")["changed"]


@pytest.mark.parametrize(
    ("words", "field", "actual"),
    [
        (["vm.change", "-e", "pciPassthru.64bitMMIOSizeGB=64"], "mmio_gib", 64),
        (["vm.change", "-memory-pin=false"], "memory_locked", False),
        (["device.remove"], "count", 1),
        (["device.boot", "-firmware", "bios"], "firmware", "bios"),
    ],
)
def test_an_edit_by_hand_is_drift_and_is_repaired_by_replacement(
    site: Site, words: list[str], field: str, actual: object
) -> None:
    path = site.template()["templates"]["vdi"]["path"]
    site.center.govc("vm.markasvm", "-pool", "/DC1/host/cluster-a/Resources", path)
    if words[0] == "device.remove":
        listed = site.center.govc("device.ls", "-vm", path).split()
        words = ["device.remove", "-vm", path, next(word for word in listed if word.startswith("pcipassthrough-"))]
    else:
        words = [words[0], "-vm", path, *words[1:]]
    site.center.govc(*words)
    site.center.govc("vm.markastemplate", path)
    (info,) = site.info()
    assert info["drift"][field]["actual"] == actual
    result = site.template()
    assert result["changed"], result
    assert field in str(result["warnings"]), result
    new = result["templates"]["vdi"]["path"]
    assert new == f"{path}-2"
    assert site.machines() == [path, new]
    assert site.info(names=["vdi"])[1]["drift"] == {}
    assert not site.template()["changed"]


def test_a_template_that_is_a_virtual_machine_at_present_is_made_a_template_again(site: Site) -> None:
    path = site.template()["templates"]["vdi"]["path"]
    site.center.govc("vm.markasvm", "-pool", "/DC1/host/cluster-a/Resources", path)
    site.center.forget_calls()
    preview = site.template(check=True)
    result = site.template()
    assert result["templates"]["vdi"] == preview["templates"]["vdi"], result
    assert result["diff"] == preview["diff"], result
    assert (result["templates"]["vdi"]["action"], result["templates"]["vdi"]["path"]) == ("update", path)
    assert site.center.methods() == ["MarkAsTemplate"]
    assert site.machines() == [path]
    assert not site.template()["changed"]


def test_a_virtual_machine_that_is_edited_at_present_is_kept_and_named(site: Site) -> None:
    path = site.template()["templates"]["vdi"]["path"]
    site.center.govc("vm.markasvm", "-pool", "/DC1/host/cluster-a/Resources", path)
    site.center.govc("vm.change", "-vm", path, "-memory-pin=false")
    result = site.template()
    assert path in site.machines()
    assert result["templates"]["vdi"]["removed"] == []
    assert "is kept" in str(result["warnings"]), result


@pytest.mark.parametrize("after", [1, 2, 0, 3, 4, 5])
def test_a_killed_run_is_continued(site: Site, after: int) -> None:
    """1: the folder exists; 2: ImportVApp; 0: in the middle of the upload; 3: the upload is complete; 4: marked as finished; 5: a template."""
    site.killed(after)
    left = site.machines()
    result = site.template()
    path = result["templates"]["vdi"]["path"]
    assert site.machines() == [path], (left, result)
    assert result["changed"] == (after != 5), result
    assert not site.template()["changed"]


def test_a_clone_of_an_unfinished_template_is_left_alone(site: Site) -> None:
    site.killed(3)
    (unfinished,) = site.machines()
    site.center.govc(
        *(
            "vm.clone",
            "-vm",
            unfinished,
            "-on=false",
            "-folder",
            FOLDER,
            "-host",
            "/DC1/host/cluster-a/esx-a1.example.com",
        ),
        *("-ds", "/DC1/datastore/vsan-a", "copy"),
    )
    result = site.template()
    assert result["templates"]["vdi"]["removed"] == [unfinished]
    assert f"{FOLDER}/copy" in site.machines()


def test_many_templates_are_validated_together_and_built_in_parallel(site: Site) -> None:
    entries: list[Object] = [{"name": f"pool-{number}", "count": 1} for number in range(4)]
    wrong = site.templates(*entries, {"name": "x", "profile": "grid_a100-11c"}, {"name": "y", "datastore": "vsan-b"})
    assert wrong["failed"], wrong
    assert len(wrong["details"]["problems"]) == 2, wrong
    assert "known: grid_a100-1-5c" in wrong["msg"], wrong
    assert "no host of cluster-a has both" in wrong["msg"], wrong
    assert site.center.methods() == []
    result = site.templates(*entries)
    assert len(site.machines()) == 4, result
    assert result["changed"], result
    assert not site.templates(*entries)["changed"]


def test_settings_that_the_import_does_not_take_are_set_afterwards(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vCenter may ignore parts of the specification of an import."""

    def only_the_fingerprint(spec: Any, fingerprint: templates.Fingerprint) -> None:
        spec.instanceUuid = fingerprint.instance_uuid
        set_extra_config(spec, {templates.FINGERPRINT_KEY: fingerprint.to_text()})

    monkeypatch.setattr(templates, "configure", only_the_fingerprint)
    path = site.template()["templates"]["vdi"]["path"]
    (info,) = site.info()
    assert info["drift"] == {}
    assert site.machine(path)["profiles"] == ["grid_a100-10c", "grid_a100-10c"]
    assert site.center.methods().count("ReconfigVM_Task") == 2


def test_an_ova_on_a_server_with_a_certificate_of_the_system(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CA of vCenter has not signed the certificate of the server."""
    folder = site.folder / "server"
    folder.mkdir()
    pki.create_authority(folder / "ca.crt", "Public CA", folder / "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site.folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options: Object = {"path": None, "url": f"https://127.0.0.1:{server.server_address[1]}/{site.ova.name}"}
        refused = site.template(**options)
        monkeypatch.setenv("SSL_CERT_FILE", str(folder / "ca.crt"))
        result = site.template(**options)
        server.shutdown()
    assert "in addition to the CA certificate of vCenter" in refused["msg"], refused
    assert result["changed"], result
    assert site.machines() == [result["templates"]["vdi"]["path"]]


def test_profiles_of_the_hosts(site: Site) -> None:
    result = site.profiles()
    first, second = result["clusters"]
    assert (first["name"], second["name"]) == ("cluster-a", "cluster-b")
    by_name = {profile["name"]: profile for profile in first["profiles"]}
    profile = by_name["grid_a100-10c"]
    assert (profile["frame_buffer_gib"], profile["class"], profile["sharing"]) == (10, "compute", "time-sliced"), (
        profile
    )
    assert (profile["gpu_memory_gib"], profile["max_per_gpu"]) == (40, 4)
    assert profile["placeable_hosts"] == ["esx-a1.example.com", "esx-a2.example.com"]
    mig = by_name["grid_a100-3-20c"]
    assert (mig["sharing"], mig["max_per_gpu"], mig["hosts"]) == ("mig", 2, ["esx-a3.example.com"]), mig
    assert {host["vgpu_manager"] for host in first["hosts"]} == {"580.95.02"}
    assert [host["graphics_type"] for host in second["hosts"]] == ["sharedDirect", "sharedDirect", "shared"]
