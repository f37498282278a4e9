#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes objects that are compared before anything is sent."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kube_object
short_description: Bring Kubernetes objects to their wanted content
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Reads each object, compares it with its definition and with what this collection applied earlier, and sends a
    server-side apply only where they differ. Equal objects cost one read each.
  - What others put into an object stays. What an earlier definition had and this one no longer has is taken out.
  - Quantities, numbers written as text, and defaults that the API server adds do not count as a difference.
  - In check mode the API server itself tries the change (a dry run), so that V(changed) and the diff are those of the
    run that follows.
  - Objects of a kind, or in a namespace, that does not exist yet can be previewed on a first run; see O(expected).
  - Kinds and namespaces are checked for all definitions before anything is sent.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.expected
  - accel.gpu.lease
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
options:
  definitions:
    description:
      - The objects, each with C(apiVersion), C(kind) and C(metadata.name), and with C(metadata.namespace) if its kind
        has namespaces.
      - Namespaces and CustomResourceDefinitions are applied before all others, whatever their place in the list.
    type: list
    elements: dict
    required: true
  state:
    description:
      - V(present) applies the objects, V(absent) deletes those that are there.
    type: str
    choices: [present, absent]
    default: present
  force:
    description:
      - Whether fields that another manager owns are taken over. If not, such a field is a failure naming the manager.
    type: bool
    default: true
  note_creation:
    description:
      - Whether an object that this module makes gets the annotation C(accel.gpu/created), by which M(accel.gpu.uninstall)
        knows that it may go again. An object that was there before never gets it.
    type: bool
    default: false
notes:
  - A user who may read but not write gets a preview that is marked as not checked by the server.
  - Values of Secrets are hidden in the diff.
seealso:
  - module: kubernetes.core.k8s
"""

EXAMPLES = r"""
- name: A namespace and what stands in it
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

- name: An object whose kind the operator's chart will bring, also on a first run with --check
  accel.gpu.kube_object:
    definitions: "{{ lookup('file', 'policy.yml') | from_yaml_all }}"
    expected:
      namespaces: [gpu-operator]
      kinds:
        - {api_version: nvidia.com/v1, kind: ClusterPolicy}

- name: Take it out again
  accel.gpu.kube_object:
    definitions:
      - {apiVersion: v1, kind: Namespace, metadata: {name: gpu-operator}}
    state: absent
"""

RETURN = r"""
kube_object:
  description: What became, or in check mode would become, of the objects; when one fails, of those before it.
  returned: always
  type: dict
  contains:
    objects:
      description: One entry an object, in the order in which they were applied.
      type: list
      elements: dict
      contains:
        api_version:
          description: Group and version.
          type: str
          returned: always
        kind:
          description: Kind.
          type: str
          returned: always
        namespace:
          description: Namespace; null for kinds that have none.
          type: str
          returned: always
        name:
          description: Name.
          type: str
          returned: always
        action:
          description: V(created), V(updated), V(unchanged) or V(deleted).
          type: str
          returned: always
        note:
          description: Why a preview may be wrong.
          type: str
          returned: when there is something to say
      returned: always
      sample:
        - {api_version: v1, kind: Namespace, namespace: null, name: gpu-operator, action: unchanged}
"""

import contextlib
import typing as t

from ..module_utils.kube.errors import ApiError
from ..module_utils.kube.lease import LeaseLost
from ..module_utils.kube.module import GpuModule
from ..module_utils.kube.objects import ObjectChange, apply_objects

_SPEC: dict[str, dict[str, t.Any]] = {
    "definitions": {"type": "list", "elements": "dict", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "force": {"type": "bool", "default": True},
    "note_creation": {"type": "bool", "default": False},
}


def work(module: GpuModule) -> dict[str, t.Any]:
    """Apply or delete the definitions; the lease is held from the first change on."""
    done: list[ObjectChange] = []
    try:
        with contextlib.ExitStack() as stack:
            changes = apply_objects(
                module.client,
                module.params["definitions"],
                check=module.check_mode,
                expected=module.expected,
                state=module.params["state"],
                force=module.params["force"],
                note_creation=module.params["note_creation"],
                before_write=lambda: stack.enter_context(module.lease()),
                on_done=done.append,
            )
    except (ApiError, LeaseLost) as error:
        error.partial = _result(done)
        raise
    return _result(changes)


def _result(changes: list[ObjectChange]) -> dict[str, t.Any]:
    changed = [change for change in changes if change.changed]
    return {
        "changed": bool(changed),
        "kube_object": {"objects": [change.summary() for change in changes]},
        "diff": [_diff(change) for change in changed],
    }


def _diff(change: ObjectChange) -> dict[str, t.Any]:
    header = f"{change.label} ({change.note})" if change.note else change.label
    return {"before": change.before, "after": change.after, "before_header": header, "after_header": header}


def main() -> None:
    """Run as a module."""
    module = GpuModule(_SPEC, expected=True, lease=True)
    module.run(work)


if __name__ == "__main__":
    main()
