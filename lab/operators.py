# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The releases of the GPU operator that a lab can run: those that the lab builds, and those that a user has added."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from . import build, sandbox
from .errors import LabError
from .layout import LABS, Lab, cache
from .lock import locked
from .tools import OPERATORS

CHART = "gpu-operator"
PROGRAM = "gpu-operator"
# The placeholders in the sources of the charts, which NVIDIA's release process replaces.
_PLACEHOLDERS = {"v1.0.0-devel", "main-latest", ""}
_VERSION = re.compile(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?")
# The lab starts the program with these flags.
_FLAGS = ("leader-elect", "leader-lease-renew-deadline", "metrics-bind-address", "health-probe-bind-address")
# A folder of every release's assets, and of every release's manifests (Dockerfile of NVIDIA/gpu-operator).
_STATE = "state-driver"
_CRD = "clusterpolicies.nvidia.com"


@dataclass(frozen=True)
class LabOperator:
    """A release of the GPU operator; its folder contains `bin`, `charts`, `assets` and `manifests`, or is None if not built."""

    version: str
    folder: Path | None
    tool: str = ""
    """The tool that the lab builds; empty for a release that a user has added."""

    @property
    def program(self) -> Path:
        """The controller program."""
        return self._existing() / "bin" / PROGRAM

    @property
    def chart(self) -> Path:
        """The folder of the Helm chart."""
        return self._existing() / "charts" / CHART

    @property
    def needs_libraries(self) -> bool:
        """Whether the program is linked with the C library of this machine."""
        return _is_dynamic(self.program)

    def files(self) -> dict[Path | str, str]:
        """The files of the operator's image, by their path on this machine."""
        folder = self._existing()
        files: dict[Path | str, str] = {
            below: f"/opt/gpu-operator/{below.name}" for below in sorted((folder / "assets").iterdir())
        }
        files[folder / "manifests"] = "/opt/gpu-operator/manifests"
        if self.needs_libraries:
            files |= sandbox.libraries()
        return files

    def _existing(self) -> Path:
        if self.folder is None:
            raise LabError(f"GPU operator {self.version} is not built: run 'lab/lab build {self.tool}'")
        return self.folder


def releases() -> list[LabOperator]:
    """Return every release that the lab knows, the oldest first."""
    pinned = [
        LabOperator(version, build.cached(operator.tool), operator.tool) for version, operator in OPERATORS.items()
    ]
    return sorted([*pinned, *_added()], key=lambda release: _order(release.version))


def find(version: str) -> LabOperator | None:
    """Return the release with this version, or None if the lab has none; one that is not built is returned, too."""
    if version in OPERATORS:
        tool = OPERATORS[version].tool
        return LabOperator(version, build.cached(tool), tool)
    return next((release for release in _added() if release.version == version), None)


def _added() -> Iterator[LabOperator]:
    for folder in _store().glob("v*"):
        yield LabOperator(folder.name, folder)


def _store() -> Path:
    return cache() / "operators"


def _order(version: str) -> tuple[list[int], str]:
    numbers, _dash, rest = version.removeprefix("v").partition("-")
    return [int(number) for number in numbers.split(".")], rest


def add(
    version: str, program: Path, chart: Path, crds: Path | None, image: Path | None
) -> tuple[LabOperator, list[str]]:
    """Copy a release into the cache, after validating all of it; return it and remarks. An added release is replaced.

    `image` has the other files of the operator's image: `assets` and `manifests` as in NVIDIA's sources, or the content of
    the image's /opt/gpu-operator. By default they are looked up next to the chart or the binary.
    """
    _require_version(version)
    _require_program(program)
    remarks = _require_chart(version, chart)
    _require_crds(chart / "crds" if crds is None else crds)
    assets, manifests, remark = _image_files(version, program, chart, image)
    target = _store() / version
    with locked(cache() / "operators.lock", "adding a GPU operator"):
        scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=_created(_store())))
        try:
            _copy(program, chart, crds, scratch)
            _rewrite_version(scratch / "charts" / CHART / "Chart.yaml", version)
            shutil.copytree(assets, scratch / "assets", ignore=shutil.ignore_patterns("manifests"))
            shutil.copytree(manifests, scratch / "manifests")
            scratch.chmod(0o755)
            shutil.rmtree(target, ignore_errors=True)
            scratch.rename(target)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
    link_all_charts()
    return LabOperator(version, target), [*remarks, *([remark] if remark else [])]


