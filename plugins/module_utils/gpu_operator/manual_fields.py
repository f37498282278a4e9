# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the fields of a ClusterPolicy that were set manually and that an upgrade of the Helm release would overwrite (pure).

An upgrade also overwrites fields that no user has set: their values are defaults of the CRD, which the API server stores when Helm creates the
object, or values that the collection has applied.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog.names import FIELD_MANAGER, LICENSING_MANAGER
from ..common.nested import get_nested
from ..helm.object_upgrade import overwritten
from ..kube.crd_defaults import defaults_at
from ..kube.managed_fields import has_records, writers
from ..kube.object_managers import GITOPS_TOOLS
from .driver_rollout import Path, is_empty, may_show

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

_MISSING = object()
# The field managers of changes that are not manual: Helm (which kubernetes.core.helm runs), GitOps tools and the operator.
_WRITERS = (
    "helm",
    *(manager for tool in GITOPS_TOOLS.values() for manager in tool.helm_managers),
    "gpu-operator",
)
# The prefix of the field manager of Terraform's Helm provider; the provider's version follows the prefix.
_TERRAFORM = "terraform-provider-helm"


@dataclass(frozen=True)
class ManualField:
    """A field below spec that was set manually: its current value, the value that Helm would write (None: Helm removes it), and its writers."""

    path: Path
    value: t.Any = field(repr=False)
    replacement: t.Any = field(repr=False)
    writers: tuple[str, ...] = ()

    def __str__(self) -> str:
        writer = f"set by {', '.join(self.writers)}" if self.writers else "its writer is not recorded"
        effect = "Helm would remove it" if self.replacement is None else "Helm would set a different value"
        return f"spec.{'.'.join(self.path)} ({writer}; {effect})"

    @property
    def as_value(self) -> str:
        """The Helm value with which an upgrade would keep the field, as a string."""
        name = ".".join(self.path)
        if not may_show(self.path, self.value):
            return f"{name} (as in the ClusterPolicy)"
        return f"{name}: {str(self.value).lower() if isinstance(self.value, bool) else self.value}"


@dataclass(frozen=True)
class KnownSources:
    """The sources of values in the ClusterPolicy other than manual changes.

    `manifests` contains the specs in the old and in the new chart's manifest, and `desired` contains the values that the user sets for the Helm release.
    `definitions` contains CRDs of the ClusterPolicy: from the new chart, from the installed chart, and from the cluster. The cluster may already have
    the new CRD.
    """

    manifests: tuple[Document, Document] = ({}, {})
    desired: Document = field(default_factory=dict)
    definitions: tuple[Document, ...] = ()

    def explains(self, path: Path, value: t.Any) -> bool:
        """Whether a manifest contains this value, a CRD has it as the default, or the user sets any value at this path."""
        return (
            _is_covered(self.desired, path)
            or any(_get(manifest, path) == value for manifest in self.manifests)
            or any(value in defaults_at(definition, ("spec", *path)) for definition in self.definitions)
        )


def manual_fields(live: Document, sources: KnownSources) -> list[ManualField]:
    """The fields of the live object that an upgrade would change and that must have been set manually, because no known source explains their values.

    If the object has no managedFields, only its values are considered.
    """
    fields = []
    for path, value, replacement in overwritten(live.get("spec") or {}, *sources.manifests):
        if not is_empty(value) and not sources.explains(path, value):
            names = foreign_writers(live, path)
            if names is None or names:
                fields.append(ManualField(path, value, replacement, tuple(names or ())))
    return fields


def foreign_writers(live: Document, path: Path) -> list[str] | None:
    """The managers of a field below spec, other than Helm, the operator and the collection; None if the object does not record managers."""
    if not has_records(live):
        return None
    known = {*_WRITERS, FIELD_MANAGER, LICENSING_MANAGER}
    names = writers(live, ("spec", *path))
    return [name for name in names if name not in known and not name.startswith(_TERRAFORM)]


def _is_covered(values: t.Any, path: Path) -> bool:
    """Whether the values contain this path, or a value other than a map at one of its parent paths."""
    for key in path:
        if not isinstance(values, t.Mapping):
            return True
        if key not in values:
            return False
        values = values[key]
    return True


def _get(document: Document, path: Path) -> t.Any:
    parent = get_nested(document, *path[:-1])
    return parent.get(path[-1], _MISSING) if isinstance(parent, dict) else _MISSING


def manual_fields_message(fields: t.Sequence[ManualField], name: str) -> str:
    """The message that rejects an upgrade because of these fields, with the values that would keep them."""
    paths = ", ".join(map(str, fields))
    values = ", ".join(each.as_value for each in fields)
    return (
        f"Helm would overwrite fields that were set manually in ClusterPolicy {name}: {paths}. To keep them, set these values of the Helm "
        f"release (release_values; gpu_cluster.operator.values): {values}. To discard them, set the values of the new chart there, or remove "
        f"the fields from the ClusterPolicy (kubectl edit clusterpolicy {name}). Nothing has been upgraded."
    )
