# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes awx_contract.json from the two descriptions of AWX's API that its developers have published, and from the source of AWX 24.6.1.

    git -C awx show 2f3497bd:docs/docsite/rst/rest_api/_swagger/swagger.json > documented.json
    git -C ansible-ui show 7d6cb1bf:frontend/awx/interfaces/generated-from-swagger/swagger.json > generated.json
    python -m tests.helpers.awx_openapi documented.json generated.json

The first one contains the answers that AWX's own tests got, and the types and defaults of fields in words. The second one contains the types in a form for
programs. Both are older than 24.6.1 and say 201 where they do not know better, so the differences to the source of 24.6.1 are listed here.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab.awx.runs import RUNS
from lab.awx.store import KINDS

PATH = Path(__file__).with_name("awx_contract.json")
SOURCES = [
    "ansible/awx, docs/docsite/rst/rest_api/_swagger/swagger.json at commit 2f3497bd (2023-08-31): fields, defaults, and answers of AWX's own tests",
    "ansible/ansible-ui, frontend/awx/interfaces/generated-from-swagger/swagger.json at commit 7d6cb1bf (2024-08-09): types, limits, read-only fields",
    "ansible/awx at tag 24.6.1 (2024-07-02): fields that are newer, and status codes that the other two do not have",
]
# Fields and choices that are newer than the descriptions: awx/main/models/{jobs,notifications,inventory,workflow}.py and awx/api/serializers.py at 24.6.1.
_NEWER_CHOICES = {
    ("job_templates", "webhook_service"): ["bitbucket_dc"],
    ("workflow_job_templates", "webhook_service"): ["bitbucket_dc"],
    ("notification_templates", "notification_type"): ["awssns"],
    ("inventory_sources", "source"): ["terraform", "openshift_virtualization"],
}
_ATTACH = "awx/api/generics.py, SubListAttachDetachAPIView"
# Status codes of requests, in which the descriptions only have a default: the code, and where AWX 24.6.1 sets it.
_STATUSES = {
    **dict.fromkeys(("success_nodes", "failure_nodes", "always_nodes", "credentials", "galaxy_credentials", "users", "teams"), (204, _ATTACH)),
    **dict.fromkeys((f"notification_templates_{event}" for event in ("started", "success", "error", "approvals")), (204, _ATTACH)),
    "survey_spec": (200, "awx/api/views/__init__.py, JobTemplateSurveySpec"),
    "update": (202, "awx/api/views/__init__.py, ProjectUpdateView and InventorySourceUpdateView"),
    "cancel": (202, "awx/api/generics.py, GenericCancelView"),
    "approve": (204, "awx/api/views/__init__.py, WorkflowApprovalApprove"),
    "deny": (204, "awx/api/views/__init__.py, WorkflowApprovalDeny"),
}  # fmt: skip
# awx/api/views/__init__.py: JobTemplateLaunch with slices, JobRelaunch, and ProjectUpdateView.
_MORE_KEYS = {
    "POST job_templates/{id}/launch": ["workflow_job"],
    "POST jobs/{id}/relaunch": ["job"],
    "POST projects/{id}/update": ["project_update"],
}
_FIELD = re.compile(r"^\* `(\w+)`:.*\((\w+)(, required)?(?:, default=`(.*?)`)?\)$", re.MULTILINE)
_CODE = re.compile(r"\b([24]0\d)\b")
_ACTIONS = (
    "launch",
    "relaunch",
    "cancel",
    "update",
    "approve",
    "deny",
    "survey_spec",
    "create_approval_template",
    "workflow_nodes",
    "stdout",
)
_PAGE = ["count", "next", "previous", "results"]
_Description = dict[str, Any]