def remove(version: str) -> None:
    """Delete an added release from the cache; a running operator of this release continues until its pod is replaced."""
    if version in OPERATORS:
        raise LabError(f"GPU operator {version} is built by the lab and cannot be removed")
    target = _store() / version
    if not _VERSION.fullmatch(version) or not target.is_dir():
        raise LabError(f"no GPU operator {version} has been added; {_known()}")
    with locked(cache() / "operators.lock", "removing a GPU operator"):
        shutil.rmtree(target)
    link_all_charts()


def link_charts(lab: Lab) -> None:
    """Link the chart of every release into the lab's folder of charts, as gpu-operator-VERSION."""
    present = {f"{CHART}-{release.version}": release.chart for release in releases() if release.folder}
    for link in lab.charts.glob(f"{CHART}-v*"):
        if link.is_symlink() and present.get(link.name) != link.readlink():
            link.unlink(missing_ok=True)
    for name, chart in present.items():
        if not (lab.charts / name).is_symlink():
            (lab.charts / name).symlink_to(chart)


def link_all_charts() -> None:
    """Link the charts into the folders of all labs of this checkout."""
    for folder in LABS.glob("[!.]*/charts"):
        link_charts(Lab(folder.parent.name, folder.parent))


def _known() -> str:
    return f"known: {', '.join(release.version for release in releases())}"


def _require_version(version: str) -> None:
    if not _VERSION.fullmatch(version):
        remedy = f"; write v{version}" if _VERSION.fullmatch(f"v{version}") else ""
        raise LabError(f"--version: '{version}' is not a version like v26.3.0, as in the tag of the image{remedy}")
    if version in OPERATORS:
        raise LabError(f"--version: the lab builds GPU operator {version}; choose another version")


def _require_program(program: Path) -> None:
    if not program.is_file():
        raise LabError(f"--binary: {program} is not a file")
    if not os.access(program, os.X_OK):
        raise LabError(f"--binary: {program} is not executable; run 'chmod +x {program}'")
    with program.open("rb") as file, Path("/proc/self/exe").open("rb") as own:
        # The magic number and class of ELF, and the machine's architecture.
        header, expected = file.read(20), own.read(20)
    if header[:5] != expected[:5]:
        raise LabError(f"--binary: {program} is not a Linux executable (ELF, {expected[4] * 32} bits)")
    if header[18:20] != expected[18:20]:
        raise LabError(f"--binary: {program} is built for a CPU architecture other than that of this machine")
    usage = _usage(program)
    missing = [flag for flag in _FLAGS if f"-{flag}" not in usage]
    if missing:
        raise LabError(
            f"--binary: {program} is not the GPU operator's controller: it has no flag --{', --'.join(missing)}"
        )


def _usage(program: Path) -> str:
    """Return the output of `PROGRAM --help`, run in an empty sandbox."""
    inside = f"/usr/bin/{PROGRAM}"
    files: dict[Path | str, str] = {program.resolve(): inside}
    if _is_dynamic(program):
        files |= sandbox.libraries()
    call = sandbox.command([inside, "--help"], files=files, environment={"HOME": "/tmp"}, network=False)
    try:
        done = subprocess.run(call, capture_output=True, text=True, errors="replace", check=False, timeout=60)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout + done.stderr


def _is_dynamic(program: Path) -> bool:
    """Return whether an ELF program is linked dynamically: its first page then names the loader."""
    with program.open("rb") as file:
        return b"/ld-" in file.read(4096)


def _require_chart(version: str, chart: Path) -> list[str]:
    """Check the chart; return a remark if it states another version, which the copy does not keep."""
    if chart.is_file():
        raise LabError(f"--chart: {chart} is a file; unpack it with 'tar -xf {chart}' and give the folder")
    metadata = _yaml(chart / "Chart.yaml", f"--chart: {chart} has no Chart.yaml")
    if not isinstance(metadata, dict) or metadata.get("name") != CHART:
        name = metadata.get("name") if isinstance(metadata, dict) else None
        raise LabError(f"--chart: the chart in {chart} is '{name}', not '{CHART}'")
    for name in ("values.yaml", "templates/operator.yaml", "templates/clusterpolicy.yaml"):
        if not (chart / name).is_file():
            raise LabError(f"--chart: {chart} is incomplete: it has no {name}")
    for dependency in metadata.get("dependencies") or []:
        name = str(dependency.get("name"))
        if not any((chart / "charts").glob(f"{name}*")):
            raise LabError(
                f"--chart: {chart} lacks its sub-chart '{name}'; run 'helm dependency build {chart}', or use the chart"
                " that 'helm pull --untar' downloads"
            )
    stated = {str(metadata.get(key) or "") for key in ("version", "appVersion")}
    stated -= {version, *_PLACEHOLDERS}
    if not stated:
        return []
    return [f"the chart states version {' and '.join(sorted(stated))}; its copy states {version}"]


