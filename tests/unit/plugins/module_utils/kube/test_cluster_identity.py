# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The name that a cluster remembers: recorded with the lease, kept by every later write of it, and refused to any other name."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.types import renaming_problems
from ansible_collections.accel.gpu.plugins.module_utils.kube.connection import Connection
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError, WrongCluster
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import (
    HOLDER_ANNOTATION,
    ClusterIdentity,
    Lease,
    identity_report,
    read_uid,
    recorded_name,
)

RECORD = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/accel-gpu"
ELSEWHERE = RECORD.replace("kube-system", "ops")
NAMESPACE = "/api/v1/namespaces/kube-system"
NAME = "accel.gpu/cluster-name"
UID = "5b2a9f3c-0d5e-4f5e-9a51-0c1d2e3f4a5b"

Object = dict[str, Any]


class Api:
    """Objects by path, with the conflicts of a real API server; `before_write` runs once, ahead of a write."""

    def __init__(self) -> None:
        self.guard: Callable[[str], None] | None = None
        self.objects: dict[str, Object] = {NAMESPACE: {"metadata": {"uid": UID, "resourceVersion": "1"}}}
        self.asked: list[str] = []
        self.before_write: list[Any] = []
        self.forbidden: set[str] = set()
        self.connection = Connection(SimpleNamespace(host="https://prod:6443"), "kubeconfig /k, context default")
        self._version = 1
        self._lock = threading.RLock()

    def get(self, path: str, query: Any = None) -> Object | None:
        self.asked.append(f"GET {path}")
        if path in self.forbidden:
            raise ApiError("forbidden", status=403, method="GET", path=path)
        return copy.deepcopy(self.objects.get(path))

    def create(self, path: str, body: Object, *, dry_run: bool = False, budget: float | None = None) -> Object:
        return self._write("POST", f"{path}/{body['metadata']['name']}", body)

    def replace(self, path: str, body: Object, *, dry_run: bool = False, budget: float | None = None) -> Object:
        return self._write("PUT", path, body)

    def name(self, path: str = RECORD) -> str:
        return recorded_name(self.objects.get(path))

    def _write(self, verb: str, path: str, body: Object) -> Object:
        self.asked.append(f"{verb} {path}")
        while self.before_write:
            self.before_write.pop()()
        with self._lock:
            live = self.objects.get(path)
            version = body["metadata"].get("resourceVersion")
            if (verb == "POST") == (live is not None) or (live and version != live["metadata"]["resourceVersion"]):
                raise ApiError("conflict", status=409, method=verb, path=path)
            self._version += 1
            kept = copy.deepcopy(body)
            kept["metadata"]["resourceVersion"] = str(self._version)
            self.objects[path] = kept
            return copy.deepcopy(kept)


def identity(
    api: Any, name: str = "prod", *, renamed_from: str = "", records: bool = True, **more: str
) -> ClusterIdentity:
    """Verified, as a module has it before it does anything."""
    actual = ClusterIdentity(api, {"name": name, **more}, renamed_from=renamed_from, records=records)
    actual.verify()
    return actual


def lease(api: Any, identity: ClusterIdentity, run: str = "run-1", **options: Any) -> Lease:
    return Lease(api, run, identity=identity, wait_timeout=0, **options)


@pytest.fixture
def api() -> Api:
    return Api()


def test_a_run_that_changes_nothing_records_nothing(api: Api) -> None:
    actual = identity(api)
    assert actual.pending == ("", "prod")
    with lease(api, actual, active=False):
        pass
    assert (api.name(), actual.change, RECORD in api.objects) == ("", None, False)


def test_the_first_change_records_the_name_which_then_stays(api: Api) -> None:
    first = identity(api)
    with lease(api, first):
        assert api.name() == "prod"
        assert HOLDER_ANNOTATION in api.objects[RECORD]["metadata"]["annotations"]
    assert (first.change, first.pending) == (("", "prod"), None)
    assert api.objects[RECORD]["metadata"]["annotations"] == {NAME: "prod"}
    second = identity(api)
    assert second.pending is None
    with lease(api, second, "run-2"):
        pass
    assert (api.name(), second.change) == ("prod", None)


def test_annotations_of_others_stay(api: Api) -> None:
    with lease(api, identity(api)):
        pass
    api.objects[RECORD]["metadata"]["annotations"]["example.com/x"] = "1"
    with lease(api, identity(api)):
        pass
    assert api.objects[RECORD]["metadata"]["annotations"] == {NAME: "prod", "example.com/x": "1"}


def test_another_name_is_refused_with_both(api: Api) -> None:
    with lease(api, identity(api)):
        pass
    asked = len(api.asked)
    with pytest.raises(WrongCluster) as caught:
        identity(api, "test")
    for words in ("gpu_cluster.name is 'test'", "recorded as 'prod'", "https://prod:6443", "-e gpu_renamed_from=prod"):
        assert words in str(caught.value)
    assert api.asked[asked:] == [f"GET {RECORD}"]


def test_one_look_serves_the_lease_as_well(api: Api) -> None:
    with lease(api, identity(api)):
        pass
    api.asked.clear()
    actual = lease(api, identity(api))
    actual.observe()
    assert api.asked == [f"GET {RECORD}"]
    with actual:
        assert actual.untouched
    assert [line.partition(" ")[0] for line in api.asked] == ["GET", "PUT", "PUT"]


