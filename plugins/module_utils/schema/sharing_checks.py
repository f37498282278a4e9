# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of a pool's sharing: what a mode needs, what it cannot have, and what a GPU has no room for."""

from __future__ import annotations

import typing as t

from ..catalog import mig as geometries
from ..catalog import models
from ..catalog.names import LABEL_LENGTH, PRODUCT_LABEL
from ..common.nested import get_nested
from ..mig import layout as mig
from ..mig.fit_error import fit_error
from ..nvidia_config.device_plugin import EXCLUSIVE, MIG, MPS, TIME_SLICING, Sharing
from .types import INVALID, Problems
from .views import PoolView

if t.TYPE_CHECKING:
    from ..catalog.mig import Geometry

# The MPS control daemon refuses more clients (k8s-device-plugin cmd/mps-control-daemon/mps/device.go).
_MOST_CLIENTS, _MOST_CLIENTS_BEFORE_TURING = 48, 16
_TURING = (7, 5)

# The options of each mode besides `mode` itself.
_OPTIONS = {
    EXCLUSIVE: (),
    TIME_SLICING: ("replicas", "rename", "fail_requests_greater_than_one"),
    MPS: ("replicas", "rename"),
    MIG: ("layout", "demand", "strategy", "replicas", "rename", "fail_requests_greater_than_one"),
}


def _mode(pool: PoolView) -> t.Any:
    return get_nested(pool.merged, "sharing", "mode")


def needs_are_met(pool: PoolView) -> Problems:
    """Shares need a number, slices a layout."""
    mode = _mode(pool)
    if mode in (TIME_SLICING, MPS) and get_nested(pool.merged, "sharing", "replicas") is None:
        yield f"{pool.path}.sharing.replicas: is missing; {mode} needs the shares of a GPU, such as replicas: 4"
    if mode == MIG and all(get_nested(pool.merged, "sharing", key) is None for key in ("layout", "demand")):
        yield (
            f"{pool.path}.sharing.layout: is missing; say what each GPU is cut into, such as {{3g.20gb: 2}}, or as demand what "
            "all nodes of the pool offer together"
        )


def mode_is_said(pool: PoolView) -> Problems:
    """Nobody gives a number of shares, a layout or a demand and wants none."""
    if _mode(pool) is not None:
        return
    for key, mode in (("layout", MIG), ("demand", MIG), ("replicas", TIME_SLICING)):
        if get_nested(pool.written, "sharing", key) is not None:
            yield f"{pool.path}.sharing.mode: is missing beside {key}; say mode: {mode} to share the GPUs"
            return


def options_have_an_effect(pool: PoolView) -> Problems:
    """What the same pool's mode does not know it does not tune."""
    sharing = get_nested(pool.written, "sharing")
    known = _OPTIONS.get(get_nested(sharing, "mode"))
    if known is None:
        return
    for key in dict.fromkeys(option for options in _OPTIONS.values() for option in options):
        if get_nested(sharing, key) is None or key in known:
            continue
        if key == "fail_requests_greater_than_one":
            if get_nested(sharing, "mode") == MPS and sharing[key] is True:
                continue
            if get_nested(sharing, "mode") == MPS:
                yield f"{pool.path}.sharing.{key}: MPS always refuses a request for two shares (NVIDIA device plugin); take it out"
                continue
        fitting = [mode for mode, options in _OPTIONS.items() if key in options]
        remedy = f"take it out, or say mode: {' or '.join(fitting)}"
        yield f"{pool.path}.sharing.{key}: has no effect with mode: {sharing['mode']}; {remedy}"


def startup_taint_has_an_effect(pool: PoolView) -> Problems:
    """Only a change of MIG takes a GPU away again after a node has begun to offer it."""
    mode = _mode(pool) or EXCLUSIVE
    if get_nested(pool.written, "startup_taint") is True and mode in _OPTIONS and mode != MIG:
        yield (
            f"{pool.path}.startup_taint: has no effect with mode: {mode}; only GPUs that are still to be cut keep workloads away "
            f"from a new node, so take it out, or say mode: {MIG}"
        )


def clients_are_allowed(pool: PoolView) -> Problems:
    """MPS has its own limit, by the GPU's generation."""
    replicas = get_nested(pool.merged, "sharing", "replicas")
    if _mode(pool) != MPS or not isinstance(replicas, int):
        return
    model = _model(pool)
    old = model is not None and tuple(map(int, model.compute.split("."))) < _TURING
    most = _MOST_CLIENTS_BEFORE_TURING if old else _MOST_CLIENTS
    if replicas > most:
        which = f"a {model.key}" if old and model else "a GPU"
        yield (
            f"{pool.path}.sharing.replicas: {replicas} is not allowed: the MPS control daemon lets {most} clients "
            f"share {which}; use at most {most}, or mode: {TIME_SLICING}"
        )


