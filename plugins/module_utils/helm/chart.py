# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the identity of Helm charts from their files, and the objects in helm's rendered output."""

from __future__ import annotations

import os
import re
import tarfile
import typing as t
from dataclasses import dataclass

from ..common.yaml_documents import load, load_all

try:
    import yaml
except ImportError:  # reported by the modules' base class, together with the library that needs it
    yaml = None  # type: ignore[assignment]

_SEPARATOR = re.compile(r"^---\s*$", re.MULTILINE)
# `helm template` writes this line before each file of the chart (helm v3 pkg/action/install.go).
_SOURCE = re.compile(r"^---\n# Source: (\S+)\n", re.MULTILINE)


class ChartProblem(Exception):
    """Raised if a chart cannot be used; the message is one line with the reason and the remedy."""


@dataclass(frozen=True)
class Chart:
    """The identity of a chart: the fields that helm compares."""

    name: str
    version: str
    app_version: str

    @property
    def label(self) -> str:
        """The name and the version, in the same format as in the output of `helm list`."""
        return f"{self.name}-{self.version}"

    @classmethod
    def from_metadata(cls, metadata: t.Mapping[str, t.Any]) -> Chart:
        """Read a Chart.yaml or the chart.metadata of a release."""
        return cls(*(str(metadata.get(key) or "") for key in ("name", "version", "appVersion")))


def is_local_chart(reference: str) -> bool:
    """Whether a chart reference is a path on this machine, either by its form or because the path exists."""
    if "://" in reference:
        return False
    return reference.startswith(("/", "./", "../", "~")) or reference.endswith(".tgz") or os.path.exists(reference)


def read_chart(path: str) -> Chart:
    """The identity of an unpacked or packed chart; raises ChartProblem if there is none."""
    try:
        if os.path.isdir(path):
            with open(os.path.join(path, "Chart.yaml"), encoding="utf-8") as handle:
                text = handle.read()
        else:
            text = _read_from_archive(path)
        metadata = load(text)
    except FileNotFoundError:
        problem = "has no Chart.yaml: it is not a Helm chart" if os.path.isdir(path) else "does not exist"
        raise ChartProblem(f"The chart {path} {problem}.") from None
    except (OSError, tarfile.TarError) as error:
        raise ChartProblem(f"The chart {path} cannot be read: {error}.") from error
    except yaml.YAMLError as error:
        raise ChartProblem(f"The Chart.yaml of {path} is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise ChartProblem(f"The Chart.yaml of {path} has no chart name.")
    return Chart.from_metadata(metadata)


def _read_from_archive(path: str) -> str:
    with tarfile.open(path) as archive:
        for member in archive:
            parts = member.name.lstrip("./").split("/")
            if len(parts) == 2 and parts[1] == "Chart.yaml" and (file := archive.extractfile(member)):
                return file.read().decode("utf-8")
    raise FileNotFoundError(path)


def custom_resource_definitions(rendered: str) -> list[dict[str, t.Any]]:
    """The CRDs of all `crds/` folders in the output of `helm template --include-crds`.

    Sub-charts that the values disable are not in the output. CRDs in the templates are not returned, because they are part of the release.
    """
    # The result contains the text before the first source, then alternately a path and the text of its documents.
    dummy, *parts = _SOURCE.split(rendered)
    texts = [text for source, text in zip(parts[::2], parts[1::2], strict=True) if "/crds/" in source]
    return [item for text in texts for item in definitions_of(text)]


def definitions_of(text: str) -> list[dict[str, t.Any]]:
    """The CRDs among the YAML documents in a string."""
    objects = [_without_nulls(item) for item in load_all(text) if isinstance(item, dict)]
    return [item for item in objects if item.get("kind") == "CustomResourceDefinition"]


def matching_documents(manifest: str, pattern: re.Pattern[str]) -> t.Iterator[dict[str, t.Any]]:
    """The documents of a manifest whose text matches the pattern; other documents are not parsed, because manifests are long."""
    for text in _SEPARATOR.split(manifest):
        if pattern.search(text):
            yield from (item for item in load_all(text) if isinstance(item, dict))


def _without_nulls(value: t.Any) -> t.Any:
    """The value without fields such as `creationTimestamp: null`, which the API server does not keep."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
