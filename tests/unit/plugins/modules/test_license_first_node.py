# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rotation tries new files on one node before it writes them: the modules license and license_rotation in one run, as the role calls them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.transport import ExecResult
from ansible_collections.accel.gpu.plugins.module_utils.licensing.diagnosis import CONFIG_PATH, TOKEN_PATH
from ansible_collections.accel.gpu.plugins.modules import license_rotation
from tests.helpers.license_api import LicenseApi, Object, cluster_policy, gpu_node, license_secret
from tests.helpers.license_nodes import NAMESPACE, Container, Containers, Killed, initial_files, lost_connection
from tests.helpers.license_tokens import make_token

OLD, NEW, NEWER = (make_token(hosts=[f"{name}.example.com"]) for name in ("old", "new", "newer"))
CONFIG = "# Managed by accel.gpu\nFeatureType=1\n"
SECRET = "licensing-config"
POLICY = {"licensingConfig": {"secretName": SECRET, "nlsEnabled": True}}
UNREACHABLE = ExecResult(7, "0.1 0.0 0.0", "curl: (7) Failed to connect")


@dataclass
class Fleet(LicenseApi):
    """A cluster whose nodes have license clients."""

    containers: Containers = field(kw_only=True)
    product: str = "NVIDIA-A100-10C"

    def list(self, path: str, **selectors: Any) -> Sequence[Object]:
        """The nodes and their driver pods."""
        selector = selectors.get("field_selector") or ""
        if any(name in selector for name in ("spec.nodeName", "metadata.name")):
            return self.containers.list(path, **selectors)
        if path.endswith("/pods"):
            return [self.containers.pod(name) for name in self.containers.by_node]
        if path.endswith("/nodes"):
            return [gpu_node(name, self.product, pool="vdi") for name in self.containers.by_node]
        return super().list(path, **selectors)

    def exec(self, pod_path: str, *arguments: Any, **options: Any) -> ExecResult:
        """The result of a command in a driver pod."""
        return self.containers.exec(pod_path, *arguments, **options)

    def rotate(self, token: str = "", *, check: bool = False, pools: Sequence[Object] = (), **options: Any) -> Object:
        """The result of the run: of the module that has failed, or of license_rotation together with the result of license."""
        shared = {"wait_timeout": 1, "wait_sleep": 1, **options}
        own: Object = {name: shared.pop(name) for name in ("feature_type", "restore", "replace") if name in shared}
        given: Object = {"token": token, "replace": True} if token else {}
        given |= {**own, **shared}
        written = self.license(pools, check=check, rotate=True, **given)
        if written.get("failed"):
            return written
        rotated = self._run_rotation(pools, written, check=check, **shared)
        return {**rotated, "license": written["license"], "license_result": written}

    def _run_rotation(self, pools: Sequence[Object], written: Object, *, check: bool, **options: Any) -> Object:
        return self._run(license_rotation, pools, check=check, provided=written["license"], **options)

    @property
    def token(self) -> str:
        """The token in the Secret."""
        return self.files(SECRET)["client_configuration_token.tok"]

    @property
    def unlicensed(self) -> Sequence[str]:
        """The nodes without a license."""
        return [name for name, container in self.containers.by_node.items() if not container.licensed]

    def loaded(self) -> dict[str, str]:
        """The token that each running client has read."""
        return {name: each.loaded.get(TOKEN_PATH, b"").decode() for name, each in self.containers.by_node.items()}


def fleet(count: int = 3, token: str = OLD, config: str = CONFIG, **container: Any) -> Fleet:
    """Nodes that have a license with the token in the Secret."""
    nodes = {f"n{index}": Container(initial_files(token, config), **container) for index in range(count)}
    api = Fleet([cluster_policy(**POLICY)], containers=Containers(nodes))
    api.add(license_secret(SECRET, token, config))
    return api


def accept_only(api: Fleet, *tokens: str) -> None:
    for container in api.containers.by_node.values():
        container.accepts = lambda text: text.decode() in tokens


def test_the_secret_is_written_after_the_first_node_has_a_license() -> None:
    api = fleet()
    secrets: list[str] = []

    def observe(node: str, command: tuple[str, ...]) -> None:
        if command[0] == "env":
            secrets.append(api.token)

    api.containers.after = observe
    result = api.rotate(NEW)
    assert not result.get("failed"), result["msg"]
    assert secrets == [OLD, NEW, NEW]
    assert result["license"]["first_nodes"] == ["n0"]
    assert result["license_rotation"]["rotated"] == ["n0", "n1", "n2"]
    assert result["license_rotation"]["unchanged_count"] == 0
    assert set(api.loaded().values()) == {NEW}
    assert NEW not in json.dumps(result)
    assert OLD not in json.dumps(result)

    api.containers.commands.clear()
    again = api.rotate(NEW)
    assert not again["changed"]
    assert not again["license_result"]["changed"]
    assert again["license"]["first_nodes"] == []
    assert api.containers.mutations() == []


