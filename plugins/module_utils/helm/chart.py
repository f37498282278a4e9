# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a Helm chart is and what it brings: read from its files and from what helm renders, without a cluster."""

from __future__ import annotations

import os
import re
import tarfile
import typing as t
from dataclasses import dataclass

YAML_IMPORT_ERROR: ImportError | None = None
try:
    import yaml
except ImportError as error:
    YAML_IMPORT_ERROR = error

_SEPARATOR = re.compile(r"^---\s*$", re.MULTILINE)
# `helm template` writes this line before every document, relative to the chart (helm v3 pkg/action/install.go).
_DOCUMENT = re.compile(r"^---\n# Source: (\S+)\n", re.MULTILINE)


class ChartProblem(Exception):
    """The chart cannot be used; the message says why and what to do, in one line."""


@dataclass(frozen=True)
class Chart:
    """The identity of a chart, as helm compares it."""

    name: str
    version: str
    app_version: str

    @property
    def label(self) -> str:
        """Name and version as `helm list` prints them."""
        return f"{self.name}-{self.version}"

    @classmethod
    def of(cls, metadata: t.Mapping[str, t.Any]) -> Chart:
        """From a Chart.yaml, or from the chart.metadata that a release keeps."""
        return cls(
            name=str(metadata.get("name") or ""),
            version=str(metadata.get("version") or ""),
            app_version=str(metadata.get("appVersion") or ""),
        )


def is_local(reference: str) -> bool:
    """Whether a chart reference is a path on this machine: said as one, or there."""
    if "://" in reference:
        return False
    return reference.startswith(("/", "./", "../", "~")) or reference.endswith(".tgz") or os.path.exists(reference)


def read(path: str) -> Chart:
    """The identity of an unpacked or packed chart; raises ChartProblem when there is none."""
    try:
        if os.path.isdir(path):
            with open(os.path.join(path, "Chart.yaml"), encoding="utf-8") as handle:
                return _identity(handle.read(), path)
        return _identity(_packed(path), path)
    except FileNotFoundError:
        what = "holds no Chart.yaml: it is not a Helm chart" if os.path.isdir(path) else "does not exist"
        raise ChartProblem(f"The chart {path} {what}.") from None
    except (OSError, tarfile.TarError) as error:
        raise ChartProblem(f"The chart {path} cannot be read: {error}.") from error


def _packed(path: str) -> str:
    with tarfile.open(path) as archive:
        for member in archive:
            parts = member.name.lstrip("./").split("/")
            if len(parts) == 2 and parts[1] == "Chart.yaml":
                found = archive.extractfile(member)
                if found is not None:
                    return found.read().decode("utf-8")
    raise FileNotFoundError(path)


def _identity(text: str, path: str) -> Chart:
    try:
        metadata = load(text)
    except yaml.YAMLError as error:
        raise ChartProblem(f"The Chart.yaml of {path} is not YAML: {_one_line(error)}.") from error
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise ChartProblem(f"The Chart.yaml of {path} names no chart.")
    return Chart.of(metadata)


def custom_resource_definitions(rendered: str) -> list[dict[str, t.Any]]:
    """The objects of every `crds/` folder in what `helm template --include-crds` printed.

    Helm leaves out the sub-charts that the values disable. CRDs among the templates are the release's own business.
    """
    found: list[dict[str, t.Any]] = []
    starts = list(_DOCUMENT.finditer(rendered))
    for match, following in zip(starts, [*starts[1:], None], strict=True):
        if "/crds/" not in match[1]:
            continue
        text = rendered[match.end() : following.start() if following else len(rendered)]
        found.extend(_without_nulls(item) for item in load_all(text) if isinstance(item, dict))
    return [item for item in found if item.get("kind") == "CustomResourceDefinition"]


def documents(manifest: str, wanted: re.Pattern[str]) -> t.Iterator[dict[str, t.Any]]:
    """The documents of a manifest whose text has the pattern; a manifest is long, and few of its documents matter."""
    for text in _SEPARATOR.split(manifest):
        if wanted.search(text):
            yield from (item for item in load_all(text) if isinstance(item, dict))


def load(text: str) -> t.Any:
    """One YAML document, through libyaml where it is there (a CRD is 300 KB: ten times faster)."""
    return yaml.load(text, Loader=_loader())


def load_all(text: str) -> list[t.Any]:
    """All YAML documents of a text."""
    return list(yaml.load_all(text, Loader=_loader()))


def dump(document: t.Any) -> str:
    """YAML for helm's --values."""
    return str(yaml.safe_dump(document, default_flow_style=False))


def _loader() -> t.Any:
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _without_nulls(value: t.Any) -> t.Any:
    """`creationTimestamp: null` and the like say nothing, and the API server keeps none of it."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
