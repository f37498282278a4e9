# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Short names of nodes stay different."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.report.view_model import (
    MAX_NAME_LENGTH,
    PoolView,
    common_domain,
    common_prefix,
    read_node,
)


@pytest.mark.parametrize(
    ("names", "prefix", "domain"),
    [
        (["t4-1", "t4-2"], "", ""),
        (["prod-worker-gpu-h100-7xk2p", "prod-worker-gpu-h100-b9z4q"], "prod-worker-gpu-h100-", ""),
        (
            ["ip-10-0-1-7.eu-west-1.compute.internal", "ip-10-0-1-9.eu-west-1.compute.internal"],
            "",
            ".eu-west-1.compute.internal",
        ),
        (["10.0.0.5", "11.0.0.5"], "", ""),
        (["a.example", "b.other"], "", ""),
        (["only-one-with-a-long-name.example"], "", ""),
        (["alike-and-quite-long-1x", "alike-and-quite-long-1y"], "alike-and-quite-long-", ""),
        (["different-and-quite-long", "another-and-quite-long"], "", ""),
    ],
)
def test_common_parts(names: list[str], prefix: str, domain: str) -> None:
    assert common_domain(names) == domain
    assert common_prefix([name.removesuffix(domain) for name in names]) == prefix


@given(st.lists(st.text("ab1-.", min_size=1, max_size=30), unique=True, min_size=1, max_size=6))
def test_short_names_stay_different(names: list[str]) -> None:
    domain = common_domain(names)
    prefix = common_prefix([name.removesuffix(domain) for name in names])
    nodes = tuple(read_node("n0", {"name": name}, {}, {}) for name in names)
    pool = PoolView("g0", None, None, True, nodes, prefix, domain)
    short = [pool.label(node) for node in nodes]
    assert len(set(short)) == len(names)
    assert all(len(one) <= max(MAX_NAME_LENGTH, len(name)) for one, name in zip(short, names, strict=True))
