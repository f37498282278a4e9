# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A message about a refused value does not quote a secret that the value holds, wherever it was written."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.messages import field_path, quote
from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import validate

SECRET = "S3cretPlanted"
POOL = {"name": "p", "match": {"model": "T4"}}
TEXTS = (
    f"password={SECRET}",
    f"password: {SECRET}",
    f"the db_password1 is '{SECRET}', password = '{SECRET}'",
    f'{{"adminPassword": "{SECRET}"}}',
    f"--token {SECRET}",
    f"password=***{SECRET}",
    f"--api-token={SECRET}",
    f"a:password={SECRET}",
    f"pass%77ord={SECRET}",
    f"u:{SECRET}@reg.example.com",
    f"{SECRET}@reg.example.com",
    f"https://{SECRET}@reg.example.com/x",
    f"https://u:{SECRET}@reg.example.com",
    f"//u:{SECRET}@reg.example.com",
    f"https://reg.example.com/x.tgz?sig={SECRET}",
    f"https://reg.example.com/x.tgz?a=b&X-Amz-Signature={SECRET}",
    f"token={SECRET}-ubuntu22.04",
    f"token={SECRET}://reg.example.com",
    f"reg.example.com/token={SECRET}/",
)
REPLICAS = "gpu_pools[0].sharing.replicas"


def problems(operator: Any = None, nfd: Any = None, **pool: Any) -> list[str]:
    """The problems of these parts of the variables."""
    cluster = {"name": "lab", **({"operator": operator} if operator else {}), **({"nfd": nfd} if nfd else {})}
    return validate(cluster, {}, [{**POOL, **pool}])


@pytest.mark.parametrize("text", TEXTS)
def test_text_that_looks_like_a_secret_is_described(text: str) -> None:
    assert SECRET not in quote(text)
    assert "not shown" in quote(text)
    assert SECRET not in field_path("a", text)


@pytest.mark.parametrize(
    "text",
    [
        "4 GPUs", "lab", "train=2", "a=b:NoSchedule", "http://proxy:3128", "http://***@proxy:3128", "ssh root@{node}", "{{ item }}",
        "NVIDIA-A100-SXM4-80GB-MIG-1g.5gb", "nvcr.io/nvidia/cuda:12@sha256:" + 64 * "a", "0123456789abcdef0123456789abcdef",
        "passwords are elsewhere", "https://charts.example.com/stable?version=1",
    ],
)  # fmt: skip
def test_other_text_is_quoted_as_it_is(text: str) -> None:
    assert quote(text).startswith(f'"{text[:50]}')


@pytest.mark.parametrize("text", [*TEXTS, SECRET])
@pytest.mark.parametrize("which", ["operator", "nfd"])
def test_text_in_place_of_a_release_or_its_values_is_never_quoted(which: str, text: str) -> None:
    assert problems(**{which: text}) == [
        f"gpu_cluster.{which}: is a string, not a map; write it as `key: value` lines",
    ]
    assert problems(**{which: {"values": text}}) == [
        f"gpu_cluster.{which}.values: is a string, not a map; write it as `key: value` lines",
    ]
    for template in ({which: f"{text} {{{{ x }}}}"}, {which: {"values": f"{text} {{{{ x }}}}"}}):
        (problem,) = problems(**template)
        assert "still contains a template" in problem
        assert SECRET not in problem


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    "operator",
    [
        lambda text: {"registry": text},
        lambda text: {"image_pull_secrets": [text]},
        lambda text: {"driver": text},
        lambda text: {"driver": {"version": text}},
        lambda text: {"driver": {"secret_env": text}},
        lambda text: {"driver": {"kernel_module_type": text}},
        lambda text: {"driver": {"enabled": text}},
        lambda text: {"proxy": text},
        lambda text: {"proxy": {"http": text}},
        lambda text: {"proxy": {"http": "http://proxy:3128", "no_proxy": [text]}},
        lambda text: {"namespace": text},
        lambda text: {"release": text},
        lambda text: {"version": text},
        lambda text: {"repo_config": text},
        lambda text: {"chart": text},
        lambda text: {"chart_repo": text},
        lambda text: {"chart": "/charts/x", "chart_repo": text},
        lambda text: {text: 1},
        lambda text: {"values": {"driver": {"version": text}}},
        lambda text: {"values": {"driver": {"version": f"{text}\x00"}}},
    ],
)
def test_nothing_about_the_operator_quotes_a_secret(operator: Any, text: str) -> None:
    messages = "\n".join(problems(operator(text)))
    # Letters of another case are the same secret to a reader.
    assert SECRET.lower() not in messages.lower()


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    "pool",
    [
        lambda text: {"sharing": {"mode": "time-slicing", "replicas": text}},
        lambda text: {"sharing": {"mode": text}},
        lambda text: {"sharing": text},
        lambda text: {"sharing": {"mode": "mig", "layout": text}},
        lambda text: {"sharing": {"mode": "mig", "layout": {text: 1}}},
        lambda text: {"name": text},
        lambda text: {"model": text},
        lambda text: {"match": {"model": text}},
        lambda text: {"match": {"labels": {"a": text}}},
        lambda text: {"labels": {"a": text}},
        lambda text: {"labels": {text: "a"}},
        lambda text: {"taints": [text]},
        lambda text: {"taints": [{"key": text, "effect": "NoSchedule"}]},
        lambda text: {"nodes": {"count": text}},
        lambda text: {"rollout": {"max_unavailable": text}},
        lambda text: {"rollout": {"reboot": {"command": text}}},
        lambda text: {text: 1},
    ],
)
def test_nothing_about_a_pool_quotes_a_secret(pool: Any, text: str) -> None:
    assert SECRET.lower() not in "\n".join(problems(**pool(text))).lower()


def test_the_rule_is_still_reported() -> None:
    (problem,) = problems(sharing={"mode": "time-slicing", "replicas": f"password={SECRET}"})
    assert problem.startswith(
        f"{REPLICAS}: (text of 22 characters; not shown) is a string, not a whole number; use only decimal digits"
    )
    (problem,) = problems({"registry": f"u:{SECRET}@reg.example.com", "version": "v25.10.1"})
    assert problem.startswith(
        "gpu_cluster.operator.registry: (text of 31 characters; not shown) is not a registry; write host[:port]"
    )