def test_the_preview_is_the_run() -> None:
    api = fleet()
    predicted, made = api.rotate(NEW, check=True), api.rotate(NEW)
    for key in ("license", "license_rotation", "diff", "changed"):
        assert predicted[key] == made[key], key
    assert predicted["license_result"]["diff"] == made["license_result"]["diff"]
    assert "node n0" in made["license_result"]["diff"]["after"]


@pytest.mark.parametrize("runs", [1, 4])
def test_a_token_that_gives_no_license_takes_one_node_and_leaves_the_secret(runs: int) -> None:
    api = fleet()
    accept_only(api, OLD)
    for dummy in range(runs):
        failed = api.rotate(NEW)
        assert failed["code"] == "partial"
        assert "The rotation stopped at node n0" in failed["msg"]
        assert f"Secret {NAMESPACE}/{SECRET} was not changed, and still has the previous files." in failed["msg"]
        assert failed["license_rotation"]["failed"] == "n0"
        assert api.token == OLD
        assert api.unlicensed == ["n0"]
        assert NEW not in json.dumps(failed)


@pytest.mark.parametrize("runs", [1, 3])
def test_a_node_without_a_license_for_its_own_reason_blocks_no_other_node(runs: int) -> None:
    api = fleet(4)
    api.containers.by_node["n0"].accepts = lambda dummy: False
    for dummy in range(runs):
        failed = api.rotate(NEW)
        assert failed["code"] == "partial"
        assert failed["license_rotation"]["failed"] == "n0", "it is reported"
        assert failed["license_rotation"]["pending"] == []
        assert api.unlicensed == ["n0"]
        assert api.token == NEW
        assert set(api.loaded().values()) == {NEW}
    newer = api.rotate(NEWER)
    assert newer["license_rotation"]["failed"] == "n0"
    assert api.token == NEWER
    assert api.unlicensed == ["n0"]


@pytest.mark.parametrize("runs", [1, 3])
def test_a_token_that_gives_no_license_takes_one_node_beside_one_with_its_own_problem(runs: int) -> None:
    api = fleet(4)
    accept_only(api, OLD)
    api.containers.by_node["n0"].accepts = lambda dummy: False
    for token in (NEW, *[NEWER] * (runs - 1)):
        failed = api.rotate(token)
        assert failed["license_rotation"]["failed"] == "n1"
        assert api.token == OLD
        assert api.unlicensed == ["n0", "n1"]


def test_a_run_without_a_token_loads_the_old_one_on_the_failed_node() -> None:
    api = fleet()
    accept_only(api, OLD)
    api.rotate(NEW)
    result = api.rotate()
    assert result["license_rotation"]["rotated"] == ["n0"]
    assert api.unlicensed == []
    assert set(api.loaded().values()) == {OLD}


def test_another_token_is_tried_on_the_failed_node_first() -> None:
    api = fleet()
    # An earlier run has tried the token there.
    api.containers.by_node["n2"] = Container(initial_files(NEW, CONFIG))
    accept_only(api, OLD, NEWER)
    failed = api.rotate(NEW)
    assert failed["license_rotation"]["failed"] == "n2"
    result = api.rotate(NEWER)
    assert result["license"]["first_nodes"] == ["n2"]
    assert result["license_rotation"]["rotated"] == ["n2", "n0", "n1"]
    assert api.unlicensed == []


def test_servers_that_a_node_cannot_reach_leave_everything_as_it_is() -> None:
    api = fleet()
    api.containers.by_node["n2"].connection = UNREACHABLE
    failed = api.rotate(NEW)
    assert failed["code"] == "preflight"
    assert "node n2: Cannot connect to new.example.com:443" in failed["msg"]
    assert api.token == OLD
    assert api.containers.mutations() == []
    assert api.written == []


@pytest.mark.parametrize("product", ["NVIDIA-A100-80GB-PCIe", "NVIDIA-A100D-10C", "GRID-A100D-10C"])
def test_a_feature_type_that_does_not_fit_is_refused_before_any_change(product: str) -> None:
    """Labels show the class, or only nvidia-smi does."""
    api = fleet(vgpu_type="A100D-10C")
    api.product = product
    failed = api.rotate(NEW, feature_type=2)
    assert failed["code"] == "invalid"
    assert (
        "FeatureType=2 requests NVIDIA RTX Virtual Workstation, but vGPU types of the series C require" in failed["msg"]
    )
    assert (api.token, api.written, api.containers.mutations()) == (OLD, [], [])


