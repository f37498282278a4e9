# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AWX's rules for surveys, answers, credential types and schedules, and what AWX accepts although it does not work (pure).

Sources, at tag 24.6.1 of ansible/awx: awx/api/views/__init__.py (_validate_spec_data), awx/main/models/mixins.py (_survey_element_validation),
awx/main/fields.py (CredentialTypeInputField, CredentialTypeInjectorField), awx/main/constants.py, awx/api/serializers.py (validate_rrule).
Each rule that is stricter than AWX has a comment.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterator
from typing import Any

import jinja2
import jinja2.sandbox

_TYPES: dict[str, type | tuple[type, ...]] = {
    "text": str,
    "textarea": str,
    "password": str,
    "multiplechoice": str,
    "multiselect": str,
    "integer": int,
    "float": (float, int),
}
_VARIABLE = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_FILE = re.compile(r"template(\.[a-zA-Z_][a-zA-Z0-9_]*)?")
_EXTRA_VARIABLE = re.compile(r"[a-zA-Z_{}][a-zA-Z0-9_{}]*")
_RESERVED_ENVIRONMENT = frozenset({
    "VIRTUAL_ENV", "PATH", "PYTHONPATH", "JOB_ID", "INVENTORY_ID", "INVENTORY_SOURCE_ID", "INVENTORY_UPDATE_ID", "AD_HOC_COMMAND_ID", "REST_API_URL",
    "REST_API_TOKEN", "MAX_EVENT_RES", "CALLBACK_QUEUE", "CALLBACK_CONNECTION", "CACHE", "JOB_CALLBACK_DEBUG", "INVENTORY_HOSTVARS", "AWX_HOST",
    "PROJECT_REVISION", "SUPERVISOR_CONFIG_PATH",
    # Accepted by AWX, but the image's home then has none of the program's files.
    "HOME",
})  # fmt: skip
_INPUT_KEYS = frozenset({
    "id", "label", "type", "format", "choices", "help_text", "multiline", "secret", "ask_at_runtime", "default",
})  # fmt: skip


def survey_problems(spec: Any) -> list[str]:
    """Return what AWX refuses in a survey, and what it accepts but handles incorrectly."""
    if not isinstance(spec, dict):
        return ["the survey is not a map"]
    problems = [
        f"{key}: is not {kind.__name__}"
        for key, kind in (("name", str), ("description", str), ("spec", list))
        if not isinstance(spec.get(key), kind)
    ]
    if problems or not spec["spec"]:
        return problems or ["spec: has no question"]
    variables: set[str] = set()
    for index, question in enumerate(spec["spec"]):
        where = f"spec[{index}]"
        if not isinstance(question, dict):
            problems.append(f"{where}: is not a map")
            continue
        problems += [f"{where}: {problem}" for problem in _question_problems(question)]
        variable = question.get("variable")
        if variable in variables:
            problems.append(f"{where}: variable {variable} is asked twice")
        variables.add(str(variable))
    return problems


def _question_problems(question: dict[str, Any]) -> Iterator[str]:
    for key, kind in (("type", str), ("question_name", str), ("variable", str), ("required", bool)):
        if not isinstance(question.get(key), kind):
            yield f"{key} is not {kind.__name__}"
            return
    if question["type"] not in _TYPES:
        yield f"type {question['type']} is unknown"
        return
    # AWX accepts any text.
    if not _VARIABLE.fullmatch(question["variable"]):
        yield f"variable {question['variable']!r} is not the name of a variable"
    for key in ("min", "max"):
        limit = question.get(key)
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
            yield f"{key} is not an integer or null"
            return
    yield from _default_problems(question)
    yield from _answer_problems(question)


def _default_problems(question: dict[str, Any]) -> Iterator[str]:
    kind, default = question["type"], question.get("default", "")
    if default is None:
        yield "default is null"
    elif default != "" and (not isinstance(default, _TYPES[kind]) or isinstance(default, bool)):
        yield f"default {default!r} does not have the type {kind}"
    # All of the following are accepted by AWX: the default is dropped at launch, or never reaches the job, or makes each run of awx.awx a change.
    elif default != "" and kind == "multiselect":
        yield "the default of a multiselect never reaches the job"
    elif default != "" and kind == "password":
        yield "a password with a default is changed by every run"
    elif default != "" and (reasons := answer_problems(question, {question["variable"]: default})):
        yield f"the default is dropped at launch: {reasons[0]}"


def _answer_problems(question: dict[str, Any]) -> Iterator[str]:
    kind = question["type"]
    if kind in ("multiplechoice", "multiselect"):
        choices = question.get("choices")
        # AWX accepts one text, and matches its parts as substrings.
        if (
            not isinstance(choices, list)
            or not choices
            or not all(isinstance(choice, str) and choice for choice in choices)
        ):
            yield "choices is not a list of texts"
    # AWX accepts an empty text as the answer to a required question.
    elif question["required"] and kind in ("text", "textarea", "password") and not question.get("min"):
        yield "an empty text satisfies required: min must be at least 1"
    elif question["required"] and question.get("default", "") != "":
        yield "a required question has a default, which nobody needs to read"


