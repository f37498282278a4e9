#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creates and verifies the Secrets with which nodes pull images."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pull_secret
short_description: Create or verify Secrets for pulling images
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Writes the logins in O(registries) to Secrets of the type C(kubernetes.io/dockerconfigjson). In existing Secrets, logins for other registries are kept.
  - If no registry in O(registries) has a login, the module only verifies that the Secrets exist and have that type.
  - The module writes only the logins for the listed registries, and never the whole content of O(auth_file).
  - The result and the diff contain only the names of the registries, and never passwords.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.registry.with_cluster
  - accel.gpu.registry
  - accel.gpu.expected
  - accel.gpu.lease
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
options:
  names:
    description: Names of the Secrets, for example C(gpu_cluster.operator.image_pull_secrets).
    type: list
    elements: str
    required: true
  namespaces:
    description: Namespaces in which the Secrets are needed.
    type: list
    elements: str
    required: true
seealso:
  - module: accel.gpu.registry_image
"""

EXAMPLES = r"""
- name: Let the nodes pull the operator's images from a private registry
  accel.gpu.pull_secret:
    gpu_cluster: "{{ gpu_cluster }}"
    names: [registry-login]
    namespaces: [gpu-operator, node-feature-discovery]
    registries:
      - {registry: registry.example.com, username: gpu, password: "{{ registry_password }}"}

- name: Use NVIDIA's registry, with an API key in the environment variable NGC_API_KEY
  accel.gpu.pull_secret:
    gpu_cluster: "{{ gpu_cluster }}"
    names: [ngc-secret]
    namespaces: [gpu-operator]
    registries: [{registry: nvcr.io}]
"""

RETURN = r"""
pull_secrets:
  description: The Secrets.
  returned: success
  type: list
  elements: dict
  contains:
    name: {description: Name of the Secret., type: str, returned: always, sample: registry-login}
    namespace: {description: Namespace of the Secret., type: str, returned: always, sample: gpu-operator}
    registries: {description: The registries for which the Secret contains logins., type: list, elements: str, returned: always, sample: [registry.example.com]}
    action: {description: 'V(created), V(updated) or V(unchanged).', type: str, returned: always, sample: unchanged}
code:
  description:
    - The reason for the failure. V(invalid) - errors in the options, or a Secret that is missing or has a different type. V(wrong_cluster) - the connection
      points to a different cluster. V(connection) - no usable connection settings. V(unreachable) - the API server does not respond.
      V(lease_held) - another run holds the Lease. V(lease_lost) - this run lost it. Otherwise, the HTTP status of the API server's error.
  returned: failure
  type: raw
  sample: invalid
details:
  description:
    - Details of the failure. C(problems) lists all errors. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {problems: ["Secret gpu-operator/registry-login does not exist."]}