@pytest.mark.parametrize("product", ["NVIDIA-A100-80GB-PCIe", "NVIDIA-A100D-10C"])
def test_a_feature_type_in_the_secret_that_does_not_fit_takes_no_node(product: str) -> None:
    """The Secret is managed elsewhere, so only the rotation can find it."""
    api = fleet(vgpu_type="A100D-10C")
    api.product = product
    labels = {"argocd.argoproj.io/instance": "gpu"}
    annotations = {"argocd.argoproj.io/tracking-id": "gpu:/Secret:gpu-operator/licensing-config"}
    api.add(license_secret(SECRET, NEW, "FeatureType=2\n", labels=labels, annotations=annotations))
    for dummy in range(2):
        failed = api.rotation(wait_timeout=1)
        assert failed["code"] == "preflight"
        assert "FeatureType=2 requests" in failed["msg"]
        assert all(name in failed["msg"] for name in api.containers.by_node)
        assert api.containers.mutations() == []


@pytest.mark.parametrize("product", ["NVIDIA-A100-80GB-PCIe", "NVIDIA-A100D-10C"])
def test_the_documented_remedy_of_a_feature_type_needs_one_run(product: str) -> None:
    """Without gpu_licensing_feature_type, a generated gridd.conf gets a value that fits what the drivers show."""
    bad = CONFIG.replace("=1", "=2")
    api = fleet(vgpu_type="A100D-10C")
    api.product = product
    api.add(license_secret(SECRET, OLD, bad))
    api.containers.by_node["n0"] = Container(initial_files(OLD, bad), vgpu_type="A100D-10C")
    assert api.unlicensed == ["n0"]
    result = api.rotate()
    assert not result.get("failed"), result["msg"]
    assert api.unlicensed == []
    assert api.files(SECRET)["gridd.conf"] == CONFIG


def kill_points(act: Callable[[Fleet], Any], count: int) -> int:
    api = fleet(count)
    act(api)
    return len(api.containers.commands)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_that_is_killed_at_any_command_converges(moment: str) -> None:
    total = kill_points(lambda api: api.rotate(NEW), 2)
    for number in range(total):
        api = fleet(2)
        remaining = number

        def kill(node: str, command: tuple[str, ...]) -> None:
            nonlocal remaining
            remaining -= 1
            if remaining < 0:
                raise Killed

        setattr(api.containers, moment, kill)
        with pytest.raises(Killed):
            api.rotate(NEW)
        assert len(api.unlicensed) <= 1, number
        setattr(api.containers, moment, lambda node, command: None)
        result = api.rotate(NEW)
        assert not result.get("failed"), (number, result["msg"])
        assert api.unlicensed == []
        assert (set(api.loaded().values()), api.token) == ({NEW}, NEW), number
        assert not [path for each in api.containers.by_node.values() for path in each.files if path.endswith(".new")]


def test_a_run_killed_before_the_secret_takes_no_second_node_first() -> None:
    api = fleet()
    api.containers.by_node["n1"] = Container(initial_files(NEW, CONFIG))
    result = api.rotate(NEW)
    assert result["license"]["first_nodes"] == []
    assert result["license_rotation"]["rotated"] == ["n0", "n2"]


def test_a_pod_that_starts_with_the_old_secret_meanwhile() -> None:
    api = fleet(2)

    def restart(node: str, command: tuple[str, ...]) -> None:
        if command[0] == "env" and node == "n1" and not api.containers.replaced:
            # The pod of the first node has started before the Secret was written.
            api.containers.replace_pod("n0", Container(initial_files(OLD, CONFIG)))

    api.containers.after = restart
    api.rotate(NEW)
    assert api.token == NEW
    result = api.rotate(NEW)
    assert result["license_rotation"]["rotated"] == ["n0"]
    assert set(api.loaded().values()) == {NEW}


def test_nodes_that_cannot_be_read_verify_nothing() -> None:
    api = fleet(2)

    def fail(node: str, command: tuple[str, ...]) -> None:
        raise lost_connection()

    api.containers.before = fail
    failed = api.rotate(NEW)
    assert failed["code"] == "preflight"
    assert "cannot be tried on any node" in failed["msg"]
    assert api.token == OLD


def test_a_pool_without_running_drivers_gets_its_secret() -> None:
    api = fleet(0)
    result = api.rotate(NEW)
    assert not result.get("failed"), result["msg"]
    assert api.token == NEW
    assert result["license"]["first_nodes"] == []


@pytest.mark.parametrize("check", [True, False])
def test_only_the_playbook_that_rotates_replaces_the_token_of_licensed_nodes(check: bool) -> None:
    api = fleet()
    api.containers.by_node["n0"].accepts = lambda dummy: False
    refused = api.license(token=NEW, replace=True, check=check)
    for text in (f"Secret {NAMESPACE}/{SECRET} was not changed", "(n1, n2)", "license_rotate"):
        assert text in refused["msg"]
    assert api.token == OLD
    assert api.containers.mutations() == []
    # The same token changes nothing, so nothing is read.
    api.containers.commands.clear()
    assert not api.license(token=OLD, replace=True)["changed"]
    assert api.containers.commands == []


