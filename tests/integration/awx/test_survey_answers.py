# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answers to every question of every survey reach the playbook: those within the limits are accepted, and wrong texts refused before anything is sent.

What AWX itself refuses needs no job (tests/unit/plugins/plugin_utils/awx/test_surveys.py). The clusters do not exist, so a job with valid answers ends with
that message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.plugin_utils.awx.operations import OPERATIONS
from ansible_collections.accel.gpu.plugins.plugin_utils.awx.surveys import survey
from tests.helpers.awx import StandIn, stand_in

Answers = dict[str, Any]
NO_CLUSTER = "The kubeconfig /nonexistent does not exist"
# A job whose cluster cannot be reached is successful.
SUCCESS = ""
GROUPS: list[dict[str, Any]] = [
    {"name": "train", "model": "Tesla-T4", "nodes": {"flavor": "g4dn.xlarge", "like": "worker", "count": 1}, "sharing": {"mode": "none"}},
]  # fmt: skip
VGPU: list[dict[str, Any]] = [
    {
        "name": "desktops",
        "nodes": {"zones": ["zone-a"], "count": 1},
        "vgpu": {"profile": "grid_a100-10c", "count": 1},
        "driver": {"type": "vgpu", "version": "580.95.05", "repository": "registry.invalid/nvidia", "licensing_secret": "licensing-config"},
        "sharing": {"mode": "none"},
    },
]  # fmt: skip
# The clusters: a pool of existing nodes, a pool with MachineSets, and a pool with vGPUs.
HOSTS: dict[str, Any] = {
    "plain": {"gpu_cluster": {"name": "plain", "kubeconfig": "/nonexistent"}, "gpu_mirror_registry": "registry.invalid"},
    "groups": {
        "gpu_cluster": {"name": "groups", "kubeconfig": "/nonexistent", "distribution": "openshift", "cloud": {"machineset": {}}},
        "gpu_pools": GROUPS,
    },
    "vgpu": {
        "gpu_cluster": {"name": "vgpu", "kubeconfig": "/nonexistent", "distribution": "openshift", "cloud": {"machineset": {"vsphere": {"username": "gpu@vsphere.local"}}}},
        "gpu_pools": VGPU,
    },
}  # fmt: skip
POOLS = {"plain": "notebooks", "groups": "train", "vgpu": "desktops"}
CLUSTERS = {
    **dict.fromkeys(("scale", "nodegroups", "delete_nodegroups", "autoscaling"), "groups"),
    **dict.fromkeys(("templates", "vsphere_hosts", "templates_refresh", "driver_image"), "vgpu"),
    **dict.fromkeys(("license", "license_rotate", "license_report"), "vgpu"),
}
JINJA = "{{ lookup('ansible.builtin.pipe', 'id') }}"


def required(operation: str) -> Answers:
    """The answers without which AWX starts no job."""
    answers = {"gpu_pool": POOLS[CLUSTERS.get(operation, "plain")], "gpu_node_count": 2}
    return {name: value for name, value in answers.items() if name in OPERATIONS[operation].required}


def end(operation: str) -> str:
    """The end of a job with valid answers."""
    return SUCCESS if operation == "plan" else NO_CLUSTER


def valid(operation: str) -> Iterator[tuple[str, Answers]]:
    """All answers that a user can give without a thought: none, the lowest, the highest, and empty texts."""
    questions = survey(operation, OPERATIONS[operation])["spec"]
    numbers = [each for each in questions if each["type"] == "integer"]
    choices = [each for each in questions if each["type"] == "multiplechoice"]
    texts = [each for each in questions if each["type"] in ("text", "textarea") and not each["required"]]
    yield "defaults", {}
    for limit, choice in (("min", 0), ("max", -1)):
        if numbers or choices:
            yield (
                limit,
                {
                    **{each["variable"]: each[limit] for each in numbers},
                    **{each["variable"]: each["choices"][choice] for each in choices},
                },
            )
    if texts:
        yield "empty", {each["variable"]: "" for each in texts}


