# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines which parts of the operator and of NFD are removed; both stages, the removal of namespaces and the role's tasks use these objects."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.olm import NFD
from ..helm.release_records import marker_path
from ..helm.release_removal import ReleaseRemoval
from ..kube.client import Client
from ..kube.paths import NAMESPACES, object_path
from .olm import find_subscriptions
from .ownership_marks import is_created

Document = t.Mapping[str, t.Any]

_NOT_INSTALLED = "this collection did not install"
_UNREADABLE = "you do not have permission to list them, so it is unknown whether this collection created one; grant list on subscriptions.operators.coreos.com"
# The Leases for the leader election of NVIDIA's operator and of NFD's master (gpu-operator cmd/gpu-operator/main.go,
# node-feature-discovery pkg/nfd-master).
ELECTION_LEASES = ("53822513.nvidia.com", "nfd-master.nfd.kubernetes.io")


@dataclass(frozen=True)
class ComponentRemoval:
    """The parts of one component that an uninstallation removes. If no Helm release exists, `release` has the expected name and namespace.

    `subscriptions` are removed by the module olm_subscription. `by_olm`: whether OLM has installed the component, even if the component is foreign.
    `own_by_olm`: whether OLM has installed it for this collection.
    """

    release: ReleaseRemoval
    subscriptions: tuple[dict[str, str], ...] = ()
    by_olm: bool = False
    own_by_olm: bool = False

    @property
    def by_helm(self) -> bool:
        """Whether Helm uninstalls the component, or has already done so."""
        return self.release.managed

    @property
    def is_installed(self) -> bool:
        """Whether Helm still has to uninstall the component."""
        return self.by_helm and self.release.exists

    @property
    def is_removed(self) -> bool:
        """Whether the component is uninstalled through Helm or OLM, so that its residue on nodes is removed."""
        return self.by_helm or self.own_by_olm

    @property
    def kept_reason(self) -> str:
        """The reason why the Helm release is kept; empty if it is uninstalled or does not exist."""
        return f"{_NOT_INSTALLED} it" if self._is_foreign else ""

    @property
    def namespace_kept_reason(self) -> str:
        """The reason why the Helm release prevents the deletion of the namespace; empty if it does not."""
        return f"it contains the Helm release {self.release.name}, which {_NOT_INSTALLED}" if self._is_foreign else ""

    @property
    def _is_foreign(self) -> bool:
        return self.release.exists and not self.release.managed

    @property
    def lease_paths(self) -> tuple[str, ...]:
        """The paths of the Leases to delete. The marker is always included, because upgrades of foreign releases also write it."""
        release = self.release
        elections = ELECTION_LEASES if self.by_helm else ()
        return (
            *(object_path("coordination.k8s.io/v1", "Lease", name, release.namespace) for name in elections),
            marker_path(release.name, release.namespace),
        )

    def removes(self, policy: Document) -> bool:
        """Whether a ClusterPolicy is deleted with the component, because the Helm release contains it or the collection created it for an operator from OLM."""
        return is_created(policy) or (self.by_helm and self.release.contains(policy))

    def as_dict(self) -> dict[str, t.Any]:
        """The Helm release in the format of the module's result, from which the role uninstalls it."""
        return {
            "name": self.release.name,
            "namespace": self.release.namespace,
            "status": self.release.initial_status,
            "managed": self.release.managed,
            "uninstall": self.is_installed,
        }


@dataclass(frozen=True)
class Components:
    """Both components in the order of their removal. `unreadable`: whether it is unknown which Subscriptions exist."""

    operator: ComponentRemoval
    nfd: ComponentRemoval
    unreadable: bool = False

    def __iter__(self) -> t.Iterator[ComponentRemoval]:
        """Iterate over the operator and then NFD."""
        return iter((self.operator, self.nfd))

    def kept(self) -> t.Iterator[tuple[str, str]]:
        """The Helm releases and Subscriptions that are kept, with the reasons."""
        if self.unreadable:
            yield "Subscriptions of OLM", _UNREADABLE
        for component in self:
            if reason := component.kept_reason:
                yield f"Helm release {component.release.namespace}/{component.release.name}", reason


def read_components(client: Client, operator: ReleaseRemoval, nfd: ReleaseRemoval, *, by_olm: bool) -> Components:
    """Read the components' Subscriptions. by_olm: whether the variables select OLM for one of the components."""
    subscriptions, unreadable = find_subscriptions(client, by_olm=by_olm)
    # If an earlier run has already deleted the Subscription, the operator's namespace shows that it existed.
    own_by_olm = bool(subscriptions) or (by_olm and _is_own_namespace(client, operator.namespace))
    by_olm = by_olm or bool(subscriptions)
    of_nfd = tuple(item for item in subscriptions if item["package"] == NFD.package)
    others = tuple(item for item in subscriptions if item not in of_nfd)
    return Components(
        ComponentRemoval(operator, others, by_olm, own_by_olm),
        ComponentRemoval(nfd, of_nfd, by_olm, own_by_olm),
        unreadable,
    )


def _is_own_namespace(client: Client, name: str) -> bool:
    live = client.get(f"{NAMESPACES}/{name}")
    return live is not None and is_created(live)
