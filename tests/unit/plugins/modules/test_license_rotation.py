# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module license_rotation beside another run, which changes the Secret or the nodes before this run holds the lease, and with a change that is held back."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import LeaseLost
from ansible_collections.accel.gpu.plugins.module_utils.kube.transport import ExecResult
from ansible_collections.accel.gpu.plugins.module_utils.licensing.cluster import LicenseObjectChange
from ansible_collections.accel.gpu.plugins.module_utils.licensing.content import (
    SECRET,
    DesiredFiles,
    LicenseFiles,
    LicenseTarget,
)
from ansible_collections.accel.gpu.plugins.module_utils.licensing.diagnosis import CONFIG_PATH, TOKEN_PATH
from ansible_collections.accel.gpu.plugins.module_utils.licensing.rotation import UnreachableServers
from ansible_collections.accel.gpu.plugins.module_utils.licensing.token import parse_token, utc_now
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.modules.license_rotation import TokenHeldBack
from tests.helpers.license_api import vgpu_pool
from tests.helpers.license_nodes import NAMESPACE, Container, Containers, initial_files, lost_connection
from tests.helpers.license_tokens import make_token
from tests.helpers.rotation_module import RotationLease, RotationModule

OLD, NEW, NEWER = (make_token(hosts=[f"{name}.example.com"]) for name in ("old", "new", "newer"))
CONFIG = "FeatureType=1\n"


def module(count: int = 2, **options: object) -> RotationModule:
    containers = Containers({f"n{index}": Container(initial_files(OLD, CONFIG)) for index in range(count)})
    return RotationModule(containers, NEW, CONFIG, **options)  # type: ignore[arg-type]


def reads(actual: RotationModule) -> int:
    """How often the state of the first node was read before its first change."""
    commands = [command for node, command in actual.containers.commands if node == "n0"]
    first = next((index for index, command in enumerate(commands) if command[0] == "cp"), len(commands))
    return [command[0] for command in commands[:first]].count("curl")


def test_a_run_that_does_not_wait_reads_once() -> None:
    actual = module()
    result = actual.work()
    assert result["changed"]
    assert result["license_rotation"]["rotated"] == ["n0", "n1"]
    assert reads(actual) == 1


def test_a_token_that_another_run_wrote_meanwhile_is_the_one_that_nodes_get() -> None:
    actual = module()

    def write() -> None:
        actual.token = NEWER

    actual.lease_of_run = RotationLease(write)
    result = actual.work()
    assert result["license_rotation"]["rotated"] == ["n0", "n1"]
    assert {each.loaded[TOKEN_PATH] for each in actual.containers.by_node.values()} == {NEWER.encode()}
    assert reads(actual) == 2


def test_nodes_that_another_run_changed_meanwhile_are_read_again() -> None:
    actual = module(3)
    by_node = actual.containers.by_node
    by_node["n1"] = Container(initial_files(NEW, CONFIG))

    def rotate() -> None:
        by_node["n0"] = Container(initial_files(NEW, CONFIG))
        by_node["n1"] = Container(initial_files(OLD, CONFIG))

    actual.lease_of_run = RotationLease(rotate)
    result = actual.work()
    assert result["license_rotation"]["rotated"] == ["n1", "n2"]
    assert result["license_rotation"]["unchanged_count"] == 1
    assert [each.started for each in by_node.values()] == [0, 1, 1]
    assert sorted(result["diff"]["after"]) == ["n1", "n2"]
    assert by_node["n0"].files[CONFIG_PATH] == CONFIG.encode()


def test_another_run_has_rotated_every_node_meanwhile() -> None:
    actual = module()

    def rotate() -> None:
        actual.containers.by_node.update(
            {name: Container(initial_files(NEW, CONFIG)) for name in actual.containers.by_node}
        )

    actual.lease_of_run = RotationLease(rotate)
    result = actual.work()
    assert not result["changed"]
    assert result["license_rotation"]["unchanged_count"] == 2
    assert actual.containers.mutations() == []


