# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the lab's programs into the cache, each once per pinned source and Go version."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from . import toolchains
from .edits import Edit
from .errors import LabError
from .layout import cache
from .lock import locked
from .progress import BuildProgress
from .tools import PARTS, TOOLS, Copy, Tool

_TAIL = 40
# Another checkout or an older commit may still use programs that this checkout does not use.
_KEPT_UNUSED = 30 * 24 * 3600.0
_CFLAGS = ("-shared", "-fPIC", "-O2", "-std=c11", "-Wall", "-Wextra", "-Werror")


def ensure(names: Iterable[str]) -> dict[str, Path]:
    """Build the missing tools and return the cache folder of each; the name of a part stands for all its tools."""
    tools = [TOOLS[name] for name in _tool_names(names)]
    go = toolchains.find_go()
    folders = {tool.name: _folder(tool, go) for tool in tools}
    missing = [tool for tool in tools if not folders[tool.name].is_dir()]
    if missing:
        with locked(cache() / "build.lock", "building the lab's programs"):
            missing = [tool for tool in missing if not folders[tool.name].is_dir()]
            _build_all(missing, folders, go)
    for tool in tools:
        os.utime(folders[tool.name])
    if missing:
        _forget_unused()
    return folders


def cached(name: str) -> Path | None:
    """Return the cache folder of a tool as this checkout pins it, or None if it is not built."""
    folder = _folder(TOOLS[name], toolchains.find_go())
    return folder if folder.is_dir() else None


def _forget_unused() -> None:
    """Delete from the cache the tools that no lab has used for 30 days and the remains of killed builds."""
    built = re.compile(rf"[a-z0-9.-]+-[0-9a-f]{{16}}|\.({'|'.join(TOOLS)})-\w+")
    for folder in cache().iterdir():
        if built.fullmatch(folder.name) and time.time() - folder.stat().st_mtime > _KEPT_UNUSED:
            shutil.rmtree(folder, ignore_errors=True)


def _tool_names(names: Iterable[str]) -> list[str]:
    selected: list[str] = []
    for name in names:
        if name not in PARTS and name not in TOOLS:
            raise LabError(f"unknown tool or part '{name}'; known: {', '.join([*PARTS, *TOOLS])}")
        selected += [tool for tool in PARTS.get(name, (name,)) if tool not in selected]
    return [name for name in TOOLS if name in selected]


def _folder(tool: Tool, go: toolchains.Go) -> Path:
    """Return the cache folder of a tool; its name ends in a hash of everything that determines its content."""
    digest = hashlib.sha256(f"{go.version}\n{tool}\n".replace(str(tool.folder), "").encode())
    if tool.cgo or tool.library:
        digest.update(
            f"{toolchains.find_compiler().version}\n{_CFLAGS}\n{tool.beside} {tool.cgo} {tool.library}\n".encode()
        )
    if tool.edits or tool.tags:
        digest.update(f"{tool.beside} {tool.edits} {tool.tags}\n".encode())
    for source in sorted(
        path for path in tool.folder.rglob("*") if path.is_file() and not path.name.endswith("_test.go")
    ):
        digest.update(f"{source.relative_to(tool.folder)}\0".encode() + source.read_bytes() + b"\0")
    return cache() / f"{tool.name}-{digest.hexdigest()[:16]}"


def _build_all(tools: list[Tool], folders: dict[str, Path], go: toolchains.Go) -> None:
    durations = Durations()
    usual = {tool.name: durations.usual(tool.name, tool.usual_seconds) for tool in tools}
    if not usual:
        return
    with BuildProgress(usual) as progress:
        prefetch = threading.Thread(target=_prefetch, args=(tools[1:], go), daemon=True)
        prefetch.start()
        for tool in tools:
            progress.begin(tool.name)
            started = time.monotonic()
            _build(tool, folders[tool.name], go)
            durations.record(tool.name, time.monotonic() - started)
            progress.end(tool.name)


def _prefetch(tools: list[Tool], go: toolchains.Go) -> None:
    """Download the modules of the next tools during compilation; a failure is reported by the build itself."""
    for tool in tools:
        if not tool.package:
            continue
        command = [str(go.program), "list", "-deps", *_tags(tool), tool.package, *tool.beside]
        environment = toolchains.go_environment(cgo=tool.cgo or tool.library)
        subprocess.run(command, cwd=tool.folder, env=environment, capture_output=True, check=False)


def _build(tool: Tool, folder: Path, go: toolchains.Go) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{tool.name}-", dir=folder.parent))
    edited = Path(tempfile.mkdtemp(prefix=f".{tool.name}-", dir=folder.parent))
    try:
        binaries = scratch / "bin"
        binaries.mkdir()
        if not tool.package:
            _go(go, tool, ["mod", "download", *{copy.module for copy in tool.copies}])
        modules = _edit_modules(tool, edited, go)
        if tool.library:
            _library(tool, binaries, go)
        elif tool.package:
            _programs(tool, binaries, go, ["-modfile", str(edited / "go.mod")] if modules else [])
        for applet in tool.applets:
            (binaries / applet).symlink_to(tool.program)
        for copy in tool.copies:
            _copy(copy, modules.get(copy.module) or _module(tool, copy.module, go), scratch)
        scratch.chmod(0o755)
        scratch.rename(folder)
    finally:
        for remains in (scratch, edited):
            shutil.rmtree(remains, ignore_errors=True)