def layout_fits(pool: PoolView) -> Problems:
    """A layout needs a GPU that can be cut so; what the catalog does not know it does not judge."""
    written = get_nested(pool.merged, "sharing", "layout")
    if _mode(pool) != MIG or written is None or written is INVALID:
        return
    path, layout, model = f"{pool.path}.sharing.layout", mig.read(written), _model(pool)
    gpus = get_nested(pool.merged, "gpus_per_node")
    by_index = any(found.devices for found in layout)
    if by_index and gpus is None:
        yield (
            f"{pool.path}.gpus_per_node: is missing beside a layout by GPU index; say how many GPUs each node has, so "
            "that those without a layout are made whole"
        )
    beyond = [index for found in layout for index in found.devices if isinstance(gpus, int) and index >= gpus]
    if beyond:
        yield f"{path}: names GPU {max(beyond)}, but gpus_per_node is {gpus}; the last GPU of a node is {gpus - 1}"
    if not mig.profiles(layout):
        yield f"{path}: cuts no GPU; say mode: {EXCLUSIVE} for whole GPUs"
    if get_nested(pool.merged, "sharing", "strategy") == mig.SINGLE and mig.uniform(layout) is None:
        yield (
            f'{pool.path}.sharing.strategy: "{mig.SINGLE}" needs one profile on every GPU of a node (NVIDIA device '
            f"plugin), the layout has {', '.join(mig.profiles(layout)) or 'none'}; say {mig.MIXED}, or leave it out"
        )
    if model is None:
        return
    yield from _label_fits(pool, layout, model)
    geometry = geometries.geometry(model.key)
    if geometry is None:
        yield f"{pool.path}.sharing.mode: {MIG} does not exist on a {model.key}; use {TIME_SLICING} or {MPS}"
        return
    for found in layout:
        reason = fit_error(geometry, found.profiles) if _is_sure(geometry, found.profiles) else None
        if reason:
            yield f"{path}: a {model.key} {reason}"


def demand_can_be_met(pool: PoolView) -> Problems:
    """A demand stands in a layout's place, and some GPU of the model has room for each device of it."""
    demand = get_nested(pool.merged, "sharing", "demand")
    if _mode(pool) != MIG or not isinstance(demand, dict):
        return
    path, model = f"{pool.path}.sharing.demand", _model(pool)
    if get_nested(pool.merged, "sharing", "layout") is not None:
        yield f"{path}: stands beside a layout; take one out: a layout says what each GPU is cut into, a demand leaves that open"
        return
    if not demand:
        yield f"{path}: asks for nothing; say mode: {EXCLUSIVE} for whole GPUs"
    if get_nested(pool.merged, "sharing", "strategy") == mig.SINGLE:
        yield (
            f'{pool.path}.sharing.strategy: "{mig.SINGLE}" needs one profile on every GPU of a node (NVIDIA device plugin), and a '
            f"demand leaves GPUs whole that it does not need; say {mig.MIXED}, or leave it out"
        )
    if model is None:
        return
    geometry = geometries.geometry(model.key)
    if geometry is None:
        yield f"{pool.path}.sharing.mode: {MIG} does not exist on a {model.key}; use {TIME_SLICING} or {MPS}"
        return
    for profile in demand:
        reason = (
            fit_error(geometry, {profile: 1}) if isinstance(profile, str) and _is_sure(geometry, [profile]) else None
        )
        if reason:
            yield f"{path}: a {model.key} {reason}"


def _is_sure(geometry: Geometry, profiles: t.Iterable[str]) -> bool:
    """Whether the catalog can judge them; where its sources disagree about the names, the nodes have to say."""
    return geometry.verified or all(geometry.profile(name) for name in profiles)


def _label_fits(pool: PoolView, layout: mig.Layout, model: models.Model) -> Problems:
    profile = mig.uniform(layout)
    if profile is None or get_nested(pool.merged, "sharing", "strategy") != mig.SINGLE:
        return
    replicas = get_nested(pool.merged, "sharing", "replicas")
    shared = Sharing(
        MIG,
        replicas=replicas if isinstance(replicas, int) else 1,
        rename=get_nested(pool.merged, "sharing", "rename") is True,
    )
    label = mig.single_product(model.product, profile, shared.suffix)
    if len(label) > LABEL_LENGTH:
        yield (
            f'{pool.path}.sharing.strategy: "{mig.SINGLE}" makes the label {PRODUCT_LABEL} of a {model.key} "{label}", and NFD drops '
            f"what is longer than {LABEL_LENGTH} characters, so the node would lose its product; say {mig.MIXED}, or leave it out"
        )


def _model(pool: PoolView) -> models.Model | None:
    named = (get_nested(pool.merged, "match", "model"), get_nested(pool.merged, "model"))
    return next((models.find(name) for name in named if isinstance(name, str)), None)


SHARING_CHECKS = (
    needs_are_met,
    mode_is_said,
    options_have_an_effect,
    startup_taint_has_an_effect,
    clients_are_allowed,
    layout_fits,
    demand_can_be_met,
)
