# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reconciles the node groups that a provider's module declares."""

from __future__ import annotations

import typing as t

from ..nodegroups.reconciler import ReconcileOptions, reconcile

if t.TYPE_CHECKING:
    from ..drain.module import DrainingModule
    from ..nodegroups.provider import NodeGroupProvider
    from ..nodegroups.spec import NodeGroupSpec


def reconcile_nodegroups(
    module: DrainingModule, provider: NodeGroupProvider, specs: t.Sequence[NodeGroupSpec], *, timeout: float
) -> dict[str, t.Any]:
    """The module's result; `nodegroup` is the group of the option `name`. Raises what reconcile() raises. timeout: seconds for a group."""
    params = module.params
    try:
        reconciled = reconcile(
            provider,
            specs,
            check_mode=module.check_mode,
            options=ReconcileOptions(params["wait"], timeout, params["wait_sleep"], max(1, params["parallel"])),
            drainer=module.drainer,
            progress=module.progress,
        )
    except Exception as error:
        _add_single(getattr(error, "partial", None) or {}, params["name"])
        raise
    for text in reconciled.warnings:
        module.warn(text)
    result = reconciled.result()
    _add_single(result, params["name"])
    return result


def _add_single(result: dict[str, t.Any], name: str | None) -> None:
    if name is not None and "nodegroups" in result:
        result["nodegroup"] = result["nodegroups"][name]
