# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the MIG geometry of a GPU model by its name (pure)."""

from __future__ import annotations

import typing as t

from ..catalog import mig, models


def geometry_of(name: t.Any) -> mig.Geometry:
    """The MIG profiles of the model with this name (see models.find).

    Raises ValueError with similar models for an unknown name, and with all models that support MIG for a model without MIG.
    """
    model = models.find(name) if isinstance(name, str) else None
    if model is None:
        similar = models.nearest(name) if isinstance(name, str) else ()
        raise ValueError(f"{name!r} is not a GPU model of the catalog; {_hint(similar)}")
    geometry = mig.geometry(model.key)
    if geometry is None:
        raise ValueError(f"{model.key} has no MIG; {_hint(())}")
    return geometry


def _hint(keys: t.Sequence[str]) -> str:
    if keys:
        return f"did you mean {', '.join(keys)}?"
    return f"with MIG: {', '.join(model.key for model in models.MODELS if model.mig_capable)}"