def _require_crds(folder: Path) -> None:
    if not folder.is_dir():
        raise LabError(f"--crds: {folder} is not a folder; name the folder with the CRDs of this release")
    names = set()
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        for document in _documents(path):
            if document.get("kind") != "CustomResourceDefinition":
                raise LabError(f"--crds: {path} contains a {document.get('kind')}; a CRD is expected")
            names.add(document.get("metadata", {}).get("name"))
    if _CRD not in names:
        raise LabError(f"--crds: no file in {folder} defines {_CRD}")


def _documents(path: Path) -> list[dict[str, Any]]:
    try:
        loaded = list(yaml.load_all(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (OSError, yaml.YAMLError) as error:
        raise LabError(f"--crds: cannot read {path}: {' '.join(str(error).split())}") from error
    return [document for document in loaded if isinstance(document, dict)]


def _yaml(path: Path, missing: str) -> Any:
    try:
        return yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise LabError(missing) from None
    except (OSError, yaml.YAMLError) as error:
        raise LabError(f"cannot read {path}: {' '.join(str(error).split())}") from error


def _image_files(version: str, program: Path, chart: Path, image: Path | None) -> tuple[Path, Path, str]:
    """Return the folders of assets and manifests, and a remark if they are those of another release."""
    if image is not None:
        assets = _assets_in(image)
        if assets is None:
            raise LabError(
                f"--image-files: {image} has neither assets/{_STATE} and manifests (NVIDIA's sources) nor {_STATE} and"
                " manifests (/opt/gpu-operator of the image)"
            )
        return (*assets, "")
    place = program.resolve().parent
    for folder in (chart.resolve().parent.parent, place, place.parent, place.parent.parent / "opt" / "gpu-operator"):
        if beside := _assets_in(folder):
            return (*beside, "")
    built = [release for release in releases() if release.folder and release.version != version]
    older = [release for release in built if _order(release.version) <= _order(version)] or built
    if not older or older[-1].folder is None:
        raise LabError(
            "--image-files is missing: the assets and manifests of this release, as in NVIDIA's sources or in"
            " /opt/gpu-operator of the image"
        )
    used, folder = older[-1].version, older[-1].folder
    remark = f"no assets next to the chart or the binary: those of {used} are used; set others with --image-files"
    return folder / "assets", folder / "manifests", remark


def _assets_in(folder: Path) -> tuple[Path, Path] | None:
    for assets in (folder / "assets", folder):
        manifests = folder / "manifests"
        if (assets / _STATE).is_dir() and (manifests / _STATE).is_dir():
            return assets, manifests
    return None


def _copy(program: Path, chart: Path, crds: Path | None, target: Path) -> None:
    (target / "bin").mkdir()
    shutil.copyfile(program, target / "bin" / PROGRAM)
    (target / "bin" / PROGRAM).chmod(0o755)
    copied = target / "charts" / CHART
    # Copies only the contents, since files of a Go module cache are read-only.
    shutil.copytree(chart, copied, copy_function=shutil.copyfile)
    if crds is not None:
        shutil.rmtree(copied / "crds", ignore_errors=True)
        shutil.copytree(crds, copied / "crds", copy_function=shutil.copyfile)
    for folder, _below, _files in os.walk(target):
        Path(folder).chmod(0o755)


def _rewrite_version(chart: Path, version: str) -> None:
    text = re.sub(r"(?m)^version:.*$", f"version: {version}", chart.read_text())
    text, replaced = re.subn(r"(?m)^appVersion:.*$", f'appVersion: "{version}"', text)
    chart.write_text(text if replaced else f'{text.rstrip()}\nappVersion: "{version}"\n')


def _created(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def describe(release: LabOperator) -> dict[str, str]:
    """Return a release as JSON-serializable data; its chart is empty if it is not built."""
    state = "added" if not release.tool else "built" if release.folder else "not built"
    return {
        "version": release.version,
        "state": state,
        "chart": str(release.chart) if release.folder else "",
        "build": f"lab/lab build {release.tool}" if release.tool else "",
    }


def render(releases: Sequence[LabOperator]) -> str:
    """Return a table of releases."""
    lines = [f"{'VERSION':<18}{'STATE':<12}CHART"]
    for row in map(describe, releases):
        lines.append(f"{row['version']:<18}{row['state']:<12}{row['chart'] or '(' + row['build'] + ')'}")
    return "\n".join(lines)
