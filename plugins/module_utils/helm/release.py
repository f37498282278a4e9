# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decodes Helm's records of a release and derives the next step from them (pure).

Helm keeps one Secret for each revision (helm v3 pkg/storage/driver/secrets.go). The Secret's labels contain the name, the status and the version, and its
only key contains the release as gzipped JSON, encoded twice in base64. Only the names of differing values are returned, never the values.
"""

from __future__ import annotations

import base64
import datetime
import gzip
import json
import typing as t
import zlib
from dataclasses import dataclass, field

from ..schema.messages import abbreviate
from .chart import Chart, definitions_of

INSTALL, UPGRADE, NOTHING = "install", "upgrade", "none"
DEPLOYED, FAILED, SUPERSEDED, UNINSTALLED = "deployed", "failed", "superseded", "uninstalled"
# The statuses of a revision that helm is working on, or was working on when it was killed; helm then refuses all other
# operations.
UNFINISHED = frozenset({"pending-install", "pending-upgrade", "pending-rollback", "uninstalling"})

# The annotations by which Helm recognizes the objects of its releases (helm v3 pkg/action/validate.go).
_NAME_ANNOTATION, _NAMESPACE_ANNOTATION = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"

# The name and the namespace of a release.
ReleaseId = tuple[str, str]

_MISSING = object()


@dataclass(frozen=True)
class Revision:
    """One revision, read from the metadata of its Secret; `created` is the time at which the API server created the Secret."""

    secret: str
    uid: str
    resource_version: str
    number: int
    status: str
    created: datetime.datetime


@dataclass(frozen=True)
class ReleaseContent:
    """The content of a revision; the values may contain secrets and must not be returned in results."""

    chart: Chart
    config: dict[str, t.Any] = field(repr=False)
    manifest: str = field(repr=False)
    # The files of the chart's folder crds/, in base64.
    crd_files: tuple[str, ...] = field(default=(), repr=False)

    def definitions(self) -> list[dict[str, t.Any]]:
        """Parse the chart's CRDs, which are long and rarely needed. Helm's record does not contain the CRDs of sub-charts."""
        texts = (base64.b64decode(data).decode("utf-8", "replace") for data in self.crd_files)
        return [item for text in texts for item in definitions_of(text)]


@dataclass(frozen=True)
class ReleaseStep:
    """The next step for helm, and the reasons, which contain no values."""

    action: str
    reasons: tuple[str, ...] = ()


def sort_revisions(secrets: t.Iterable[t.Mapping[str, t.Any]]) -> list[Revision]:
    """The release's revisions, newest first, from the metadata of its Secrets."""
    revisions = []
    for secret in secrets:
        metadata = secret["metadata"]
        labels = metadata.get("labels") or {}
        revisions.append(
            Revision(
                secret=metadata["name"],
                uid=metadata.get("uid", ""),
                resource_version=metadata.get("resourceVersion", ""),
                number=int(labels.get("version") or 0),
                status=str(labels.get("status") or "unknown"),
                created=datetime.datetime.fromisoformat(metadata["creationTimestamp"]),
            )
        )
    return sorted(revisions, key=lambda revision: revision.number, reverse=True)


def decode_content(secret: t.Mapping[str, t.Any]) -> ReleaseContent | None:
    """The content of a revision's Secret; None if it is not in helm's format."""
    document = _decode(secret)
    if document is None:
        return None
    return ReleaseContent(
        Chart.from_metadata(document["chart"]["metadata"]),
        dict(document.get("config") or {}),
        str(document.get("manifest") or ""),
        tuple(
            str(file.get("data") or "")
            for file in document["chart"].get("files") or ()
            if str(file.get("name")).startswith("crds/")
        ),
    )


