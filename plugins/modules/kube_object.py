#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Applies Kubernetes objects that differ from their definition."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kube_object
short_description: Apply or delete Kubernetes objects, and send only changes
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Reads each object, compares it with its definition and with the fields that this collection applied earlier, and sends a server-side apply request only if
    there are differences. For an unchanged object, the module sends only one read request.
  - Fields that are not in the definition and that other managers own are left unchanged. Fields that are in an earlier definition but not in the current one
    are removed.
  - Different notations of quantities and numbers, and defaults that the API server adds, do not count as differences.
  - In check mode, the API server validates the change in a dry run, so C(changed) and the diff are the same as in the real run.
  - Check mode can also preview objects whose kind or namespace does not exist yet, as on a first run. See O(expected).
  - The kinds and namespaces of all definitions are checked before any change is sent.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.expected
  - accel.gpu.lease
  - accel.gpu.confirm
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
options:
  definitions:
    description:
      - The objects. Each must contain C(apiVersion), C(kind) and C(metadata.name), and also C(metadata.namespace) if its kind is namespaced.
      - Namespaces and CustomResourceDefinitions are applied before all other objects, regardless of their position in the list.
    type: list
    elements: dict
    required: true
  state:
    description:
      - V(present) applies the objects. V(absent) deletes those that exist.
    type: str
    choices: [present, absent]
    default: present
  force:
    description:
      - Whether to take over fields of the definitions that another manager owns. With V(false), the module fails if it would change such a field, and the error
        message names the manager.
    type: bool
    default: true
  record_creation:
    description:
      - Used by this collection's roles. This option is not a stable interface.
      - Whether to set the annotation C(accel.gpu/created) on an object that this module creates, so that M(accel.gpu.uninstall) may delete it. Objects that
        already existed never get this annotation. If an object other than a Namespace already exists without it, the module fails before any change, in check
        mode as well.
    type: bool
    default: false
notes:
  - If the user does not have write permission, RV(kube_object.objects.unchecked) contains the reason why the API server did not validate the preview.
  - Values of Secrets are hidden in the diff.
seealso:
  - module: kubernetes.core.k8s
"""

EXAMPLES = r"""
- name: Apply a namespace and a ConfigMap in it
  accel.gpu.kube_object:
    definitions:
      - apiVersion: v1
        kind: Namespace
        metadata:
          name: gpu-operator
          labels:
            pod-security.kubernetes.io/enforce: privileged
      - apiVersion: v1
        kind: ConfigMap
        metadata:
          name: settings
          namespace: gpu-operator
        data:
          greeting: hello

- name: Apply an object whose kind is created by the operator's chart, even on a first run with --check
  accel.gpu.kube_object:
    definitions: "{{ lookup('file', 'policy.yml') | from_yaml_all }}"
    expected:
      namespaces: [gpu-operator]
      kinds:
        - {api_version: nvidia.com/v1, kind: ClusterPolicy}

- name: Delete the namespace
  accel.gpu.kube_object:
    definitions:
      - {apiVersion: v1, kind: Namespace, metadata: {name: gpu-operator}}
    state: absent
    confirm: [prod]
"""

RETURN = r"""
kube_object:
  description: The changes to the objects or, in check mode, the predicted changes. If a change fails, only the changes before the failed one are returned.
  returned: always
  type: dict
  contains:
    objects:
      description: One entry for each object, in the order in which they were applied.
      type: list
      elements: dict
      contains:
        api_version:
          description: API group and version of the object.
          type: str
          returned: always
          sample: v1
        kind:
          description: Kind of the object.
          type: str
          returned: always
          sample: Namespace
        namespace:
          description: Namespace of the object; null for cluster-scoped kinds.
          type: str
          returned: always
          sample: null
        name:
          description: Name of the object.
          type: str
          returned: always
          sample: gpu-operator
        action:
          description: V(created), V(updated), V(unchanged) or V(deleted).
          type: str
          returned: always
          sample: created
        unchecked:
          description: The reason why the API server did not validate the changes in check mode.
          type: str
          returned: in check mode, if the user is not allowed to send a dry run
          sample: "not checked by the server: this user is not allowed to send a dry run"
      returned: always
code:
  description:
    - The reason for the failure.
    - V(not_confirmed) - see O(confirm).
    - V(invalid) - errors in the options, the configuration or the objects. In this case, no change is sent, because all objects are checked first.
      V(wrong_cluster) - the connection points to a different cluster. V(connection) - no usable connection settings. V(unreachable) - the API server does not
      respond. V(lease_held) - another run holds the Lease. V(lease_lost) - this run lost it. Otherwise, the HTTP status of the API server's error.
  returned: failure
  type: raw
  sample: invalid
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options or variables. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {reason: Forbidden, method: PATCH, path: /api/v1/namespaces/gpu-operator/resourcequotas/quota}
"""

import contextlib
import functools
import typing as t

from ..module_utils.core.messages import abbreviate, diff_of
from ..module_utils.core.module import CONFIRM
from ..module_utils.kube.errors import ApiError
from ..module_utils.kube.lease import LeaseLost
from ..module_utils.kube.module import GpuModule
from ..module_utils.kube.objects import ObjectChange, ObjectWriter

_SPEC: dict[str, dict[str, t.Any]] = {
    "definitions": {"type": "list", "elements": "dict", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "force": {"type": "bool", "default": True},
    "record_creation": {"type": "bool", "default": False},
    **CONFIRM,
}


def work(module: GpuModule) -> dict[str, t.Any]:
    """Apply or delete the definitions, and hold the Lease from the first change until the end of the run."""
    done: list[ObjectChange] = []
    try:
        with contextlib.ExitStack() as stack:
            writer = ObjectWriter(
                module.client,
                module.check_mode,
                before_write=lambda: stack.enter_context(module.lease()),
                expected=module.expected,
                force_conflicts=module.params["force"],
                record_creation=module.params["record_creation"],
                on_done=done.append,
                confirm_deletion=functools.partial(_confirm_deletion, module),
            )
            write = writer.apply if module.params["state"] == "present" else writer.delete
            changes = write(module.params["definitions"])
    except (ApiError, LeaseLost) as error:
        error.partial = _result(done)
        raise
    return _result(changes)


def _confirm_deletion(module: GpuModule, labels: t.Sequence[str]) -> None:
    module.require_confirmation(f"This deletes from cluster {module.name_to_confirm()}: {abbreviate(labels)}.")


def _result(changes: list[ObjectChange]) -> dict[str, t.Any]:
    diffs = [
        diff_of(change.before, change.after, change.label, change.unchecked) for change in changes if change.changed
    ]
    return {
        "changed": bool(diffs),
        "kube_object": {"objects": [change.summary() for change in changes]},
        "diff": diffs,
    }


def main() -> None:
    """Run the module."""
    module = GpuModule(_SPEC, expected=True, lease=True)
    module.run(work)


if __name__ == "__main__":
    main()