def test_of_two_names_at_once_one_is_refused(api: Api) -> None:
    """Both runs have seen a cluster without a name; the first write decides, also where one run id is used for both."""
    for second_run in ("run-1", "run-2"):
        api.objects.pop(RECORD, None)
        prod, test = identity(api), identity(api, "test")

        def faster(prod: ClusterIdentity = prod) -> None:
            lease(api, prod).__enter__()

        api.before_write.append(faster)
        with pytest.raises(WrongCluster, match="recorded as 'prod'"), lease(api, test, second_run):
            raise AssertionError("taken")
        assert (api.name(), test.change) == ("prod", None)


def test_a_lease_without_a_name_of_an_older_version_is_decided_by_the_first_write_too(api: Api) -> None:
    api.objects[RECORD] = {"metadata": {"name": "accel-gpu", "resourceVersion": "1"}, "spec": {"holderIdentity": ""}}
    prod, test = identity(api), identity(api, "test")
    api.before_write.append(lambda: lease(api, prod).__enter__())
    with pytest.raises(WrongCluster), lease(api, test, "run-2"):
        raise AssertionError("taken")
    assert api.name() == "prod"


def test_a_rename_is_one_step_and_the_old_name_is_refused_afterwards(api: Api) -> None:
    with lease(api, identity(api)):
        pass
    renamed = identity(api, "production", renamed_from="prod")
    assert (renamed.renames, renamed.pending) == (True, ("prod", "production"))
    with lease(api, renamed):
        pass
    assert (api.name(), renamed.change, renamed.renames) == ("production", ("prod", "production"), False)
    again = identity(api, "production", renamed_from="prod")
    assert (again.pending, again.renames) == (None, False)
    with pytest.raises(WrongCluster, match="recorded as 'production'"):
        identity(api)
    with pytest.raises(WrongCluster, match="recorded as 'production'"):
        identity(api, "other", renamed_from="prod")


def test_a_recorded_name_is_text_in_the_command_that_the_message_shows(api: Api) -> None:
    with lease(api, identity(api, "prod; reboot")):
        pass
    with pytest.raises(WrongCluster, match="-e gpu_renamed_from='prod; reboot' to one run"):
        identity(api, "test")


@pytest.mark.parametrize(
    ("cluster", "renamed_from", "expected"),
    [
        ({"name": "production"}, "prod", ""),
        ({"name": "production"}, "", ""),
        ({"name": "prod"}, "prod", 'renamed_from: "prod" is already the name of this cluster'),
        ({}, "prod", "renamed_from: has no effect without gpu_cluster.name"),
        ({"name": "production", "renamed_from": "prod"}, "", "-e gpu_renamed_from=NAME"),
    ],
)
def test_a_rename_is_an_option_of_one_run(cluster: Object, renamed_from: str, expected: str) -> None:
    problems = list(renaming_problems(cluster, renamed_from))
    assert len(problems) == bool(expected)
    assert expected in "".join(problems)


def test_a_renewal_keeps_the_record_and_overwrites_no_other(api: Api) -> None:
    actual = identity(api)
    with lease(api, actual, duration=0.09):
        api.objects[RECORD]["metadata"]["annotations"][NAME] = "renamed-meanwhile"
        before = api.objects[RECORD]["metadata"]["resourceVersion"]
        api.objects[RECORD]["metadata"]["resourceVersion"] = f"{before}0"
        waited = threading.Event()
        for dummy in range(100):
            if api.objects[RECORD]["metadata"]["resourceVersion"] != f"{before}0":
                break
            waited.wait(0.02)
        assert api.name() == "renamed-meanwhile"


def test_the_record_has_one_place_wherever_the_lease_is(api: Api) -> None:
    actual = identity(api)
    with lease(api, actual, namespace="ops"):
        assert api.name() == "prod"
    assert (actual.change, api.name(ELSEWHERE)) == (("", "prod"), "")
    with lease(api, identity(api), namespace="ops"):
        pass
    assert (api.name(ELSEWHERE), api.name()) == ("", "prod")


def test_two_names_by_leases_in_two_namespaces(api: Api) -> None:
    prod, test = identity(api), identity(api, "test")
    with lease(api, prod):
        pass
    with pytest.raises(WrongCluster), lease(api, test, namespace="ops"):
        raise AssertionError("taken")
    assert (api.name(), api.objects[ELSEWHERE]["spec"]["holderIdentity"]) == ("prod", "")


def test_who_does_not_record_only_checks(api: Api) -> None:
    with lease(api, identity(api, records=False)):
        assert api.name() == ""
    with lease(api, identity(api)):
        pass
    with pytest.raises(WrongCluster):
        identity(api, "test", records=False)
    with lease(api, identity(api, records=False)):
        assert api.name() == "prod"
    assert api.name() == "prod"


def test_the_uid_is_compared(api: Any) -> None:
    identity(api, uid=UID)
    other = UID.replace("5", "6")
    with pytest.raises(WrongCluster) as caught:
        identity(api, uid=other)
    assert repr(UID) in str(caught.value)
    assert repr(other) in str(caught.value)
    api.forbidden.add(NAMESPACE)
    with pytest.raises(ApiError):
        identity(api, uid=UID)
    assert (read_uid(api), identity(api).name) == ("", "prod")


def test_identity_report(api: Any) -> None:
    report = identity_report(api, identity(api))
    assert report == {
        "uid": UID,
        "recorded_name": None,
        "name_to_record": "prod",
        "server": "https://prod:6443",
        "origin": "kubeconfig /k, context default",
    }
    with lease(api, identity(api)):
        pass
    unnamed = ClusterIdentity(api)
    unnamed.verify()
    report = identity_report(api, unnamed)
    assert (report["recorded_name"], report["name_to_record"]) == ("prod", None)
    api.forbidden |= {RECORD, NAMESPACE}
    report = identity_report(api, unnamed)
    assert (report["recorded_name"], report["uid"]) == (None, None)