def test_a_token_that_is_not_valid_any_more_is_refused() -> None:
    actual = module()

    def write() -> None:
        actual.token = make_token(hosts=["new.example.com"], expires=-60)

    actual.lease_of_run = RotationLease(write)
    with pytest.raises(InvalidOptions, match="expired at"):
        actual.work()
    assert actual.containers.mutations() == []


@pytest.mark.parametrize(
    ("reason", "restarts", "failing"), [("CrashLoopBackOff", 3, ["n1"]), ("ContainerCreating", 0, [])]
)
def test_a_driver_that_has_failed_is_distinguished_from_one_that_starts(
    reason: str, restarts: int, failing: list[str]
) -> None:
    actual = module()
    pod_of = actual.containers.pod

    def pod(node: str) -> dict[str, Any]:
        item = pod_of(node)
        if node == "n1":
            (status,) = item["status"]["containerStatuses"]
            status.update(state={"waiting": {"reason": reason}}, restartCount=restarts)
        return item

    actual.containers.pod = pod  # type: ignore[method-assign]
    result = actual.work()["license_rotation"]
    assert (result["skipped"], result["failing"]) == (["n1"], failing)


def test_each_warning_is_shown_once() -> None:
    actual = module()

    def fail(node: str, command: tuple[str, ...]) -> None:
        if node == "n1":
            raise lost_connection()

    actual.containers.before = fail
    actual.lease_of_run = RotationLease(lambda: None)
    result = actual.work()
    assert (result["license_rotation"]["skipped"], result["license_rotation"]["failing"]) == (["n1"], [])
    assert actual.warnings == ["Not rotated: node n1. The license state could not be read: connection reset."]


def test_a_lease_that_is_lost_at_the_end_leaves_the_result() -> None:
    actual = module()
    lost = LeaseLost("The lease was lost before the run ended.")

    def lose(node: str, command: tuple[str, ...]) -> None:
        if all(container.started for container in actual.containers.by_node.values()):
            actual.lease_of_run.lost = lost

    actual.containers.after = lose
    with pytest.raises(LeaseLost) as error:
        actual.work()
    assert error.value.partial["license_rotation"]["rotated"] == ["n0", "n1"]
    assert error.value.partial["license_rotation"]["failed"] is None


HELD_BACK = ["spec.driver.licensingConfig.configMapName", "spec.driver.licensingConfig.secretName"]


def provided(token: str, held_back: list[str], *pools: str) -> dict[str, object]:
    """The result of the module license, which has written the token into a Secret."""
    target = LicenseTarget(SECRET, "by-hand", pools)
    desired = DesiredFiles(LicenseFiles(token.encode(), CONFIG.encode()), parse_token(token), ())
    change = LicenseObjectChange(target, None, LicenseFiles(), desired, {})
    return {
        "objects": [change.summary(NAMESPACE, utc_now())],
        "policy": "cluster-policy",
        "held_back": held_back,
        "driver_nodes": 0,
    }


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_new_token_that_no_driver_mounts(check_mode: bool) -> None:
    mounted = {"configMapName": "by-hand", "nlsEnabled": True}
    actual = module(mounted=mounted, params={"provided": provided(NEWER, HELD_BACK)}, check_mode=check_mode)
    actual.token = OLD
    with pytest.raises(TokenHeldBack) as error:
        actual.work()
    assert str(error.value) == (
        "No node was rotated: the driver pods do not mount Secret gpu-operator/by-hand. The change to spec.driver.licensingConfig.configMapName and "
        "spec.driver.licensingConfig.secretName of the ClusterPolicy was held back, because it restarts the driver. Set "
        "gpu_operator_allow_driver_rollout (option allow_driver_rollout of the module) in a maintenance window. The drivers then start with the token."
    )
    assert error.value.partial["license_rotation"]["pending"] == ["n0", "n1"]
    assert actual.containers.commands == []


def test_check_mode_checks_the_license_servers_of_the_token_that_would_be_written() -> None:
    actual = module(params={"provided": {**provided(NEWER, []), "policy": "cluster-policy"}}, check_mode=True)
    actual.token = OLD
    for container in actual.containers.by_node.values():
        container.connection = ExecResult(6, "0 0 0", "curl: (6) Could not resolve host: newer.example.com")
    with pytest.raises(UnreachableServers, match=r"The name newer.example.com cannot be resolved"):
        actual.work()
    assert actual.containers.mutations() == []


