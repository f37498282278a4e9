# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of the container toolkit for each distribution and release of the operator."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.distributions import (
    BY_NAME,
    CONDITIONS,
    CONFIG,
    DISTRIBUTIONS,
    DROP_IN,
    SOCKET,
)
from ansible_collections.accel.gpu.plugins.module_utils.catalog.releases import OPERATOR_RELEASES, release_of


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda each: each.name)
def test_a_distribution_has_a_source_and_is_a_condition(distribution: object) -> None:
    assert distribution.source  # type: ignore[attr-defined]
    assert distribution.name in CONDITIONS  # type: ignore[attr-defined]


@pytest.mark.parametrize("release", OPERATOR_RELEASES, ids=lambda each: each.version)
def test_every_release_has_the_socket_of_the_distribution(release: object) -> None:
    version = release.version  # type: ignore[attr-defined]
    sockets = {each.name: each.toolkit_variables(version).get(SOCKET) for each in DISTRIBUTIONS}
    assert sockets == {
        "kubeadm": None,
        "rke2": "/run/k3s/containerd/containerd.sock",
        "k3s": "/run/k3s/containerd/containerd.sock",
        "k0s": "/run/k0s/containerd.sock",
        "microk8s": "/var/snap/microk8s/common/run/containerd.sock",
        # CRI-O
        "openshift": None,
    }
    # Drop-in files exist since v25.10; k0s does not read the imports of a file that it imports.
    k0s = BY_NAME["k0s"].toolkit_variables(version)
    imported = k0s[DROP_IN] if release_of(version) >= (25, 10) else k0s[CONFIG]
    assert imported == "/etc/k0s/containerd.d/nvidia.toml"
    assert (DROP_IN in k0s) == (release_of(version) >= (25, 10))
