# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What helm has written down about a release, and what is left to do to it: pure.

Helm keeps a Secret per revision (helm v3 pkg/storage/driver/secrets.go): name, status and version are its labels, and its one key
holds the release as JSON, zipped and base64 twice over. Nothing of its values ever leaves this module but the names of those that differ.
"""

from __future__ import annotations

import base64
import datetime
import gzip
import json
import typing as t
import zlib
from dataclasses import dataclass, field

from .chart import Chart

INSTALL, UPGRADE, NOTHING = "install", "upgrade", "none"
DEPLOYED, FAILED, SUPERSEDED, UNINSTALLED = "deployed", "failed", "superseded", "uninstalled"
# A revision that some helm is working on, or was when it died; helm refuses every further operation on it.
UNFINISHED = frozenset({"pending-install", "pending-upgrade", "pending-rollback", "uninstalling"})

MACHINE_ANNOTATION = "accel.gpu/machine"
REVISION_ANNOTATION = "accel.gpu/revision"

_MISSING = object()


@dataclass(frozen=True)
class Revision:
    """One revision as its Secret's metadata tells it; `created` is the API server's clock."""

    secret: str
    uid: str
    resource_version: str
    number: int
    status: str
    created: datetime.datetime


@dataclass(frozen=True)
class ReleaseContent:
    """What a revision consists of; the values may hold secrets and are not for results."""

    chart: Chart
    config: dict[str, t.Any] = field(repr=False)
    manifest: str = field(repr=False)


@dataclass(frozen=True)
class ReleaseStep:
    """What helm has to do next, and why in words that hold no value."""

    action: str
    reasons: tuple[str, ...] = ()


def revisions(secrets: t.Iterable[t.Mapping[str, t.Any]]) -> list[Revision]:
    """The release's revisions, newest first, from the metadata of its Secrets."""
    found = []
    for secret in secrets:
        metadata = secret["metadata"]
        labels = metadata.get("labels") or {}
        found.append(
            Revision(
                secret=metadata["name"],
                uid=metadata.get("uid", ""),
                resource_version=metadata.get("resourceVersion", ""),
                number=int(labels.get("version") or 0),
                status=str(labels.get("status") or "unknown"),
                created=timestamp(metadata["creationTimestamp"]),
            )
        )
    return sorted(found, key=lambda revision: revision.number, reverse=True)


def content(secret: t.Mapping[str, t.Any]) -> ReleaseContent | None:
    """What a revision's Secret holds; None when it is not helm's format."""
    document = _unpacked(secret)
    if document is None:
        return None
    return ReleaseContent(
        Chart.of(document["chart"]["metadata"]), dict(document.get("config") or {}), str(document.get("manifest") or "")
    )


def superseded(secret: t.Mapping[str, t.Any]) -> dict[str, t.Any] | None:
    """The merge patch that makes a deployed revision a superseded one, which is what helm leaves when a newer one took over.

    After an upgrade that broke off, the deployed revision no longer says what is in the cluster, even where it equals what is wanted;
    superseded, it is still what helm upgrades from, but nobody takes it for the present state.
    """
    document = _unpacked(secret)
    if document is None:
        return None
    document["info"] = {**(document.get("info") or {}), "status": SUPERSEDED}
    packed = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(document).encode("utf-8")))).decode("ascii")
    return {
        "metadata": {"labels": {"status": SUPERSEDED}, "resourceVersion": secret["metadata"]["resourceVersion"]},
        "data": {"release": packed},
    }


def _unpacked(secret: t.Mapping[str, t.Any]) -> dict[str, t.Any] | None:
    try:
        packed = base64.b64decode(base64.b64decode(secret["data"]["release"]))
        document = json.loads(gzip.decompress(packed))
        return dict(document) if isinstance(document["chart"]["metadata"], dict) else None
    except (KeyError, TypeError, ValueError, OSError, EOFError, zlib.error):
        return None