def test_a_token_that_is_not_mounted_at_all() -> None:
    disabled = {"secretName": "licensing-config"}
    actual = module(mounted=disabled, params={"provided": provided(NEW, ["spec.driver.licensingConfig.nlsEnabled"])})
    with pytest.raises(TokenHeldBack, match=r"nlsEnabled of the ClusterPolicy was held back"):
        actual.work()


def test_the_same_token_in_a_secret_that_no_driver_mounts_yet() -> None:
    mounted = {"configMapName": "by-hand", "nlsEnabled": True}
    actual = module(mounted=mounted, params={"provided": provided(NEW, HELD_BACK)})
    assert actual.work()["license_rotation"]["rotated"] == ["n0", "n1"]


@pytest.mark.parametrize(
    "given", [{"license": provided(NEW, [])}, {"changed": False, "skipped": True}, {"objects": []}]
)
def test_another_result_than_that_of_the_module_license_is_refused(given: dict[str, object]) -> None:
    actual = module(params={"provided": given})
    with pytest.raises(
        InvalidOptions,
        match=r"provided: is not the value of license in a result of accel.gpu.license; set it to that value",
    ):
        actual.work()
    assert actual.containers.commands == []


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_secret_that_the_driver_of_its_pool_does_not_name_yet(check_mode: bool) -> None:
    actual = module(params={"provided": provided(NEWER, [], "vdi")}, check_mode=check_mode)
    actual.plan = derive({"name": "prod"}, {}, [vgpu_pool("vdi", "by-hand")])
    actual.token = OLD
    with pytest.raises(TokenHeldBack) as error:
        actual.work()
    assert str(error.value) == (
        "No node was rotated. The driver pods on 2 nodes, n0, n1 do not mount Secret gpu-operator/by-hand. They will mount it after the playbook site has added it "
        "to the NVIDIADriver of the pool."
    )
    assert actual.containers.commands == []
    # The same content is enough.
    actual.token = NEWER
    assert actual.work()["license_rotation"]["rotated"] == ["n0", "n1"]


def test_a_secret_of_a_pool_without_nodes() -> None:
    actual = module(params={"provided": provided(NEWER, [], "other")})
    actual.plan = derive({"name": "prod"}, {}, [vgpu_pool("vdi", "licensing-config")])
    assert actual.work()["license_rotation"]["rotated"] == ["n0", "n1"]


@pytest.mark.parametrize("check_mode", [False, True])
def test_files_that_an_earlier_run_has_left_are_removed(check_mode: bool) -> None:
    """The first node needs no rotation, the second one only another gridd.conf, and the third one has nothing to remove."""
    actual = module(3, check_mode=check_mode)
    by_node, remaining = actual.containers.by_node, {f"{TOKEN_PATH}.new": OLD.encode()}
    by_node["n0"] = Container({**initial_files(NEW, CONFIG), **remaining})
    by_node["n1"] = Container({**initial_files(NEW, "FeatureType=2\n"), **remaining})
    by_node["n2"] = Container(initial_files(NEW, CONFIG))
    result = actual.work()
    assert (result["changed"], result["license_rotation"]["rotated"]) == (True, ["n1"])
    assert [f"{TOKEN_PATH}.new" in each.files for each in by_node.values()] == [check_mode, check_mode, False]
    if not check_mode:
        assert not actual.work()["changed"]


def test_a_node_that_leaves_the_cluster_is_in_the_result() -> None:
    actual = module(3)

    def remove(node: str, command: tuple[str, ...]) -> None:
        if node == "n1" and command[0] == "kill":
            actual.containers.remove_node(node)

    actual.containers.after = remove
    result = actual.work()["license_rotation"]
    assert (result["rotated"], result["removed"]) == (["n0", "n2"], ["n1"])
    assert actual.warnings == ["Not rotated: node n1 left the cluster during the rotation."]
