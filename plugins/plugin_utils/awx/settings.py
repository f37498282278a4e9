# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variable gpu_awx, in which a user describes what AWX offers: its keys, their defaults, and all problems in it at once (pure).

A new key needs a field here, its use in objects.py, and a row in the README of the role awx.
"""

from __future__ import annotations

import re
import typing as t
import zoneinfo
from collections import Counter

from ...module_utils.core.errors import InvalidOptions
from ...module_utils.core.messages import join_words, quote
from ...module_utils.core.types import (
    Anything,
    Boolean,
    Choice,
    Field,
    ListOf,
    Section,
    Text,
    integer_between,
    seconds,
)
from .credential_types import ALTERNATIVES, CREDENTIAL_TYPES
from .operations import DEFAULT, OPERATIONS, WORKFLOW

# From AWX's documentation of notification types; awx.awx accepts these.
_NOTIFICATIONS = (
    "awssns",
    "email",
    "grafana",
    "irc",
    "mattermost",
    "pagerduty",
    "rocketchat",
    "slack",
    "twilio",
    "webhook",
)
_EVENTS = ("started", "success", "error", "approvals")
_FREQUENCIES = ("minutely", "hourly", "daily", "weekly", "monthly")
_START = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}")
_MAX_SLICES = 100
_MAX_FORKS = 200


def _name_of_an_object(value: str) -> str | None:
    """awx.awx takes digits for an ID and `++` for a named URL, and the names are sent as a list with commas."""
    if value.isdigit():
        return "consists of digits, which awx.awx takes for an ID; use a name with a letter"
    if "," in value or "++" in value:
        return "contains a comma or ++, which have a meaning in requests to AWX; use another name"
    return None


def _start(value: str) -> str | None:
    return None if _START.fullmatch(value) else "is not a time; write it as YYYY-MM-DD HH:MM, without seconds"


def _timezone(value: str) -> str | None:
    # AWX refuses other names.
    return (
        None
        if value in zoneinfo.available_timezones()
        else "is not the name of a time zone; use one such as Europe/Zurich or UTC"
    )


def _name(default: str | None = None, **more: t.Any) -> Text:
    return Text((_name_of_an_object,), default=default, **more)


def _count(high: int, default: int) -> Field:
    return integer_between(1, high, "the minimum is 1", f"the maximum is {high}", default=default)


_PEOPLE = Section(fields={"teams": ListOf(item=_name()), "users": ListOf(item=_name())})
_SCHEDULED = tuple(name for name, operation in OPERATIONS.items() if operation.scheduled)
_SCHEDULE = Section(
    default=None,
    fields={
        "frequency": Choice(known=_FREQUENCIES, default="daily"),
        "interval": _count(1000, 1),
        "start": Text((_start,), required=True, missing="set the first time as YYYY-MM-DD HH:MM"),
        "timezone": Text((_timezone,), default="UTC"),
    },
)
_REQUIRED: dict[str, t.Any] = {"required": True, "missing": "set a name"}
SETTINGS = Section(
    fields={
        "organization": _name("GPU clusters"),
        "galaxy_credentials": ListOf(item=_name()),
        "prefix": Text(default="GPU ", empty=True, blank_is_unset=False),
        "execution_environment": Section(
            fields={
                "name": _name("accel.gpu"),
                "image": Text(),
                "credential": _name(),
                "pull": Choice(known=("always", "missing", "never"), default="missing"),
            }
        ),
        "project": Section(
            required=True,
            missing="set project.url, the URL of the Git repository that contains the files of examples/awx/project",
            fields={
                "name": _name("accel.gpu"),
                "url": Text(required=True, missing="set the URL of the Git repository that contains the files of examples/awx/project"),
                "branch": Text(default="", empty=True),
                "credential": _name(),
                "update_on_launch": Boolean(default=False),
            }
        ),
        "inventory": Section(
            fields={
                "name": _name("GPU clusters"),
                "update_on_launch": Boolean(default=True),
                "sources": ListOf(
                    item=Section(
                        fields={
                            "name": _name(**_REQUIRED),
                            "path": Text(required=True, missing="set the path of an inventory file in the project"),
                            "credential": _name(),
                        }
                    )
                ),
            }
        ),
        "credentials": ListOf(
            item=Section(
                fields={
                    "name": _name(**_REQUIRED),
                    "type": Choice(known=tuple(CREDENTIAL_TYPES), required=True, missing=f"set one of {', '.join(CREDENTIAL_TYPES)}"),
                    "inputs": Anything(blank_is_unset=True),
                }
            )
        ),
        "operations": ListOf(item=Choice(known=tuple(OPERATIONS)), default=list(DEFAULT)),
        "slices": _count(_MAX_SLICES, 1),
        "forks": _count(_MAX_FORKS, 5),
        "operators": _PEOPLE,
        "approvers": _PEOPLE,
        "approval_timeout": seconds(default=0),
        "schedules": Section(
            fields=dict.fromkeys(_SCHEDULED, _SCHEDULE),
            hints=dict.fromkeys(set(OPERATIONS) - set(_SCHEDULED), "it cannot be scheduled, because nobody would approve its changes"),
        ),
        "notifications": ListOf(
            item=Section(
                fields={
                    "name": _name(**_REQUIRED),
                    "type": Choice(known=_NOTIFICATIONS, required=True, missing="set a type, such as webhook"),
                    "configuration": Anything(required=True, missing="set AWX's configuration of this type"),
                    "events": ListOf(item=Choice(known=_EVENTS), default=["error", "approvals"]),
                }
            )
        ),
    }
)  # fmt: skip


def read_settings(declared: t.Any) -> dict[str, t.Any]:
    """Return gpu_awx with the defaults filled in; raise InvalidOptions with all problems."""
    coerced = SETTINGS.coerce(declared)
    problems = list(SETTINGS.problems(coerced, "gpu_awx"))
    settings: dict[str, t.Any] = {} if problems else SETTINGS.complete(coerced)
    problems = problems or list(_contradictions(settings))
    if problems:
        raise InvalidOptions(problems, "Invalid settings for AWX; nothing was sent:")
    return settings


def _contradictions(settings: dict[str, t.Any]) -> t.Iterator[str]:
    """The problems that several keys have together."""
    operations = settings["operations"]
    for path, names in (
        ("credentials", [entry["name"] for entry in settings["credentials"]]),
        ("notifications", [entry["name"] for entry in settings["notifications"]]),
        ("inventory.sources", [entry["name"] for entry in settings["inventory"]["sources"]]),
        ("operations", operations),
    ):
        for name, number in Counter(names).items():
            if number > 1:
                yield f"gpu_awx.{path}: {quote(name)} is declared {number} times; remove all but one"
    # AWX gives a job at most one credential of a type.
    types = Counter(entry["type"] for entry in settings["credentials"])
    for kind, number in types.items():
        if number > 1:
            yield (
                f"gpu_awx.credentials: has {number} credentials of the type {kind}, but AWX gives a job one credential of a type. Keep one; use the type "
                "clouds for several OpenStack projects, and the type kubeconfig for several clusters"
            )
    for kind, several in ALTERNATIVES:
        if kind in types and several in types:
            yield (
                f"gpu_awx.credentials: has the types {kind} and {several}, but a job reads only one of them. Keep {several}, and add to it what the other "
                "one provides"
            )
    for index, entry in enumerate(settings["credentials"]):
        yield from _input_problems(f"gpu_awx.credentials[{index}].inputs", entry)
    for name in settings["schedules"]:
        if name not in operations:
            yield f"gpu_awx.schedules.{name}: has no job template; add {name} to gpu_awx.operations, or remove the schedule"
    missing = [name for name in WORKFLOW if name not in operations]
    if missing and any(settings["approvers"].values()):
        yield (
            f"gpu_awx.approvers: the workflow needs the operations {join_words(missing)}, which gpu_awx.operations lacks; add them, or remove the "
            "approvers"
        )


def _input_problems(path: str, entry: dict[str, t.Any]) -> t.Iterator[str]:
    custom, inputs = CREDENTIAL_TYPES[entry["type"]], entry.get("inputs")
    if inputs is None or not custom.is_custom:
        # Without inputs, the credential exists already; AWX itself checks its own types.
        return
    known = [field["id"] for field in custom.inputs]
    for name in inputs:
        if name not in known:
            yield f"{path}.{name}: is not an input of the type {entry['type']}; known: {', '.join(known)}"
    for name in custom.required:
        if not inputs.get(name):
            yield f"{path}.{name}: is missing; the type {entry['type']} needs it"