def test_a_token_that_no_node_has_a_license_with_is_replaced_without_touching_nodes() -> None:
    api = fleet()
    accept_only(api)
    result = api.license(token=NEW, replace=True)
    assert result["changed"]
    assert api.token == NEW
    assert api.containers.mutations() == []


class TestPrevious:
    """The replaced files stay in the Secret."""

    def test_a_rotation_keeps_the_replaced_files(self) -> None:
        api = fleet()
        result = api.rotate(NEW)
        files = api.files(SECRET)
        assert files["previous.client_configuration_token.tok"] == OLD
        assert files["previous.gridd.conf"] == CONFIG
        assert not [text for text in result["license_result"].get("warnings", ()) if "previous" in text]
        assert len(result["license"]["objects"][0]["previous"]) == 16

    def test_they_are_restored_by_name(self) -> None:
        api = fleet()
        api.rotate(NEW)
        for text in (NEW, ""):
            predicted, result = api.rotate(text, restore=True, check=True), api.rotate(text, restore=True)
            assert not result.get("failed"), result["msg"]
            assert (predicted["license"], predicted["changed"]) == (result["license"], result["changed"])
            assert (api.token, set(api.loaded().values())) == (OLD, {OLD})
            assert sorted(api.files(SECRET)) == ["client_configuration_token.tok", "gridd.conf"]
            assert OLD not in json.dumps(result)
        assert not result["changed"]
        assert "No object has kept previous files, so nothing was restored." in str(
            result["license_result"]["warnings"]
        )

    @pytest.mark.sampled(1)
    @pytest.mark.parametrize("moment", ["before", "after"])
    def test_a_restoration_that_is_killed_converges(self, moment: str) -> None:
        api = fleet(2)
        api.rotate(NEW)
        api.containers.commands.clear()
        api.rotate(restore=True)
        for number in range(len(api.containers.commands)):
            api = fleet(2)
            api.rotate(NEW)
            remaining = number

            def kill(node: str, command: tuple[str, ...]) -> None:
                nonlocal remaining
                remaining -= 1
                if remaining < 0:
                    raise Killed

            setattr(api.containers, moment, kill)
            with pytest.raises(Killed):
                api.rotate(restore=True)
            setattr(api.containers, moment, lambda node, command: None)
            result = api.rotate(restore=True)
            assert not result.get("failed"), (number, result["msg"])
            assert (api.token, set(api.loaded().values()), api.unlicensed) == (OLD, {OLD}, []), number

    def test_a_token_that_was_not_verified_does_not_replace_the_kept_one(self) -> None:
        api = fleet()
        api.containers.by_node["n1"].accepts = lambda text: text.decode() != NEW
        assert api.rotate(NEW)["license_rotation"]["failed"] == "n1"
        assert api.token == NEW
        result = api.rotate(NEWER)
        assert result["license"]["first_nodes"] == ["n0"], "n1 has its own problem"
        assert api.files(SECRET)["previous.client_configuration_token.tok"] == OLD
        api.rotate(OLD)
        assert api.files(SECRET)["previous.client_configuration_token.tok"] == NEWER

    def test_an_attempt_that_never_reached_the_secret_is_not_undone_by_older_files(self) -> None:
        api = fleet()
        api.rotate(NEW)
        accept_only(api, OLD, NEW)
        api.rotate(NEWER)
        failed = api.rotate(restore=True)
        assert failed["code"] == "invalid"
        assert "node n0 has a token that was never written to Secret licensing-config" in failed["msg"]
        assert (api.token, api.unlicensed) == (NEW, ["n0"])
        api.rotate()
        assert (api.token, api.unlicensed) == (NEW, [])

    def test_a_restoration_also_corrects_a_node_that_only_the_old_token_gives_a_license(self) -> None:
        api = fleet()
        api.containers.by_node["n2"].accepts = lambda text: text.decode() == OLD
        assert api.rotate(NEW)["license_rotation"]["failed"] == "n2"
        result = api.rotate(restore=True)
        assert result["license_rotation"]["rotated"] == ["n0", "n1", "n2"]
        assert (api.token, api.unlicensed) == (OLD, [])

    def test_it_needs_a_rotation(self) -> None:
        failed = fleet().license(restore=True)
        assert failed["code"] == "invalid"
        assert "requires rotate" in failed["msg"]


def test_the_files_of_the_first_node_are_the_desired_ones() -> None:
    api = fleet()
    api.rotate(NEW, feature_type=4)
    assert {each.files[CONFIG_PATH] for each in api.containers.by_node.values()} == {
        CONFIG.replace("=1", "=4").encode()
    }
