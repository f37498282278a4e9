# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pictures of the README: a plan on the terminal, and the page of a report.

`make docs` draws the plan from the output in docs/tutorial.md, which a test compares with the real output. `make picture` draws the page: it
starts the lab, applies the pools of inventories/lab, starts some pods, and writes the report.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from html import escape
from html.parser import HTMLParser
from pathlib import Path

from tests.helpers.playbook import run_playbook
from tests.labs import Lab, build_lab, own_lab
from tests.programs import REPO, run

PLAN = REPO / "docs" / "plan.svg"
REPORT = REPO / "docs" / "report.svg"
STYLE = REPO / "plugins" / "plugin_utils" / "report_page" / "style.css"
_TUTORIAL = REPO / "docs" / "tutorial.md"
_XHTML = "http://www.w3.org/1999/xhtml"

_LINE, _CHARACTER, _MARGIN = 18, 7.83, 16
_TERMINAL = """
  rect { fill: #16191d }
  text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', monospace; fill: #d7dce1; white-space: pre }
  text:first-of-type { fill: #8fd3a4 }
"""


def plan() -> str:
    """The plan of the change to MIG, as the terminal shows it."""
    section = _TUTORIAL.read_text(encoding="utf-8").partition("\n## Change to MIG\n")[2]
    commands, output = re.findall(r"```(?:shell|text)\n(.*?)```", section, re.DOTALL)[:2]
    lines = [f"$ {commands.splitlines()[-1]}", "", *output.splitlines()]
    width = round(max(map(len, lines)) * _CHARACTER + 2 * _MARGIN)
    height = len(lines) * _LINE + 2 * _MARGIN
    texts = [
        f'<text x="{_MARGIN}" y="{_MARGIN + 13 + number * _LINE}" xml:space="preserve">{escape(line, quote=False)}</text>'
        for number, line in enumerate(lines)
        if line
    ]
    label = "The output of the playbook plan: four nodes change to MIG, and one pod loses its GPU"
    return "\n".join(
        [
            _svg(width, height, label),
            f"<style>{_TERMINAL}</style>",
            f'<rect width="{width}" height="{height}" rx="8"/>',
            *texts,
            "</svg>",
            "",
        ]
    )


# The visible part of the page: its width and height in pixels.
_PAGE_SIZE = 1120, 880
# Parts of the page that do not belong to the picture, by element, class or id.
_LEFT_OUT = {"nav", "overview", "defs", "nodes", "namespaces", "drift", "footer", "script"}
_EMPTY = {"meta", "link", "input", "br"}
# Pods that use GPUs: namespace, pool, resource, units of each pod, number of pods.
_WORKLOADS = (
    ("class-a", "notebooks", "nvidia.com/gpu", 1, 14),
    ("class-b", "notebooks", "nvidia.com/gpu", 1, 5),
    ("chat", "inference", "nvidia.com/gpu.shared", 1, 12),
    ("vision", "train-a100", "nvidia.com/gpu", 4, 3),
    ("language", "train-a100", "nvidia.com/gpu", 8, 1),
    ("language", "train-h200", "nvidia.com/gpu", 8, 1),
)


class _Page(HTMLParser):
    """Writes a page as XML, without the parts that are left out."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._open: list[bool] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {tag, *(value or "" for name, value in attrs if name in ("id", "class"))}
        left_out = self._skips() or bool(names & _LEFT_OUT)
        if tag not in _EMPTY:
            self._open.append(left_out)
        if not left_out:
            # The parser writes names in lower case.
            written = "".join(f' {name.replace("viewbox", "viewBox")}="{escape(value or "")}"' for name, value in attrs)
            namespace = ' xmlns="http://www.w3.org/2000/svg"' if tag == "svg" else ""
            self.parts.append(f"<{tag}{namespace}{written}{'/' if tag in _EMPTY else ''}>")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _EMPTY:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open.pop():
            self.parts.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if not self._skips():
            self.parts.append(re.sub(r"\s+", " ", escape(data)))

    def _skips(self) -> bool:
        return bool(self._open) and self._open[-1]


def report(page: str) -> str:
    """The upper part of a report's page."""
    body = page.partition("</style>")[2].partition("<body")[2]
    parser = _Page()
    parser.feed(f"<body{body.partition('</body>')[0]}</body>")
    width, height = _PAGE_SIZE
    content = "".join(parser.parts).replace("<body", f'<body xmlns="{_XHTML}"', 1)
    return "\n".join(
        [
            _svg(width, height, "The page of a report: the pools of a cluster, and how many units of each are free"),
            report_style(),
            f'<foreignObject width="{width}" height="{height}">{content}</foreignObject>',
            "</svg>",
            "",
        ]
    )


def report_style() -> str:
    """The style of the page."""
    return f"<style>\n{escape(STYLE.read_text(encoding='utf-8').strip(), quote=False)}\n</style>"


def demo_report(lab: Lab) -> str:
    """The page of the pools of inventories/lab with some pods, from an empty lab."""
    run_playbook("accel.gpu.site", environ=lab.env).require_success()
    with tempfile.TemporaryDirectory() as folder:
        manifest, page = Path(folder) / "pods.json", Path(folder) / "report.html"
        manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(_manifests())}))
        run("kubectl", "apply", "-f", manifest, env=lab.env)
        for namespace, pool, *_rest in _WORKLOADS:
            run("kubectl", "rollout", "status", "-n", namespace, f"deployment/{pool}", "--timeout=2m", env=lab.env)
        run_playbook(
            "accel.gpu.site",
            environ=lab.env,
            arguments=["--tags", "report"],
            variables={"gpu_report_html_path": str(page)},
        ).require_success()
        return report(page.read_text(encoding="utf-8"))


def _manifests() -> Iterator[dict[str, object]]:
    for namespace in dict.fromkeys(workload[0] for workload in _WORKLOADS):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    for namespace, pool, resource, units, pods in _WORKLOADS:
        container = {
            "name": "work",
            "image": "registry.example.com/work:1",
            "resources": {"limits": {resource: f"{units}"}},
        }
        yield {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": pool, "namespace": namespace},
            "spec": {
                "replicas": pods,
                "selector": {"matchLabels": {"app": pool}},
                "template": {
                    "metadata": {"labels": {"app": pool}},
                    "spec": {
                        "nodeSelector": {"accel.gpu/pool": pool},
                        "tolerations": [{"operator": "Exists"}],
                        "containers": [container],
                    },
                },
            },
        }


def _svg(width: int, height: int, label: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(label)}">'
    )


if __name__ == "__main__":
    build_lab()
    with own_lab("demo") as demo:
        REPORT.write_text(demo_report(demo), encoding="utf-8")
