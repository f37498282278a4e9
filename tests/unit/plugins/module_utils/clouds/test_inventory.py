# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Discovered clusters of an account of the fake VKS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds import vks_client
from ansible_collections.accel.gpu.plugins.module_utils.clouds.kubeconfig_file import KubeconfigLifetime
from ansible_collections.accel.gpu.plugins.module_utils.clouds.vks_client import VksError
from ansible_collections.accel.gpu.plugins.module_utils.clouds.vks_groups import VksSource
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ConnectionProblem, InvalidOptions
from ansible_collections.accel.gpu.plugins.plugin_utils.clusters.query import KubeconfigFolder
from lab.vks.fake import FakeVks
from tests.helpers.vks import SECRETS, Account, running

LIFETIME = KubeconfigLifetime(days=30, renew_before=3)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeVks]:
    vks_client.TOKENS.clear()
    with running(tmp_path / "demo") as actual:
        yield actual


def source(fake: FakeVks, **settings: Any) -> VksSource:
    environ = {
        "VKS_IAM_URL": fake.url,
        "VKS_URL": f"{fake.url}/vks",
        "VKS_VSERVER_URL": f"{fake.url}/vserver/vserver-gateway",
        "GRN_CLIENT_ID": "lab",
        "GRN_CLIENT_SECRET": SECRETS["lab"],
        "OTHER_ID": "lab",
        "OTHER_SECRET": "wrong",
    }
    return VksSource(settings, environ, "accel.gpu/test")


def everything(name: str, status: str) -> bool:
    return True


def test_a_cluster_with_its_groups_and_their_gpus(fake: FakeVks) -> None:
    Account(fake).created()
    (actual,) = source(fake).discover(everything)
    assert (actual.provider, actual.cloud, actual.region, actual.name, actual.status, actual.ready) == (
        "vks",
        "vks",
        "HCM-3",
        "demo",
        "ACTIVE",
        True,
    )
    assert actual.settings == {"cluster": "demo", "region": "HCM-3"}
    by_name = {one.name: one for one in actual.groups}
    gpus = by_name.pop("gpus-1")
    assert (gpus.count, gpus.flavor, gpus.gpus, gpus.models) == (1, "g4-standard-32x128-2L40s", 2, ("L40S",))
    assert {(one.gpus, one.models) for one in by_name.values()} == {(0, ())}
    assert (actual.gpus, actual.models) == (2, ["L40S"])


def test_all_pages_are_read(fake: FakeVks) -> None:
    account = Account(fake)
    names = [f"group-{number:02d}" for number in range(12)]
    for name in names:
        assert account.create(name=name, numNodes=0).status < 300
    account.put("page-limit", 5)
    (actual,) = source(fake).discover(everything)
    assert {one.name for one in actual.groups} >= set(names)


def test_only_wanted_clusters_are_discovered(fake: FakeVks) -> None:
    assert source(fake).discover(lambda name, dummy: name == "other") == []
    assert source(fake).discover(lambda dummy, status: status != "ACTIVE") == []
    (actual,) = source(fake, vks_url=f"{fake.url}/vks").discover(everything)
    assert actual.settings["vks_url"] == f"{fake.url}/vks"


def test_a_kubeconfig_is_issued_once(fake: FakeVks, tmp_path: Path) -> None:
    one = source(fake)
    (actual,) = one.discover(everything)
    first = one.kubeconfig(actual, LIFETIME)
    assert one.kubeconfig(actual, LIFETIME) == first
    folder = KubeconfigFolder(str(tmp_path / "kubeconfigs"), LIFETIME)
    folder.fetch("demo", actual, one)
    assert folder.is_usable("demo", actual)
    current = folder.existing("demo")
    assert current is not None
    assert current.context == "demo"


def test_errors_do_not_contain_secrets(fake: FakeVks) -> None:
    with pytest.raises(ConnectionProblem, match="client_secret: missing"):
        source(fake, client_secret_env="NOWHERE").discover(everything)
    with pytest.raises(VksError) as caught:
        source(fake, client_id_env="OTHER_ID", client_secret_env="OTHER_SECRET").discover(everything)
    assert "wrong" not in str(caught.value)
    with pytest.raises(InvalidOptions, match="region"):
        VksSource({"region": "NOWHERE"}, {"GRN_CLIENT_ID": "a", "GRN_CLIENT_SECRET": "b"}, "test").discover(everything)