def next_step(
    latest: Revision | None, held: ReleaseContent | None, chart: Chart, wanted: t.Mapping[str, t.Any]
) -> ReleaseStep:
    """What remains once the unfinished and failed revisions are out of the way."""
    if latest is None or latest.status == UNINSTALLED:
        return ReleaseStep(INSTALL, ("the release does not exist",))
    if held is None:
        return ReleaseStep(UPGRADE, (f"revision {latest.number} cannot be read",))
    reasons = []
    if latest.status != DEPLOYED:
        reasons.append(f"revision {latest.number} is {latest.status}")
    if held.chart != chart:
        reasons.append(f"chart {held.chart.label} becomes {chart.label}")
    paths = differing(held.config, wanted)
    if paths:
        reasons.append("values differ: " + ", ".join(paths[:20]) + (" ..." if len(paths) > 20 else ""))
    return ReleaseStep(UPGRADE, tuple(reasons)) if reasons else ReleaseStep(NOTHING)


def differing(held: t.Any, wanted: t.Any, path: str = "") -> list[str]:
    """The paths at which two sets of values differ; a list is one value. Never a value itself."""
    # Of a map that only one of them has, everything in it differs.
    held, wanted = (
        {} if one is _MISSING and isinstance(other, dict) and other else one
        for one, other in ((held, wanted), (wanted, held))
    )
    if isinstance(held, dict) and isinstance(wanted, dict):
        found = []
        for key in sorted({*held, *wanted}, key=str):
            below = f"{path}.{key}" if path else str(key)
            found += differing(held.get(key, _MISSING), wanted.get(key, _MISSING), below)
        return found
    return [] if held == wanted and isinstance(held, bool) == isinstance(wanted, bool) else [path]


def merged(under: t.Mapping[str, t.Any], over: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Two sets of values as helm merges them: maps deep, everything else replaced."""
    result = dict(under)
    for key, value in over.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result


def seeded(initial: t.Mapping[str, t.Any], held: t.Mapping[str, t.Any] | None) -> dict[str, t.Any]:
    """The initial values to give helm: as they are to a new release, as the release has them to one that exists.

    So what a first installation was given is neither undone nor done again by a later one.
    """
    if held is None:
        return dict(initial)
    kept: dict[str, t.Any] = {}
    for key, value in initial.items():
        if key not in held:
            continue
        if isinstance(value, dict) and isinstance(held[key], dict):
            below = seeded(value, held[key])
            if below:
                kept[key] = below
        else:
            kept[key] = held[key]
    return kept


@dataclass(frozen=True)
class PendingWatch:
    """What is known of whoever works, or worked, on an unfinished revision.

    `here` names this machine, `helm_here` says whether a helm works on the release on it (None: cannot be seen), `note` is the Lease that
    helm_release left before it let helm loose.
    """

    here: str
    helm_here: bool | None
    note: t.Mapping[str, t.Any] | None
    now: datetime.datetime
    timeout: float


def abandoned(revision: Revision, watch: PendingWatch) -> tuple[bool, str]:
    """Whether nobody works on an unfinished revision any more, and the reason in words.

    1. A helm process of this machine works on the release: it is at work, however old.
    2. Our own note says that a helm of this machine was to write this revision, and no such helm is left: it was killed.
    3. Otherwise (another machine, another tool) only age tells: older than pending_timeout is abandoned.
    """
    age = (watch.now - revision.created).total_seconds()
    if watch.helm_here:
        return False, "a helm process on this machine works on it"
    if watch.helm_here is False and _noted(revision, watch):
        return True, f"the helm of run {_holder(watch.note)} that wrote it no longer runs"
    if age > watch.timeout:
        return True, f"nothing has finished it for {age:.0f} s (pending_timeout {watch.timeout:.0f} s)"
    return (
        False,
        f"it is {age:.0f} s old; a helm on another machine may be at work until it is {watch.timeout:.0f} s old",
    )


def _noted(revision: Revision, watch: PendingWatch) -> bool:
    annotations = ((watch.note or {}).get("metadata") or {}).get("annotations") or {}
    return annotations.get(MACHINE_ANNOTATION) == watch.here and annotations.get(REVISION_ANNOTATION) == str(
        revision.number
    )


def _holder(note: t.Mapping[str, t.Any] | None) -> str:
    return str(((note or {}).get("spec") or {}).get("holderIdentity") or "unknown")


def timestamp(text: str) -> datetime.datetime:
    """A Kubernetes time as an aware datetime."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
