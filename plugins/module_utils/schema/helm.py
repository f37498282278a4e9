# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of gpu_cluster.operator and gpu_cluster.nfd that only Helm reads."""

from __future__ import annotations

from ..catalog import releases
from . import validators
from .types import Field, Text

# The default release, chart and repository of each component.
_DEFAULTS = {
    "operator": (releases.OPERATOR_HELM_RELEASE, releases.OPERATOR_CHART, releases.OPERATOR_CHART_REPO),
    "nfd": (releases.NFD_HELM_RELEASE, releases.NFD_CHART, ""),
}


def helm_fields(component: str) -> dict[str, Field]:
    """The keys of a component (operator, nfd) that have no effect with OLM; each is a field of ComponentPlan, where `release` is called `name`."""
    release, chart, chart_repo = _DEFAULTS[component]
    return {
        "release": Text((validators.release_name,), default=release),
        "chart": Text((validators.chart,), default=chart),
        "chart_repo": Text((validators.chart_repo,), default=chart_repo, empty=True),
    }
