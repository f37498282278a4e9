# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages when something is missing or broken: one clear message, with the remedy, and in time."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.labs import Lab
from tests.programs import VENV_BIN, run

SITE = "accel.gpu.site"
# A first connection that fails must not keep the user waiting.
PROMPT_SECONDS = 45.0

pytestmark = pytest.mark.sampled(3, group="messages")


def failing(seconds: float = PROMPT_SECONDS, *, environ: Mapping[str, str], **options: Any) -> str:
    """Run site, which must fail within the given seconds, and return its message."""
    started = time.monotonic()
    played: PlaybookRun = run_playbook(SITE, environ=environ, **options)
    took = time.monotonic() - started
    assert played.rc != 0
    # On a machine with more runnable processes than processors, a run gets its share.
    share = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert took < seconds * share, f"it took {took:.0f} s to say so"
    message = played.failure()
    assert "Traceback" not in message
    return message


def changed_kubeconfig(
    lab: Lab, path: Path, *, cluster: Mapping[str, Any] | None = None, user: Mapping[str, Any] | None = None
) -> Path:
    """Write a copy of the lab's kubeconfig with another server or user."""
    document = yaml.safe_load(lab.kubeconfig.read_text())
    document["clusters"][0]["cluster"] |= cluster or {}
    if user is not None:
        document["users"][0]["user"] = dict(user)
    path.write_text(yaml.safe_dump(document))
    return path


def test_no_cluster_at_the_address(lab: Lab, tmp_path: Path) -> None:
    kubeconfig = changed_kubeconfig(lab, tmp_path / "config", cluster={"server": "https://127.0.0.1:9"})
    message = failing(environ=lab.env_through(kubeconfig))
    assert "https://127.0.0.1:9" in message
    assert "refused" in message


def test_a_missing_kubeconfig(lab: Lab, tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"
    assert str(missing) in failing(environ=lab.env_through(missing))


def test_the_kubeconfig_of_another_cluster(lab: Lab) -> None:
    message = failing(environ={**lab.env, "LAB_NAME": "production"})
    assert "production" in message
    assert lab.name in message


def test_a_user_without_rights(lab: Lab, tmp_path: Path) -> None:
    manifest = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "no-rights", "namespace": "default"}}
    (tmp_path / "account.json").write_text(json.dumps(manifest))
    run("kubectl", "apply", "-f", str(tmp_path / "account.json"), env=lab.env)
    token = run("kubectl", "create", "token", "no-rights", env=lab.env).strip()
    kubeconfig = changed_kubeconfig(lab, tmp_path / "config", user={"token": token})
    message = failing(environ=lab.env_through(kubeconfig))
    assert "system:serviceaccount:default:no-rights" in message
    assert token not in message


@pytest.fixture(scope="module")
def empty_lab(lab: Lab) -> Lab:
    """The lab without the operator; nothing needs Helm in a cluster that is as declared."""
    lab.reset()
    return lab


def test_helm_is_missing(empty_lab: Lab) -> None:
    message = failing(environ={**empty_lab.env, "PATH": f"{VENV_BIN}:/usr/bin:/bin"})
    assert "helm" in message
    assert "binary_path" in message or "install" in message.lower()


def test_a_missing_chart(empty_lab: Lab, tmp_path: Path) -> None:
    message = failing(environ={**empty_lab.env, "LAB_CHARTS": str(tmp_path)})
    assert str(tmp_path) in message


@pytest.mark.usual(45)
@pytest.mark.sampled(1, group="failures of a release")
def test_nodes_without_nfd_labels(lab: Lab) -> None:
    lab.reset()
    lab.command("fault", "inject", "nfd-stalled", "--nodes", "a100-2,t4-1")
    message = failing(90, environ=lab.env, variables={"gpu_nfd_wait_timeout": 15}, arguments=["--tags", "nfd"])
    for word in (
        "2 node(s)",
        "nfd.node.kubernetes.io/feature-labels: a100-2, t4-1",
        "get nodefeature a100-2",
        "within 15 s",
    ):
        assert word in message
    lab.command("fault", "clear", "nfd-stalled")
    run_playbook(SITE, environ=lab.env, arguments=["--tags", "nfd"]).require_success()


@pytest.fixture
def broken_operator(lab: Lab) -> Iterator[None]:
    """A cluster whose GPU operator can never become ready."""
    lab.reset()
    lab.command("fault", "inject", "operator-broken")
    yield
    lab.command("fault", "clear", "operator-broken")


@pytest.mark.usual(40)
@pytest.mark.sampled(1, group="failures of a release")
@pytest.mark.usefixtures("broken_operator")
def test_an_operator_that_never_becomes_ready(lab: Lab) -> None:
    message = failing(120, environ=lab.env, variables={"gpu_operator_wait_timeout": 25})
    assert "GPU operator is not ready" in message
    assert "os-release" in message


@pytest.mark.usual(75)
# The tests of the module gpu_sharing have the same fault.
@pytest.mark.soak
def test_a_node_whose_device_plugin_crash_loops(lab: Lab) -> None:
    lab.reset()
    run_playbook(SITE, environ=lab.env, arguments=["--skip-tags", "validation,report"]).require_success()
    actual = json.loads(run("kubectl", "get", "nodes", "-l", "accel.gpu/pool=notebooks", "-o", "json", env=lab.env))
    broken = actual["items"][0]["metadata"]["name"]
    lab.command("fault", "inject", "plugin-crash", "--nodes", broken)
    pool = {"name": "notebooks", "match": {"model": "T4"}, "sharing": {"mode": "time-slicing", "replicas": 8}}
    variables = {"gpu_pools": [pool], "gpu_allow_release": "all", "gpu_sharing_wait_timeout": 20}
    message = failing(90, environ=lab.env, variables=variables, arguments=["--tags", "sharing"])
    assert broken in message
    assert "CrashLoopBackOff" in message
    lab.command("fault", "clear", "plugin-crash")
    del variables["gpu_sharing_wait_timeout"]
    run_playbook(SITE, environ=lab.env, variables=variables, arguments=["--tags", "sharing"]).require_success()
