# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The geometry of the GPU model that somebody names (pure)."""

from __future__ import annotations

import typing as t

from ..catalog import mig, models


def geometry_of(name: t.Any) -> mig.Geometry:
    """What the model of this name can be cut into; any name under which the catalog finds it will do.

    Raises a ValueError that names the nearest models where there is none such, and those with MIG where it has none.
    """
    model = models.find(name) if isinstance(name, str) else None
    if model is None:
        known = models.nearest(name) if isinstance(name, str) else ()
        raise ValueError(f"{name!r} is not a GPU model of the catalog; {_meant(known)}")
    geometry = mig.geometry(model.key)
    if geometry is None:
        raise ValueError(f"{model.key} has no MIG; {_meant(())}")
    return geometry


def _meant(keys: t.Sequence[str]) -> str:
    if keys:
        return f"did you mean {', '.join(keys)}?"
    return f"with MIG: {', '.join(model.key for model in models.MODELS if model.mig_capable)}"
