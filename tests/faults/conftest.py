# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of several files: three nodes with one GPU each whose sharing is changed, and a lab with two clouds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.cloud_pools import CloudPools
from tests.helpers.clouds import MAGNUM, VKS
from tests.helpers.rolling import NONE, Rolling
from tests.labs import Lab, own_lab
from tests.programs import REPO

# No machines except those of the clouds.
_FLEET = REPO / "lab" / "fleets" / "clouds.yaml"
_PROVIDERS = {provider.name: provider for provider in (MAGNUM, VKS)}


@pytest.fixture(scope="module")
def three(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Rolling:
    """The cluster of a file's tests."""
    return Rolling(lab).install(tmp_path_factory.mktemp("three"), nodes=3, gpus=1)


@pytest.fixture
def rolling(three: Rolling) -> Iterator[Rolling]:
    """The nodes with whole GPUs and without pods, in the same state for every test; after the test, the change back works, too."""
    reset_nodes(three)
    yield three
    reset_nodes(three)


def reset_nodes(rolling: Rolling) -> None:
    """Without faults, one run of repair and one of the change leave no traces."""
    rolling.users.delete_all()
    rolling.lab.command("fault", "clear")
    rolling.scale(3)
    for state, settled in (("repaired", False), ("present", True)):
        done = rolling.share(NONE, state=state, settled=settled)
        assert not done.get("failed"), done["msg"]
    rolling.require_clean()
    rolling.require_offered({"nvidia.com/gpu": 1})


@pytest.fixture(scope="module")
def both_clouds() -> Iterator[Lab]:
    """A lab with both clouds, and no other machines."""
    with own_lab("clouds", "openstack", "vks") as lab:
        lab.command("nodes", "apply", str(_FLEET))
        yield lab


@pytest.fixture(params=_PROVIDERS)
def cloud(both_clouds: Lab, request: pytest.FixtureRequest) -> CloudPools:
    """One of the two clouds."""
    return CloudPools(both_clouds, _PROVIDERS[request.param])
