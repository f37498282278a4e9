# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variable gpu_awx, in which a user describes what AWX offers: its keys, their defaults, and all problems in it at once (pure).

A new key needs a field with its `doc` here, its use in objects.py, and its use in the tasks of the role awx. `make docs` writes the reference.
"""

from __future__ import annotations

import datetime
import functools
import json
import re
import typing as t
import zoneinfo
from collections import Counter

from ...module_utils.catalog.secrets import address_holds_a_secret
from ...module_utils.core.errors import InvalidOptions
from ...module_utils.core.messages import abbreviate, field_path, join_words, quote, type_name
from ...module_utils.core.types import (
    Anything,
    Boolean,
    Choice,
    Field,
    ListOf,
    MapOf,
    Section,
    Text,
    integer_between,
    seconds,
)
from .credential_types import ALTERNATIVES, CREDENTIAL_TYPES
from .operations import DEFAULT, OPERATIONS, STEPS, Operation

# The configuration that each type needs (init_parameters in awx/main/notifications of AWX 24.6.1). AWX has a default for all other keys.
_NOTIFICATIONS: dict[str, dict[str, type]] = {
    "awssns": {},
    "email": {
        "host": str, "port": int, "username": str, "password": str, "use_tls": bool, "use_ssl": bool, "sender": str, "recipients": list,
    },
    "grafana": {"grafana_url": str, "grafana_key": str},
    "irc": {"server": str, "port": int, "nickname": str, "password": str, "use_ssl": bool, "targets": list},
    "mattermost": {"mattermost_url": str, "mattermost_no_verify_ssl": bool},
    "pagerduty": {"subdomain": str, "token": str, "service_key": str, "client_name": str},
    "rocketchat": {"rocketchat_url": str, "rocketchat_no_verify_ssl": bool},
    "slack": {"token": str, "channels": list},
    "twilio": {"account_sid": str, "account_token": str, "from_number": str, "to_numbers": list},
    "webhook": {"url": str, "headers": dict},
}  # fmt: skip
_EVENTS = ("started", "success", "error", "approvals")
_FREQUENCIES = ("minutely", "hourly", "daily", "weekly", "monthly")
_START = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}")
_SSH_USER = re.compile(r"^(ssh://)[^:@/]+@")
_MAX_SLICES = 100
_MAX_FORKS = 200
# The lengths of AWX's columns (awx/main/models at 24.6.1). A prefix stands before the longest words that a name may have.
_MAX_NAME = 512
_MAX_USERNAME = 150
_MAX_BRANCH = 256
_MAX_PREFIX = _MAX_NAME - 64


def _at_most(longest: int) -> t.Callable[[str], str | None]:
    def rule(value: str) -> str | None:
        return f"has {len(value)} characters; the limit of AWX is {longest}" if len(value) > longest else None

    return rule


def _free_of_separators(value: str) -> str | None:
    """`++` is a named URL for awx.awx, and the names are sent as a list with commas."""
    if "," in value or "++" in value:
        return "contains a comma or ++, which have a meaning in requests to AWX; use another name"
    return None


def _name_of_an_object(value: str) -> str | None:
    """awx.awx takes digits for an ID. AWX removes spaces at the ends, so that the next run would look for another name."""
    if value.isdigit():
        return "consists of digits, which awx.awx takes for an ID; use a name with a letter"
    if value != value.strip():
        return "begins or ends with a space, which AWX removes; remove it"
    return _free_of_separators(value)


def _address_without_login(value: str) -> str | None:
    # The user of SSH is no secret.
    if address_holds_a_secret(_SSH_USER.sub(r"\1", value)):
        return "contains a login, which AWX shows to everybody who may read the project; use project.credential"
    return None


def _path_in_the_project(value: str) -> str | None:
    if value.startswith("/") or ".." in value.split("/"):
        return "is not a path in the project; write it without a leading slash and without .."
    return None


def _start(value: str) -> str | None:
    if _START.fullmatch(value):
        try:
            datetime.datetime.strptime(value, "%Y-%m-%d %H:%M")
        except ValueError:
            return "does not exist in the calendar"
        return None
    return "is not a time; write it as YYYY-MM-DD HH:MM, without seconds"


@functools.cache
def _timezones() -> frozenset[str]:
    """The names of all time zones, which are read from many files."""
    return frozenset(zoneinfo.available_timezones())


def _timezone(value: str) -> str | None:
    # AWX refuses other names.
    return None if value in _timezones() else "is not the name of a time zone; use one such as Europe/Zurich or UTC"


def _name(default: str | None = None, **more: t.Any) -> Text:
    return Text((_name_of_an_object, _at_most(_MAX_NAME)), default=default, **more)


def _count(high: int, default: int, doc: str) -> Field:
    return integer_between(1, high, "the minimum is 1", f"the maximum is {high}", default=default, doc=doc)


def _people(doc: str) -> Section:
    return Section(
        doc=doc,
        fields={
            "teams": ListOf(doc="Names of teams, which are created without members.", item=_name()),
            "users": ListOf(
                doc="Names of users, who must exist.", item=Text((_name_of_an_object, _at_most(_MAX_USERNAME)))
            ),
        },
    )


_SCHEDULED = tuple(name for name, operation in OPERATIONS.items() if operation.scheduled)


def _schedule(operation: Operation) -> Section:
    return Section(
        default=None,
        doc=f"When the operation runs. {operation.purpose}",
        fields={
            "frequency": Choice(doc="The unit of C(interval).", known=_FREQUENCIES, default="daily"),
            "interval": _count(1000, 1, "Every how many units it runs."),
            "start": Text(
                (_start,),
                doc="The first time, as YYYY-MM-DD HH:MM.",
                required=True,
                missing="set the first time as YYYY-MM-DD HH:MM",
            ),
            "timezone": Text((_timezone,), doc="The time zone of C(start), such as Europe/Zurich.", default="UTC"),
            "answers": MapOf(
                doc="Answers to the questions of the survey, by variable.", item=Text(empty=True), default={}
            ),
        },
    )


_REQUIRED: dict[str, t.Any] = {"required": True, "missing": "set a name"}
SETTINGS = Section(
    fields={
        "organization": _name("GPU clusters", doc="The organization of all objects."),
        "galaxy_credentials": ListOf(
            doc="The organization's credentials for Galaxy or Automation Hub. Needed only if the project installs the collection.", item=_name()
        ),
        "prefix": Text(
            (_free_of_separators, _at_most(_MAX_PREFIX)),
            doc="The first words of the names of templates.", default="GPU ", empty=True, blank_is_unset=False,
        ),
        "execution_environment": Section(
            doc="The execution environment of all jobs.",
            fields={
                "name": _name("accel.gpu", doc="Its name."),
                "image": Text(doc="The image. Without it, the execution environment must exist."),
                "credential": _name(doc="The credential of the image's registry."),
                "pull": Choice(doc="When AWX pulls the image.", known=("always", "missing", "never"), default="missing"),
            }
        ),
        "project": Section(
            required=True,
            doc="The project with the playbooks, the inventory and the pools.",
            missing="set project.url, the URL of the Git repository that contains the files of examples/awx/project",
            fields={
                "name": _name("accel.gpu", doc="Its name."),
                "url": Text(
                    (_address_without_login,),
                    doc="The URL of the Git repository that contains the files of C(examples/awx/project).",
                    quotes_text=False,
                    required=True,
                    missing="set the URL of the Git repository that contains the files of examples/awx/project",
                ),
                "branch": Text((_at_most(_MAX_BRANCH),), doc="The branch. By default, that of the repository.", default="", empty=True),
                "credential": _name(doc="The credential for the repository."),
                "update_on_launch": Boolean(
                    doc="Whether AWX syncs the project before each job. With V(false), a plan and the approved run have the same revision.", default=False
                ),
            }
        ),
        "inventory": Section(
            doc="The inventory, in which each host is a cluster.",
            fields={
                "name": _name("GPU clusters", doc="Its name."),
                "update_on_launch": Boolean(doc="Whether AWX updates the sources before each job.", default=True),
                "sources": ListOf(
                    doc="The sources of the inventory.",
                    item=Section(
                        fields={
                            "name": _name(doc="Its name.", **_REQUIRED),
                            "path": Text(
                                (_path_in_the_project,),
                                doc="The path of an inventory file in the project.", required=True, missing="set the path of an inventory file in the project",
                            ),
                            "credential": _name(doc="The credential of the cloud whose clusters the file lists."),
                        }
                    )
                ),
            }
        ),
        "credentials": ListOf(
            doc="The credentials of the jobs. A job gets one of each type, and reads only one of V(kubernetes) and V(kubeconfig), and of V(openstack) and "
            "V(clouds).",
            item=Section(
                fields={
                    "name": _name(doc="Its name.", **_REQUIRED),
                    "type": Choice(
                        doc="Its type.", known=tuple(CREDENTIAL_TYPES), required=True, missing=f"set one of {', '.join(CREDENTIAL_TYPES)}"
                    ),
                    "inputs": Anything(
                        doc="Its contents, by the names of the type's inputs. Without them, the credential must exist in AWX.",
                        blank_is_unset=True, quotes_text=False,
                    ),
                    "operations": ListOf(
                        doc="The operations whose job templates get it, for example V(plan) and V(report) for one that may only read. By default, all that "
                        "use its type.",
                        item=Choice(known=tuple(OPERATIONS)),
                    ),
                }
            )
        ),
        "update_secrets": Boolean(
            doc="Whether a run sends the C(inputs) of credentials that exist, for example after a password was changed. AWX does not show them, so each such "
            "run changes every credential.",
            default=False,
        ),
        "operations": ListOf(
            doc="Names of playbooks. Each becomes a job template. By default, all that remove nothing.",
            item=Choice(known=tuple(OPERATIONS)), default=list(DEFAULT),
        ),
        "slices": _count(_MAX_SLICES, 1, "The number of jobs into which a job for several clusters is cut."),
        "forks": _count(_MAX_FORKS, 5, "The number of clusters that a job handles at the same time."),
        "operators": _people("Who runs operations. If there are approvers, operators run only operations that change nothing, and the workflow."),
        "approvers": _people(
            "Who approves the plan of the workflow, and runs all operations. Without this key, operators may run what changes clusters."
        ),
        "approval_timeout": seconds(doc="Seconds after which an approval is refused. V(0) waits forever.", default=0),
        "schedules": Section(
            doc="When operations that change nothing, or only new nodes, run.",
            fields={name: _schedule(OPERATIONS[name]) for name in _SCHEDULED},
            hints=dict.fromkeys(set(OPERATIONS) - set(_SCHEDULED), "it cannot be scheduled, because nobody would approve its changes"),
        ),
        "notifications": ListOf(
            doc="Messages about jobs and approvals.",
            item=Section(
                fields={
                    "name": _name(doc="Its name.", **_REQUIRED),
                    "type": Choice(doc="Its type.", known=tuple(_NOTIFICATIONS), required=True, missing="set a type, such as webhook"),
                    "configuration": Anything(
                        doc="AWX's configuration of this type.", quotes_text=False, required=True, missing="set AWX's configuration of this type"
                    ),
                    "events": ListOf(doc="What is reported.", item=Choice(known=_EVENTS), default=["error", "approvals"]),
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
    problems = problems or list(_contradictions(settings, declared_approvers=bool(coerced.get("approvers"))))
    if problems:
        raise InvalidOptions(problems, "Invalid settings for AWX; nothing was sent:")
    return settings


def _contradictions(settings: dict[str, t.Any], *, declared_approvers: bool) -> t.Iterator[str]:
    """The problems that several keys have together."""
    operations = settings["operations"]
    for path, names in (
        ("credentials", [entry["name"] for entry in settings["credentials"]]),
        ("notifications", [entry["name"] for entry in settings["notifications"]]),
        ("inventory.sources", [entry["name"] for entry in settings["inventory"]["sources"]]),
        ("operations", operations),
        ("galaxy_credentials", settings["galaxy_credentials"]),
        *(
            (f"{people}.{kind}", settings[people][kind])
            for people in ("operators", "approvers")
            for kind in ("teams", "users")
        ),
    ):
        for name, number in Counter(names).items():
            if number > 1:
                yield f"gpu_awx.{path}: {quote(name)} is declared {number} times; remove all but one"
    yield from _credentials_of_one_job(settings)
    for index, entry in enumerate(settings["credentials"]):
        yield from _input_problems(f"gpu_awx.credentials[{index}].inputs", entry)
    for index, entry in enumerate(settings["notifications"]):
        yield from _configuration_problems(f"gpu_awx.notifications[{index}].configuration", entry)
    for name, schedule in settings["schedules"].items():
        for variable in schedule["answers"]:
            if variable not in OPERATIONS[name].questions:
                yield (
                    f"{field_path(f'gpu_awx.schedules.{name}.answers', variable)}: is not a question of the survey; known: "
                    f"{', '.join(OPERATIONS[name].questions) or 'none'}"
                )
        if name not in operations:
            yield f"gpu_awx.schedules.{name}: has no job template; add {name} to gpu_awx.operations, or remove the schedule"
    if declared_approvers and not any(settings["approvers"].values()):
        yield "gpu_awx.approvers: names nobody, so operators could change clusters without an approval; name teams or users, or remove the key"
    missing = [step.playbook for step in STEPS if step.playbook not in operations]
    if missing and any(settings["approvers"].values()):
        yield (
            f"gpu_awx.approvers: the workflow needs the operations {join_words(missing)}, which gpu_awx.operations lacks; add them, or remove the "
            "approvers"
        )


def credentials_of(settings: dict[str, t.Any], operation: Operation) -> list[dict[str, t.Any]]:
    """Return the declared credentials that the jobs of an operation get: those of its types that are for all operations or for this one."""
    return [
        entry
        for entry in settings["credentials"]
        if entry["type"] in operation.credential_types
        and (not entry["operations"] or operation.playbook in entry["operations"])
    ]


def _credentials_of_one_job(settings: dict[str, t.Any]) -> t.Iterator[str]:
    """AWX gives a job at most one credential of a type, and a job reads only one of two ALTERNATIVES."""
    repeated: dict[str, list[str]] = {}
    alternatives: dict[tuple[str, str], list[str]] = {}
    for name in settings["operations"]:
        types = Counter(entry["type"] for entry in credentials_of(settings, OPERATIONS[name]))
        for kind, number in types.items():
            if number > 1:
                repeated.setdefault(kind, []).append(name)
        for pair in ALTERNATIVES:
            if set(pair) <= types.keys():
                alternatives.setdefault(pair, []).append(name)
    for kind, names in repeated.items():
        yield (
            f"gpu_awx.credentials: the operations {abbreviate(names)} get several credentials of the type {kind}, but AWX gives a job one credential of a "
            "type. Keep one, or set operations of each. The type clouds contains several OpenStack projects, and the type kubeconfig several clusters"
        )
    for (kind, several), names in alternatives.items():
        yield (
            f"gpu_awx.credentials: the operations {abbreviate(names)} get the types {kind} and {several}, but a job reads only one of them. Keep {several}, "
            "and add to it what the other one provides, or set operations of each"
        )


def _input_problems(path: str, entry: dict[str, t.Any]) -> t.Iterator[str]:
    """Without inputs, the credential exists already; AWX itself checks the fields of its own types. No message shows a value."""
    custom, inputs = CREDENTIAL_TYPES[entry["type"]], entry.get("inputs")
    if inputs is None:
        return
    for name, value in inputs.items():
        if not isinstance(name, str):
            yield f"{path}: keys must be strings, but {quote(name)} is {type_name(name)}"
        elif isinstance(value, str) and "\0" in value:
            yield f"{field_path(path, name)}: contains the character U+0000, which AWX cannot store; remove it"
    if not custom.is_custom:
        return
    known = [field["id"] for field in custom.inputs]
    for name, value in inputs.items():
        if name not in known:
            yield f"{field_path(path, name)}: is not an input of the type {entry['type']}; known: {', '.join(known)}"
        elif not isinstance(value, str):
            yield f"{field_path(path, name)}: is {type_name(value)}, not a string; put it in quotes"
    for name in custom.required:
        if inputs.get(name) in (None, ""):
            yield f"{path}.{name}: is missing; the type {entry['type']} needs it"


_WORDS = {str: "a string", int: "a whole number", bool: "a boolean", list: "a list", dict: "a map"}


def _configuration_problems(path: str, entry: dict[str, t.Any]) -> t.Iterator[str]:
    if "\\u0000" in json.dumps(entry["configuration"], default=str):
        yield f"{path}: contains the character U+0000, which AWX cannot store; remove it"
    for name, kind in _NOTIFICATIONS[entry["type"]].items():
        value = entry["configuration"].get(name)
        if value is None:
            yield f"{path}.{name}: is missing; the type {entry['type']} needs it"
        # A boolean is a number in Python.
        elif not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            yield f"{path}.{name}: is {type_name(value)}, not {_WORDS[kind]}"
        elif kind is list and not value:
            yield f"{path}.{name}: has no element"