def wrong(operation: str, variable: str, longest: int) -> Iterator[tuple[Any, str]]:
    """Texts that AWX accepts, and the message of the role or of the module. A text that names nothing in a list is refused before a cluster is contacted."""
    if variable == "gpu_confirm":
        # Whether a cluster must be confirmed is decided after its state is read.
        yield from ((text, NO_CLUSTER) for text in ("elsewhere", JINJA, "x" * longest))
    elif variable == "gpu_nodegroups_drain_options":
        yield "{broken", "is a string, not a map; write it as JSON"
        yield "[1]", "is a string, not a map; write it as JSON"
        yield JINJA, "is a string, not a map; write it as JSON"
    elif variable == "gpu_sharing_label_selectors":
        yield "zone in", "label_selectors"
        yield ",", "contains no name"
        yield JINJA, "label_selectors"
    elif variable == "gpu_pool" or variable.endswith("pool_names"):
        yield ",", "contains no name; use comma-separated names"
        refusal = "gpu_pool does not select pools with vgpu" if operation == "templates_refresh" else " is not "
        yield "nosuch", refusal
        yield "x" * longest, refusal
        yield JINJA, "still contains a template; set the value itself" if operation == "scale" else refusal
    else:
        yield ",", "contains no name; use comma-separated names"
        # What these select is known only in the cluster, in vCenter, or in a registry.
        yield JINJA, WRONG_NAMES.get(variable, end(operation))


WRONG_NAMES = {
    "gpu_mirror_operating_systems": "is not an operating system; specify ID and VERSION_ID",
    "gpu_mirror_operator_versions": "is not an exact version; use a full version",
}


def cases() -> Iterator[tuple[str, str, Answers, str]]:
    """Operation, what is tried, answers, and the message of the failure."""
    for operation in OPERATIONS:
        if not OPERATIONS[operation].questions:
            continue
        for name, answers in valid(operation):
            yield operation, name, {**required(operation), **answers}, end(operation)
        for question in survey(operation, OPERATIONS[operation])["spec"]:
            if question["type"] in ("text", "textarea"):
                variable = question["variable"]
                for value, message in wrong(operation, variable, question["max"]):
                    yield operation, f"{variable}={value[:12]}", {**required(operation), variable: value}, message


CASES = list(cases())


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with stand_in(tmp_path_factory.mktemp("awx")) as started:
        (started.repository / "inventory" / "hosts.yml").write_text(yaml.safe_dump({"gpu_clusters": {"hosts": HOSTS}}))
        started.commit()
        started.fill(
            {
                "operations": list(OPERATIONS),
                "execution_environment": {"image": "registry.example.com/accel-gpu:1"},
                "project": {"url": str(started.repository)},
                "inventory": {"sources": [{"name": "clusters", "path": "inventory/hosts.yml"}]},
            }
        )
        yield started


def shows(output: str, text: str) -> bool:
    """Whether the output contains the text, regardless of line breaks and escapes."""
    return "".join(text.split()) in "".join(output.replace("\\", "").split())


@pytest.mark.sampled(5)
@pytest.mark.usual(10)
@pytest.mark.parametrize(
    ("operation", "answers", "message"),
    [(operation, answers, message) for operation, _name, answers, message in CASES],
    ids=[f"{operation} {name}" for operation, name, _answers, _message in CASES],
)
def test_answers(running: StandIn, operation: str, answers: Answers, message: str) -> None:
    job = running.finished(
        f"GPU {OPERATIONS[operation].title}", extra_vars=answers, limit=CLUSTERS.get(operation, "plain")
    )
    assert job["status"] == ("failed" if message else "successful"), job["output"][-3000:]
    assert shows(job["output"], message), job["output"][-3000:]
    assert "changed=0" in "".join(job["output"].split())
    for word in ("Traceback", "uid=", "is undefined", "unable to convert"):
        assert word not in job["output"]
    given = yaml.safe_load(
        (running.awx.folder / "jobs" / f"awx_{job['id']}" / "env" / "extravars").read_text().replace("!unsafe", "")
    )
    assert given.items() >= answers.items()
