# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role report writes its page in check mode, too, without reporting a change; here for an unreachable cluster."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
import yaml

from tests.helpers.html import parse
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.variables import CLUSTER, LAB_POOLS, Document
from tests.programs import REPO, environment


def play(folder: Path, *arguments: str, **variables: str) -> PlaybookRun:
    """Run the role for an unreachable cluster."""
    plays = [{"hosts": "all", "gather_facts": False, "connection": "local", "roles": ["accel.gpu.report"]}]
    host: Document = {"gpu_cluster": CLUSTER, "gpu_pools": LAB_POOLS, "gpu_report_allow_unreachable": True, **variables}
    host["ansible_python_interpreter"] = "{{ ansible_playbook_python }}"
    playbook, inventory = folder / "play.yml", folder / "hosts.yml"
    playbook.write_text(yaml.safe_dump(plays))
    inventory.write_text(yaml.safe_dump({"all": {"hosts": {"lab": host}}}))
    environ = environment(KUBECONFIG=str(folder / "none"), ANSIBLE_SHOW_CUSTOM_STATS="true")
    return run_playbook(str(playbook), environ=environ, inventory=inventory, arguments=arguments)


@pytest.mark.sampled(1)
@pytest.mark.usual(8)
@pytest.mark.parametrize(("runs", "arguments"), [(2, ()), (1, ("--check", "--diff"))], ids=["run", "check"])
def test_the_page_is_written_and_is_no_change(tmp_path: Path, runs: int, arguments: tuple[str, ...]) -> None:
    path = tmp_path / "fleet.html"
    for _again in range(runs):
        run = play(
            tmp_path,
            *arguments,
            gpu_report_html_path=str(path),
            gpu_report_path=os.path.relpath(tmp_path / "fleet.json"),
        ).require_success()
        assert run.changed() == 0
        assert not [result for _name, result in run.results() if result.get("diff")]
    fleet = json.loads((tmp_path / "fleet.json").read_text(encoding="utf-8"))
    assert (sorted(fleet["pools"]), fleet["nodes"]) == (sorted(pool["name"] for pool in LAB_POOLS), [])
    (body,) = parse(path.read_text(encoding="utf-8")).find("body")
    assert [name for name in (pool["name"] for pool in LAB_POOLS) if name not in body.text] == []
    assert "Cannot reach the cluster" in body.text


@pytest.mark.sampled(1, group="files of a report")
@pytest.mark.usual(8)
def test_the_mode_of_a_file_is_kept_only_for_its_owner(tmp_path: Path) -> None:
    files = {"gpu_report_path": tmp_path / "fleet.json", "gpu_report_html_path": tmp_path / "fleet.html"}
    for path in files.values():
        path.write_text("from before")
    files["gpu_report_path"].chmod(0o644)
    files["gpu_report_html_path"].chmod(0o666)
    if os.geteuid() == 0:
        os.chown(files["gpu_report_html_path"], 65534, 65534)
    run = play(tmp_path, **{name: str(path) for name, path in files.items()}).require_success()
    assert run.changed() == 0
    actual = {name: (stat.S_IMODE(path.stat().st_mode), path.stat().st_uid) for name, path in files.items()}
    assert actual["gpu_report_path"] == (0o644, os.geteuid())
    # Only root can create a file that belongs to another user.
    assert actual["gpu_report_html_path"] == (0o600 if os.geteuid() == 0 else 0o666, os.geteuid())


@pytest.mark.usual(8)
def test_the_artifacts_are_the_files(tmp_path: Path) -> None:
    """A job's container is removed with its files, so AWX keeps the report as artifacts of the job."""
    run = play(
        tmp_path, gpu_report_artifacts="html, json", gpu_report_path=str(tmp_path / "fleet.json")
    ).require_success()
    ((cluster, forms),) = run.document["global_custom_stats"]["gpu_report_documents"].items()
    assert (cluster, sorted(forms)) == (CLUSTER["name"], ["html", "json"])
    written = json.loads((tmp_path / "fleet.json").read_text(encoding="utf-8"))
    assert {**forms["json"], "time": written["time"]} == written
    assert "Cannot reach the cluster" in parse(forms["html"]).find("body")[0].text


@pytest.mark.usual(4)
def test_an_unknown_form_is_refused(tmp_path: Path) -> None:
    run = play(tmp_path, gpu_report_artifacts="json,pdf")
    assert run.rc
    assert "gpu_report_artifacts: pdf is not a form of the report. Use a list of json and html" in run.failure()


@pytest.mark.usual(4)
def test_without_a_path_no_page_is_written(tmp_path: Path) -> None:
    play(tmp_path).require_success()
    assert not list(tmp_path.glob("*.html"))


def test_every_path_belongs_to_one_format() -> None:
    role = REPO / "roles" / "report"
    options = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    formats = yaml.safe_load((role / "vars" / "main.yml").read_text())["__report_formats"]
    paths = [name for name in options if name.endswith("_path")]
    assert sorted(each["path_option"] for each in formats) == sorted(paths)


@pytest.mark.sampled(1, group="files of a report")
@pytest.mark.usual(8)
@pytest.mark.parametrize("kind", ["pipe", "folder", "link to a device", "link to a pipe of this process"])
def test_only_files_are_replaced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "there"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/null" if kind == "link to a device" else "/proc/self/fd/1")
    before = (path.lstat().st_ino, path.lstat().st_mode)
    run = play(tmp_path, "--check", gpu_report_html_path=str(path))
    assert run.rc != 0
    assert f"gpu_report_html_path: {path} cannot be written" in run.failure()
    assert (path.lstat().st_ino, path.lstat().st_mode) == before


@pytest.mark.sampled(1, group="files of a report")
@pytest.mark.usual(4)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can create a device")
def test_a_device_is_not_replaced_even_by_root(tmp_path: Path) -> None:
    path = tmp_path / "device"
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except OSError:
        pytest.skip("this machine does not allow devices")
    os.chown(path, 65534, 65534)
    assert play(tmp_path, gpu_report_path=str(path)).rc != 0
    assert stat.S_ISCHR(path.lstat().st_mode)