def _edit_modules(tool: Tool, folder: Path, go: toolchains.Go) -> dict[str, Path]:
    """Copy the modules that the tool edits, and write a go.mod that uses the copies; return the copy of each module."""
    copies = {edit.module: folder / edit.module for edit in tool.edits}
    for name, copy in copies.items():
        _copy_tree(_module(tool, name, go), copy)
    for edit in tool.edits:
        edit_file(copies[edit.module], edit)
    if copies:
        replaced = "".join(f"\nreplace {name} => {copy}\n" for name, copy in copies.items())
        (folder / "go.mod").write_text((tool.folder / "go.mod").read_text() + replaced)
        shutil.copyfile(tool.folder / "go.sum", folder / "go.sum")
    return copies


def edit_file(module: Path, edit: Edit) -> None:
    """Make one edit in a copy of a module; raise LabError if the old text does not occur exactly once."""
    path = module / edit.file
    text = path.read_text()
    if (count := text.count(edit.old)) != 1:
        raise LabError(
            f"{edit.module}: {edit.file} contains the text to edit {count} times instead of once: {edit.old}"
        )
    path.write_text(text.replace(edit.old, edit.new))


def _tags(tool: Tool) -> list[str]:
    return ["-tags", tool.tags] if tool.tags else []


def _programs(tool: Tool, binaries: Path, go: toolchains.Go, options: list[str]) -> None:
    ldflags = f"-s -w {tool.ldflags}".strip()
    command = ["build", "-mod=readonly", "-trimpath", "-buildvcs=false", *options, *_tags(tool), "-ldflags", ldflags]
    for package, program in ((tool.package, tool.program), *((beside, Path(beside).name) for beside in tool.beside)):
        _go(go, tool, [*command, "-o", str(binaries / program), package])


def _library(tool: Tool, binaries: Path, go: toolchains.Go) -> None:
    headers = _go(go, tool, ["list", "-f", "{{.Dir}}", tool.package])
    sources = [source.name for source in sorted(tool.folder.glob("*.c"))]
    _run(
        tool,
        [
            toolchains.find_compiler().program,
            *_CFLAGS,
            "-isystem",
            headers,
            "-o",
            str(binaries / tool.program),
            *sources,
        ],
    )


def _go(go: toolchains.Go, tool: Tool, arguments: list[str]) -> str:
    return _run(tool, [str(go.program), *arguments])


def _run(tool: Tool, command: list[str]) -> str:
    environment = toolchains.go_environment(cgo=tool.cgo or tool.library)
    done = subprocess.run(command, cwd=tool.folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        log = "\n".join(done.stderr.strip().splitlines()[-_TAIL:])
        raise LabError(f"building {tool.name} failed (in {tool.folder}: {' '.join(command)}):\n{log}")
    return done.stdout.strip()


def _module(tool: Tool, name: str, go: toolchains.Go) -> Path:
    """Return the folder of a module in Go's module cache."""
    return Path(_go(go, tool, ["list", "-m", "-f", "{{.Dir}}", name]))


def _copy_tree(source: Path, target: Path) -> None:
    # Files in the module cache are read-only; copying only their contents makes the copies writable.
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    for folder, _below, _files in os.walk(target):
        Path(folder).chmod(0o755)


def _copy(copy: Copy, module: Path, scratch: Path) -> None:
    target = scratch / copy.target
    _copy_tree(module / copy.source, target)
    if copy.chart_version:
        chart = target / "Chart.yaml"
        text = re.sub(r"(?m)^version:.*$", f"version: {copy.chart_version}", chart.read_text())
        chart.write_text(re.sub(r"(?m)^appVersion:.*$", f'appVersion: "{copy.app_version}"', text))


class Durations:
    """The duration of each tool's last build on this machine, or its default duration."""

    def __init__(self) -> None:
        self._path = cache() / "durations.json"
        try:
            self._own: dict[str, float] = json.loads(self._path.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            self._own = {}

    def usual(self, name: str, seconds: int) -> float:
        """Return the expected seconds: the last measurement, or the given default."""
        return self._own.get(name, float(seconds))

    def record(self, name: str, seconds: float) -> None:
        """Save the duration of a build."""
        self._own[name] = round(seconds, 1)
        temporary = self._path.with_suffix(".new")
        temporary.write_text(json.dumps(self._own, indent=2) + "\n")
        temporary.replace(self._path)


if __name__ == "__main__":
    # Uses only the standard library, so that it can run before the virtual environment exists.
    try:
        ensure(["kube"])
    except LabError as error:
        sys.exit(f"lab: {error}")