class Descriptions:
    """The two descriptions."""

    def __init__(self, documented: _Description, generated: _Description) -> None:
        self._documented, self._generated = documented["paths"], generated["paths"]
        self._definitions = generated["definitions"]

    def _definition(self, path: str, method: str, *, request: bool) -> dict[str, Any]:
        operation = self._generated.get(f"/api/{{version}}/{path}/", {}).get(method, {})
        schemas = [each.get("schema", {}) for each in operation.get("parameters", []) if each["in"] == "body"] if request else [
            each.get("schema", {}) for each in operation.get("responses", {}).values()
        ]  # fmt: skip
        names = [schema["$ref"].rpartition("/")[2] for schema in schemas if "$ref" in schema]
        return self._definitions[names[0]] if names else {}

    def fields(self, kind: str) -> dict[str, Any]:
        """Return what may be written, with types, and the names of what can only be read."""
        shown = self._definition(f"{kind}/{{id}}", "get", request=False) or self._definition(kind, "get", request=False)
        written = self._definition(kind, "post", request=True)
        every = {**shown.get("properties", {}), **written.get("properties", {})}
        words = {
            name: rest
            for name, *rest in _FIELD.findall(
                self._documented.get(f"/api/v2/{kind}/", {}).get("post", {}).get("description", "")
            )
        }
        required = {*written.get("required", []), *(name for name, (_kind, must, _default) in words.items() if must)}
        writable = {
            name: _field(
                every.get(name, {}),
                words.get(name),
                required=name in required,
                newer=_NEWER_CHOICES.get((kind, name), []),
            )
            for name in sorted({*every, *words})
            if kind in KINDS and not every.get(name, {}).get("readOnly")
        }
        answers = self._documented.get(f"/api/v2/{kind}/{{id}}/", {}).values()
        examples = [example for answer in answers if isinstance(example := _example(answer, "200"), dict)]
        return {
            "writable": writable,
            "read_only": sorted({*every, *(name for example in examples for name in example)} - set(writable)),
        }

    def bodies(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield for each action the fields that its request may have."""
        for path in self._generated:
            short = path.removeprefix("/api/{version}/").rstrip("/")
            kind, _, part = short.replace("/{id}", "").partition("/")
            if kind in (*KINDS, *RUNS) and part in _ACTIONS:
                properties = self._definition(short, "post", request=True).get("properties", {})
                fields = {
                    # A VerbatimField of awx/api/serializers.py: a text or a map.
                    name: {"type": "json"} if name == "extra_vars" else _field(schema, None)
                    for name, schema in properties.items()
                    if not schema.get("readOnly")
                }
                if fields:
                    yield f"POST {short}", fields

    def answers(self) -> Iterator[tuple[str, dict[int, list[str]]]]:
        """Yield for each request its status codes; with the keys of the answers, where a description has an example."""
        for path, operations in sorted(self._documented.items()):
            short = path.removeprefix("/api/v2/").rstrip("/")
            kind, _, part = short.replace("/{id}", "").partition("/")
            links = KINDS[kind].links if kind in KINDS else {}
            if kind not in (*KINDS, *RUNS, "roles", "tokens", "unified_job_templates") or (
                part and part not in (*links, *_ACTIONS, "users", "teams")
            ):
                continue
            for method, operation in operations.items():
                if method != "put":
                    request = f"{method.upper()} {short}"
                    more = _MORE_KEYS.get(request, [])
                    answers = self._answer(method, kind, part, operation)
                    yield request, {code: [*keys, *more] if code < 300 else keys for code, keys in answers.items()}

    def _answer(self, method: str, kind: str, part: str, operation: _Description) -> dict[int, list[str]]:
        """The keys of an answer are left out if it is a page, or an object of the kind."""
        described = {int(code) for code in _CODE.findall(operation["description"])} if method == "post" else set()
        known = {
            int(code): _example(operation, code)
            for code, answer in operation["responses"].items()
            if "examples" in answer
        }
        default = _STATUSES.get(part, (0, ""))[0] if method in ("post", "delete") else 0
        codes = {*known, *described}
        if default or not any(code < 300 for code in codes):
            # The example of attaching is that of creating and attaching, which AWX answers with 201.
            codes = {code for code in codes if code >= 300} | {default or int(min(operation["responses"]))}
        usual = [*_PAGE, *(name for names in self.fields(kind).values() for name in names)]
        return {
            code: sorted(body)
            if isinstance(body := known.get(code), dict) and (code >= 300 or not body.keys() <= {*usual})
            else []
            for code in sorted(codes)
        }


def _field(
    schema: dict[str, Any], words: list[str] | None, *, required: bool = False, newer: list[str] | None = None
) -> dict[str, Any]:
    described = words[0] if words else schema.get("type", "string")
    field = {
        "type": {"object": "json", "array": "json", "field": "json"}.get(described, described),
        "required": required,
        "choices": [*schema.get("enum", []), *(newer or [])],
        "longest": schema.get("maxLength"),
        "lowest": schema.get("minimum"),
    }
    return {key: value for key, value in field.items() if value or (value == 0 and key == "lowest")}


def _example(operation: _Description, code: str) -> Any:
    return operation.get("responses", {}).get(code, {}).get("examples", {}).get("application/json")


def contract(documented: _Description, generated: _Description) -> dict[str, Any]:
    """Return the contract of the kinds and requests that the stand-in has."""
    both = Descriptions(documented, generated)
    return {
        "kinds": {kind: both.fields(kind) for kind in (*KINDS, *RUNS, "tokens")},
        "bodies": dict(both.bodies()),
        "requests": dict(both.answers()),
    }


def text_of(value: Any, depth: int = 4, indent: str = "") -> str:
    """Return JSON with one line for each field and each answer."""
    if not depth or not isinstance(value, dict) or not value:
        return json.dumps(value)
    inner = indent + " "
    lines = [
        f"{inner}{json.dumps(str(key))}: {text_of(item, 1 if key == 'requests' else depth - 1, inner)}"
        for key, item in value.items()
    ]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


if __name__ == "__main__":
    written = contract(*(json.loads(Path(path).read_text(encoding="utf-8")) for path in sys.argv[1:3]))
    PATH.write_text(text_of({"sources": SOURCES, **written}) + "\n", encoding="utf-8")
