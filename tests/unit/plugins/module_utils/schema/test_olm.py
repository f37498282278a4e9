# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys `installer` and `olm`, and the keys that each installer reads."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.schema.cluster import installer_of
from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import validate

ON_OPENSHIFT = {"name": "c", "distribution": "openshift"}


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (ON_OPENSHIFT, ""),
        ({**ON_OPENSHIFT, "operator": {"olm": {"channel": "v25.10", "source": "mirror"}}}, ""),
        ({**ON_OPENSHIFT, "operator": {"release": "x"}}, "gpu_cluster.operator.release: has no effect with installer: olm"),
        ({**ON_OPENSHIFT, "operator": {"chart": "./x"}}, "olm.package names the package"),
        ({**ON_OPENSHIFT, "operator": {"registry": "r.example"}}, "ImageDigestMirrorSet"),
        ({**ON_OPENSHIFT, "operator": {"installer": "helm", "registry": "r.example"}}, ""),
        ({"name": "c", "operator": {"olm": {"channel": "v25.10"}}}, ""),
        (
            {"name": "c", "distribution": "k3s", "operator": {"olm": {"channel": "v25.10"}}},
            "gpu_cluster.operator.olm: has no effect with installer: helm",
        ),
        ({"name": "c", "nfd": {"installer": "helm", "olm": {"channel": "4.18"}}}, "gpu_cluster.nfd.olm: has no effect"),
        ({**ON_OPENSHIFT, "nfd": {"installer": "apt"}}, "is not a valid value; known: helm, olm"),
        ({**ON_OPENSHIFT, "nfd": {"olm": {"approval": "manual"}}}, "did you mean Manual?"),
        ({**ON_OPENSHIFT, "nfd": {"olm": {"chanel": "4.18"}}}, "did you mean channel?"),
        (
            {**ON_OPENSHIFT, "nfd": {"olm": {"catalog_image": "r.example/catalog:v4.18"}}},
            "gpu_cluster.nfd.olm.source: is missing; a run creates a CatalogSource",
        ),
        (
            {**ON_OPENSHIFT, "nfd": {"olm": {"catalog_image": "r.example/catalog:v4.18", "source": ["staging"]}}},
            "",
        ),
        ({**ON_OPENSHIFT, "nfd": {"olm": {"target_namespaces": [], "operator_group": "g", "additional_csvs": "a,b"}}}, ""),
        ({**ON_OPENSHIFT, "nfd": {"olm": {"target_namespaces": ["a b"]}}}, "gpu_cluster.nfd.olm.target_namespaces[0]: "),
        ({**ON_OPENSHIFT, "nfd": {"olm": {"operator_group": "a b"}}}, "gpu_cluster.nfd.olm.operator_group: "),
        (
            {**ON_OPENSHIFT, "operator": {"olm": {"subscription_config": {"toleration": []}}}},
            'gpu_cluster.operator.olm.subscription_config: unknown key "toleration"; did you mean tolerations?',
        ),
        (
            {**ON_OPENSHIFT, "operator": {"olm": {"subscription_config": {"env": [{"name": "A", "value": 1}]}}}},
            "gpu_cluster.operator.olm.subscription_config.env[0].value: 1 is a number; an environment variable is a string",
        ),
        (
            {**ON_OPENSHIFT, "operator": {"olm": {"subscription_config": {
                "env": [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}],
                "tolerations": [{"key": "node-role.kubernetes.io/infra", "operator": "Exists"}],
            }}}},
            "",
        ),
        (
            {**ON_OPENSHIFT, "operator": {"olm": {"subscription_config": {
                "env": [{"name": "HTTPS_PROXY", "value": "http://u:Xk29fPq81@proxy.example:3128"}],
            }}}},
            "gpu_cluster.operator.olm.subscription_config.env[0].value: contains a secret",
        ),
    ],
)  # fmt: skip
def test_keys(cluster: dict[str, Any], words: str) -> None:
    problems = validate(cluster, {}, [])
    assert words in "\n".join(problems)
    assert bool(problems) == bool(words), problems


@pytest.mark.parametrize(
    ("cluster", "installer"),
    [
        ({}, "helm"),
        ({"distribution": "rke2"}, "helm"),
        ({"distribution": "openshift"}, "olm"),
        ({"distribution": "openshift", "operator": {"installer": "helm"}}, "helm"),
        ({"operator": {"installer": "olm"}}, "olm"),
        (None, "helm"),
    ],
)
def test_installer_of(cluster: Any, installer: str) -> None:
    assert installer_of(cluster, "operator") == installer
