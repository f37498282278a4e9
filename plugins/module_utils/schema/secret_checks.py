# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helm values hold no secrets: Helm keeps them in its records, charts put them into objects that many may read, and programs print them."""

from __future__ import annotations

from ..common.nested import get_nested
from .secret_values import SecretValue, find_secrets
from .types import Problems
from .views import Document, PoolView

_OPERATOR, _NFD = "gpu_cluster.operator.values", "gpu_cluster.nfd.values"


def values_hold_no_secrets(cluster: Document) -> Problems:
    """Each secret among the values, by its path, with what to write instead; the secret itself is not shown."""
    for which, path in (("operator", _OPERATOR), ("nfd", _NFD)):
        for found in find_secrets(get_nested(cluster, which, "values"), path):
            yield f"{found.path}: holds a secret ({found.what}; not shown), which has no place in Helm values; {_remedy(found)}"


def reboot_command_holds_no_secrets(pool: PoolView) -> Problems:
    """A command line is for every user of the machine to read, and the cluster's own runs find it in a ConfigMap."""
    path = f"{pool.path}.rollout.reboot.command"
    for found in find_secrets(get_nested(pool.merged, "rollout", "reboot", "command"), path):
        yield f"{found.path}: holds a secret ({found.what}; not shown), which everybody may read there; have the program read it from a file"


def _remedy(found: SecretValue) -> str:
    if "registry" in found.what or "docker" in found.path.lower():
        return "create a Secret of type kubernetes.io/dockerconfigjson in the release's namespace and name it in gpu_cluster.operator.image_pull_secrets"
    if "licens" in found.path.lower():
        return "put it into a Secret in the operator's namespace and name that in driver.licensingConfig.secretName"
    if found.path.startswith(f"{_OPERATOR}.driver."):
        return "put the variable into a Secret in the operator's namespace and name that in gpu_cluster.operator.driver.secret_env"
    return "put it into a Secret and name that (secretName, secretKeyRef, imagePullSecrets, or as the chart has it)"
