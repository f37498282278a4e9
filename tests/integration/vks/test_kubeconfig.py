# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vks_kubeconfig: created when needed, readable only by its owner, and never in results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.modules import vks_kubeconfig, vks_kubeconfig_info
from tests.helpers.vks_modules import CLUSTER, Account, Object

MINT = "POST /v1/clusters/ID/kubeconfig"


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    """The path to the file."""
    return tmp_path / "kubeconfig"


def fetch(account: Account, dest: Path, *, check: bool = False, **more: Any) -> Object:
    args = {"cluster": CLUSTER, "dest": str(dest), "wait_sleep": 1, "wait_timeout": 20, **more}
    return account.run(vks_kubeconfig.main, check=check, **args)


def state(account: Account) -> Object:
    actual: Object = account.run(vks_kubeconfig_info.main, cluster=CLUSTER)["kubeconfig"]
    return actual


def test_the_first_run_creates_a_kubeconfig_and_the_second_changes_nothing(account: Account, dest: Path) -> None:
    assert state(account)["status"] == "NONE"
    predicted = fetch(account, dest, check=True)
    assert (account.writes(), dest.exists()) == ([], False)
    done = fetch(account, dest)
    assert (predicted["changed"], predicted["diff"]) == (done["changed"], done["diff"]) == (True, done["diff"])
    assert (done["kubeconfig"]["issued"], done["kubeconfig"]["reason"]) == (True, "VKS has none (NONE)")
    assert account.writes() == [MINT]
    assert dest.stat().st_mode & 0o777 == 0o600
    text = dest.read_text()
    assert '"users"' in text
    assert "users" not in str(done) + str(predicted)
    assert fetch(account, dest)["changed"] is False
    assert account.writes() == [MINT]
    assert state(account)["status"] == "ACTIVE"
    assert "users" not in str(account.run(vks_kubeconfig_info.main, cluster=CLUSTER))


@pytest.mark.parametrize(
    "spoil", [lambda path: path.unlink(), lambda path: path.write_text("other"), lambda path: path.chmod(0o644)]
)
def test_the_file_is_repaired_without_a_new_kubeconfig(account: Account, dest: Path, spoil: Any) -> None:
    fetch(account, dest)
    text = dest.read_text()
    spoil(dest)
    done = fetch(account, dest)
    assert (done["changed"], done["kubeconfig"]["issued"]) == (True, False)
    assert (dest.read_text(), dest.stat().st_mode & 0o777) == (text, 0o600)
    assert account.writes() == [MINT]
    assert [path.name for path in dest.parent.iterdir() if path.name.startswith(".kubeconfig-")] == []


def test_a_kubeconfig_that_expires_soon_is_replaced(account: Account, dest: Path) -> None:
    fetch(account, dest, expiration_days=30)
    assert fetch(account, dest, renew_before=29)["changed"] is False
    done = fetch(account, dest, renew_before=31)
    assert done["kubeconfig"]["reason"].startswith("it expires at ")
    assert account.writes() == [MINT, MINT]


def test_a_kubeconfig_with_a_warning_of_the_service_is_replaced(account: Account, dest: Path) -> None:
    fetch(account, dest)
    account.put("kubeconfig-expiring")
    assert fetch(account, dest)["kubeconfig"]["reason"] == "VKS warns that it expires soon"
    assert fetch(account, dest)["changed"] is False


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "fault", ["lost-reply", "unavailable", "server-error", "throttled", "broken-json", "token-expired"]
)
def test_temporary_faults_are_survived(account: Account, dest: Path, fault: str) -> None:
    account.put(fault, 1)
    assert fetch(account, dest)["changed"] is True
    account.clear()
    assert fetch(account, dest)["changed"] is False


def test_a_failed_creation_is_reported(account: Account, dest: Path) -> None:
    account.put("kubeconfig-failed")
    assert "(status ERROR)" in fetch(account, dest)["msg"]
    assert not dest.exists()
    account.clear()
    assert fetch(account, dest)["kubeconfig"]["reason"] == "VKS has none (ERROR)"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"expiration_days": 366}, "expiration_days: 366 is not allowed; VKS accepts 1 to 365."),
        ({"cluster": "other"}, "cluster: there is no 'other'"),
    ],
)
def test_bad_arguments(account: Account, dest: Path, more: Object, message: str) -> None:
    assert message in fetch(account, dest, **more)["msg"]
    assert account.writes() == []


def test_a_missing_folder(account: Account) -> None:
    assert "dest: the directory /nowhere does not exist" in fetch(account, Path("/nowhere/kubeconfig"))["msg"]
    assert account.requests() == []


def test_a_missing_right_has_a_clear_message(account: Account, dest: Path) -> None:
    account.client = "lab-unprivileged"
    denied = fetch(account, dest)
    assert (denied["code"], "VKS denies the request" in denied["msg"]) == (403, True)