def supersede_patch(secret: t.Mapping[str, t.Any]) -> dict[str, t.Any] | None:
    """The merge patch that marks a revision as superseded, as helm does when a newer revision replaces it; None if the Secret is not in helm's format.

    After an interrupted upgrade, the deployed revision no longer matches the cluster, even if it equals the desired one. Helm still upgrades
    from a superseded revision, but the revision no longer counts as the current state.
    """
    document = _decode(secret)
    if document is None:
        return None
    document["info"] = {**(document.get("info") or {}), "status": SUPERSEDED}
    packed = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(document).encode("utf-8")))).decode("ascii")
    return {
        "metadata": {"labels": {"status": SUPERSEDED}, "resourceVersion": secret["metadata"]["resourceVersion"]},
        "data": {"release": packed},
    }


def _decode(secret: t.Mapping[str, t.Any]) -> dict[str, t.Any] | None:
    try:
        packed = base64.b64decode(base64.b64decode(secret["data"]["release"]))
        document = json.loads(gzip.decompress(packed))
        return dict(document) if isinstance(document["chart"]["metadata"], dict) else None
    except (KeyError, TypeError, ValueError, OSError, EOFError, zlib.error):
        return None


def next_step(
    latest: Revision | None, installed: ReleaseContent | None, chart: Chart, desired: t.Mapping[str, t.Any]
) -> ReleaseStep:
    """The next step once unfinished revisions have been handled; `installed` is the content of `latest`."""
    if latest is None or latest.status == UNINSTALLED:
        return ReleaseStep(INSTALL, ("the release does not exist",))
    if installed is None:
        return ReleaseStep(UPGRADE, (f"revision {latest.number} cannot be read",))
    reasons = []
    if latest.status != DEPLOYED:
        reasons.append(f"revision {latest.number} is {latest.status}")
    if installed.chart != chart:
        reasons.append(f"chart {installed.chart.label} becomes {chart.label}")
    paths = differing_values(installed.config, desired)
    if paths:
        reasons.append("values differ: " + abbreviate(paths))
    return ReleaseStep(UPGRADE, tuple(reasons)) if reasons else ReleaseStep(NOTHING)


def differing_values(installed: t.Any, desired: t.Any, path: str = "") -> list[str]:
    """The paths at which two sets of values differ, without the values; lists are compared as a whole."""
    # If a map is missing on one side, all paths in it differ.
    installed, desired = (
        {} if one is _MISSING and isinstance(other, dict) and other else one
        for one, other in ((installed, desired), (desired, installed))
    )
    if isinstance(installed, dict) and isinstance(desired, dict):
        return [
            difference
            for key in sorted({*installed, *desired}, key=str)
            for difference in differing_values(
                installed.get(key, _MISSING), desired.get(key, _MISSING), f"{path}.{key}" if path else str(key)
            )
        ]
    return [] if installed == desired and isinstance(installed, bool) == isinstance(desired, bool) else [path]


def merge_values(base: t.Mapping[str, t.Any], override: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Merge two sets of values in the same way as helm: maps are merged recursively, and everything else is replaced."""
    result = dict(base)
    for key, value in override.items():
        below = result.get(key)
        result[key] = merge_values(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result


def select_initial_values(initial: t.Mapping[str, t.Any], installed: t.Mapping[str, t.Any] | None) -> dict[str, t.Any]:
    """The initial values to pass to helm: all of them for a new release, otherwise only those that the release has, with the release's values.

    A later run therefore neither removes nor resets the initial values of the first installation.
    """
    if installed is None:
        return dict(initial)
    kept: dict[str, t.Any] = {}
    for key in filter(installed.__contains__, initial):
        if not (isinstance(initial[key], dict) and isinstance(installed[key], dict)):
            kept[key] = installed[key]
        elif below := select_initial_values(initial[key], installed[key]):
            kept[key] = below
    return kept


def helm_release_of(item: t.Mapping[str, t.Any]) -> ReleaseId | None:
    """The Helm release that an object belongs to, according to its annotations; None if it belongs to none."""
    annotations = item["metadata"].get("annotations") or {}
    name, namespace = annotations.get(_NAME_ANNOTATION), annotations.get(_NAMESPACE_ANNOTATION)
    return (name, namespace) if name and namespace else None