def answer_problems(question: dict[str, Any], answers: dict[str, Any]) -> list[str]:
    """Return what AWX refuses in an answer at launch."""
    variable, kind = question["variable"], question["type"]
    if variable not in answers:
        return [f"'{variable}' value missing"] if question["required"] else []
    value, low, high = answers[variable], question.get("min"), question.get("max")
    if kind in ("text", "textarea", "password"):
        if not isinstance(value, str):
            return [f"Value {value} for '{variable}' expected to be a string."]
        return _outside(variable, len(value), low, high)
    if kind in ("integer", "float"):
        if type(value) is not int and not (kind == "float" and type(value) is float):
            return [
                f"Value {value} for '{variable}' expected to be {'an integer' if kind == 'integer' else 'a numeric type'}."
            ]
        return _outside(variable, value, low, high)
    if kind == "multiselect" and not isinstance(value, list):
        return [f"'{variable}' value is expected to be a list."]
    chosen = value if kind == "multiselect" else [value]
    choices = question.get("choices", [])
    return [f"Value {item} for '{variable}' expected to be one of {choices}." for item in chosen if item not in choices]


def _outside(variable: str, size: float, low: int | None, high: int | None) -> list[str]:
    if low is not None and size < low:
        return [f"'{variable}' value is too small (must be at least {low})."]
    return (
        [f"'{variable}' value is too large (must be no more than {high})."] if high is not None and size > high else []
    )


def credential_type_problems(kind: Any, inputs: Any, injectors: Any) -> list[str]:
    """Return what AWX refuses in a custom credential type."""
    problems = [] if kind in ("cloud", "net") else [f"kind {kind!r} is not cloud or net"]
    if not isinstance(inputs, dict) or inputs.keys() - {"fields", "required"}:
        return [*problems, "inputs has other keys than fields and required"]
    fields: list[dict[str, Any]] = inputs.get("fields", [])
    names: list[str] = []
    for field in fields:
        problems += [f"inputs: {problem}" for problem in _input_problems(field)]
        names.append(str(field.get("id")))
    problems += [f"inputs: the field {name} is declared twice" for name in set(names) if names.count(name) > 1]
    problems += [
        f"inputs: required names {name}, which is not a field"
        for name in inputs.get("required", [])
        if name not in names
    ]
    return [*problems, *_injector_problems(injectors, names)]


def _input_problems(field: dict[str, Any]) -> Iterator[str]:
    name = field.get("id")
    if (
        not isinstance(name, str)
        or not _VARIABLE.fullmatch(name)
        or name == "tower"
        or not isinstance(field.get("label"), str)
    ):
        yield f"{name!r} has no valid id or no label"
    if unknown := field.keys() - _INPUT_KEYS:
        yield f"{name} has unknown keys {sorted(unknown)}"
    kind = field.get("type", "string")
    if kind not in ("string", "boolean"):
        yield f"{name} has the unknown type {kind}"
    elif kind == "boolean" and field.keys() & {"choices", "multiline", "format", "secret"}:
        yield f"{name} is a boolean with keys of a string"
    if "default" in field and not isinstance(field["default"], {"string": str, "boolean": bool}.get(kind, str)):
        yield f"{name} has a default of another type"
    # AWX shows such a value to everybody who may read the credential.
    if re.search("password|secret|token|key$|kubeconfig", str(name)) and not field.get("secret"):
        yield f"{name} is a secret, but not declared as one"


def _injector_problems(injectors: Any, names: list[str]) -> Iterator[str]:
    if not isinstance(injectors, dict) or injectors.keys() - {"file", "env", "extra_vars"}:
        yield "injectors has other keys than file, env and extra_vars"
        return
    files = list(injectors.get("file", {}))
    yield from (
        f"injectors: the file {name} is not template or template.NAME" for name in files if not _FILE.fullmatch(name)
    )
    if "template" in files and len(files) > 1:
        yield "injectors: several files need names (template.NAME)"
    for name, value in injectors.get("env", {}).items():
        if not _VARIABLE.fullmatch(name) or name.startswith("ANSIBLE_") or name in _RESERVED_ENVIRONMENT:
            yield f"injectors: the environment variable {name} is not allowed"
        if not isinstance(value, str) or not value.isascii():
            yield f"injectors: the value of {name} is not ASCII text"
    for name, value in injectors.get("extra_vars", {}).items():
        if not _EXTRA_VARIABLE.fullmatch(name) or not isinstance(value, (str, list, dict)):
            yield f"injectors: the extra variable {name} is not text, a list or a map"
    filename: Any = "FILE" if "template" in files else {name.partition(".")[2]: "FILE" for name in files}
    context = {**dict.fromkeys(names, "EXAMPLE"), "tower": {"filename": filename}}
    for kind in ("file", "env", "extra_vars"):
        for name, template in injectors.get(kind, {}).items():
            try:
                render(str(template), context)
            except jinja2.TemplateError as error:
                yield f"injectors: {kind}.{name}: {error}"


def render(template: str, context: dict[str, Any]) -> str:
    """Render a template of an injector."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined)
    return str(environment.from_string(template).render(context))


def schedule_problems(rule: str) -> list[str]:
    """Return what AWX refuses in the rule of a schedule."""
    problems = []
    starts = re.findall(r"DTSTART(?:;[^:]+)?:[0-9]+T[0-9]+Z?", rule)
    if len(starts) != 1:
        problems.append("the rule needs one DTSTART")
    elif ";TZID=" not in starts[0] and not starts[0].endswith("Z"):
        problems.append("DTSTART is naive: it needs a TZID, or Z at its end")
    zone = re.search(r";TZID=([^:]+):", rule)
    if zone and zone[1] not in zoneinfo.available_timezones():
        problems.append(f"the TZID {zone[1]} is unknown")
    rules = re.findall(r"RULE:(\S*)", rule)
    if not rules:
        problems.append("the rule needs one RRULE")
    for each in rules:
        if "INTERVAL" not in each:
            problems.append("the rule needs an INTERVAL")
        if "SECONDLY" in each or re.search(r"BYDAY=[0-9]", each) or ("COUNT" in each and "UNTIL" in each):
            problems.append(f"the rule {each} is not supported")
    return problems
