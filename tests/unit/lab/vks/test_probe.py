# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe, run against the fake VKS."""

from __future__ import annotations

import pytest

from lab import cloud_requests
from lab.vks import contract
from lab.vks.fake import FakeVks
from lab.vks.probe import Probe, redact
from tests.helpers.vks import SECRETS, Account

OBSERVABLE = (
    "read-status",
    "error-envelope",
    "group-events",
    "projects-response",
    "subnets-response",
    "flavors-response",
    "families-response",
)


def run_probe(fake: FakeVks, client: str = "lab") -> Probe:
    probe = Probe({**fake.addresses(), "GRN_CLIENT_ID": client, "GRN_CLIENT_SECRET": SECRETS[client]})
    probe.run()
    return probe


def test_no_differences_from_the_contract(account: Account) -> None:
    account.created(labels={"a": "b"}, taints=[{"key": "k", "effect": "NoSchedule"}])
    probe = run_probe(account.fake)
    requested = {line.partition(":")[0] for line in probe.lines}
    read_operations = {one.name for one in contract.load().operations.values() if one.method == "GET"}
    assert requested == {"token-v2", *read_operations} - {"get-kubeconfig"}
    assert not [line for line in probe.lines if "\n" in line]
    assert probe.guesses == {name: contract.load().guesses[name].default for name in OBSERVABLE}
    assert probe.statuses == {"node group ACTIVE", "node ACTIVE"}


@pytest.mark.parametrize("which", [1, -1])
def test_alternatives_are_recognized(account: Account, which: int) -> None:
    expected = {name: list(contract.load().guesses[name].alternatives)[which] for name in OBSERVABLE}
    for name, value in expected.items():
        account.set(name, value)
    assert run_probe(account.fake).guesses == expected


def test_only_read_requests_and_no_values(fake: FakeVks) -> None:
    probe = run_probe(fake, "lab-reader")
    log = cloud_requests.path_of(fake._lab)
    assert log.exists()
    assert cloud_requests.writes(fake._lab) == []
    text = probe.report()
    for secret in (SECRETS["lab-reader"], "default-worker", "k8s-", "demo", "10.81"):
        assert secret not in text


def test_differences_are_redacted() -> None:
    problems = contract.load().schemas.problems(
        "Node", {"id": "secret", "name": 5, "status": "x", "ready": True, "zone": "a"}
    )
    assert sorted(map(redact, problems)) == ["id: does not match", "name: is not a string", "zone: unknown field"]


def test_secrets_are_not_sent_unencrypted(fake: FakeVks) -> None:
    probe = Probe({"VKS_IAM_URL": "http://example.org", "GRN_CLIENT_ID": "a", "GRN_CLIENT_SECRET": "b"})
    with pytest.raises(SystemExit, match="would send secrets unencrypted"):
        probe.run()