"""

import typing as t

from ..module_utils.core.errors import InvalidOptions
from ..module_utils.core.messages import diff_of, quote
from ..module_utils.core.module import ArgumentSpec, merge_specs
from ..module_utils.core.values import Object
from ..module_utils.kube.errors import retry_conflicts
from ..module_utils.kube.module import GpuModule
from ..module_utils.kube.objects import write_or_dry_run
from ..module_utils.registry.credentials import ForeignSecret, desired_secret, logins_of, unusable_logins
from ..module_utils.registry.module import REGISTRY, RegistryAccessMixin
from ..module_utils.schema.validators import dns_label, object_name

_SPEC: ArgumentSpec = {
    "names": {"type": "list", "elements": "str", "required": True},
    "namespaces": {"type": "list", "elements": "str", "required": True},
}


class PullSecretModule(RegistryAccessMixin, GpuModule):
    """A module with the options for the cluster and the registries."""


def work(module: PullSecretModule) -> dict[str, t.Any]:
    """Compare all Secrets, and write those in which a login is missing or differs."""
    _check_names(module.params)
    keys = [(namespace, name) for namespace in module.params["namespaces"] for name in module.params["names"]]
    live = {key: module.client.get(_path(*key)) for key in keys}
    desired = _desired(module, live)
    changed = {key: body for key, body in desired.items() if body is not None}
    unchecked = None
    if changed:
        with module.lease() as lease:
            for key, body in changed.items():
                lease.check()
                unchecked = _write(module, key, body) or unchecked
    results = [
        {
            "name": name,
            "namespace": namespace,
            "registries": sorted(logins_of(desired[namespace, name] or live[namespace, name] or {})),
            "action": _action(live[namespace, name], desired[namespace, name]),
        }
        for namespace, name in keys
    ]
    before = {f"Secret {'/'.join(key)}": sorted(logins_of(item)) for key in changed if (item := live[key])}
    after = {f"Secret {'/'.join(key)}": sorted(logins_of(body)) for key, body in changed.items()}
    return {
        "changed": bool(changed),
        "pull_secrets": results,
        "diff": diff_of(before, after, "registries of pull Secrets", unchecked),
    }


def _check_names(params: t.Mapping[str, t.Any]) -> None:
    """Raise InvalidOptions for names that are invalid in Kubernetes, because they become parts of URLs."""
    problems = [
        f"{option}[{index}]: {quote(name)} is not a valid Kubernetes name; use lowercase letters, digits, '-' and, for Secrets, '.'"
        for option, problem_of in (("names", object_name), ("namespaces", dns_label))
        for index, name in enumerate(params[option])
        if problem_of(name)
    ]
    if problems:
        raise InvalidOptions(problems)


def _desired(
    module: PullSecretModule, live: t.Mapping[tuple[str, str], Object | None]
) -> dict[tuple[str, str], Object | None]:
    """Return the new content of each Secret, or None if it does not change. Raise InvalidOptions with all problems."""
    registries = [option["registry"] for option in module.params["registries"]]
    logins = {name: login for name in registries if (login := module.credentials.find(name))}
    problems = unusable_logins(logins)
    live_objects: dict[tuple[str, str], Object | None] = {}
    for (namespace, name), item in live.items():
        if item is None and not logins:
            problems.append(
                f"Secret {namespace}/{name} does not exist, and no login is set. Set username and password in registries, or create it: kubectl "
                f"create secret docker-registry {name} -n {namespace} --docker-server=... --docker-username=... --docker-password=..."
            )
            continue
        try:
            if item is not None:
                logins_of(item)
            live_objects[namespace, name] = desired_secret(item, name, namespace, logins)
        except ForeignSecret as error:
            problems.append(f"Secret {namespace}/{name} {error}.")
    if problems:
        raise InvalidOptions(problems)
    return live_objects


def _write(module: PullSecretModule, key: tuple[str, str], body: Object) -> str | None:
    """Create or patch a Secret; after a conflict, add the logins to its new content.

    Return the reason why the server did not validate the change, or None.
    """
    namespace, name = key
    if module.check_mode and namespace in module.expected.namespaces:
        # An earlier step of the real run creates the namespace, so the server cannot validate the Secret yet.
        return None

    def send(desired: Object) -> None:
        if "resourceVersion" in desired["metadata"]:
            module.client.patch(_path(namespace, name), desired, dry_run=module.check_mode)
        else:
            module.client.create(_path(namespace), desired, dry_run=module.check_mode)

    def recompute() -> Object | None:
        return _desired(module, {key: module.client.get(_path(namespace, name))})[key]

    return write_or_dry_run(lambda: retry_conflicts(send, body, recompute), check=module.check_mode)


def _action(live: Object | None, desired: Object | None) -> str:
    if desired is None:
        return "unchanged"
    return "created" if live is None else "updated"


def _path(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/secrets" + (f"/{name}" if name else "")


def main() -> None:
    """Run the module."""
    PullSecretModule(merge_specs(REGISTRY, _SPEC), expected=True, lease=True).run(work)


if __name__ == "__main__":
    main()
