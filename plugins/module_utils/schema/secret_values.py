# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds plain-text secrets in values; provides their paths for messages, the secrets for masking, and checks of variables (pure)."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ..catalog import secrets
from ..common.nested import get_nested
from .types import Document, PoolVariables, Problems

# One line of a configuration file, an environment file or an argument: `name: value`, `name=value`, `--name=value`.
_SETTING = re.compile(
    r"^\s*(?:-\s+|--?|export\s+)?[\"']?(?P<name>[A-Za-z_][\w.-]*)[\"']?\s*[:=]\s*[\"']?(?P<value>[^\s\"'#]+)"
)
_SIMPLE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# In charts, the value of `secret`, `existingSecret` or `pullSecret` is the name of a Secret.
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
# In charts, the value of `passwordSecretKey` is the key of an entry of a Secret, such as `password` or `tls.key`.
_ENTRY_NAME = re.compile(r"[a-z][a-z._-]{0,30}")


@dataclass(frozen=True)
class SecretValue:
    """One secret: its path, its description, and the value, which must never be shown."""

    path: str
    description: str
    value: str = field(repr=False)


def find_secrets(value: t.Any, path: str = "", name: str = "") -> t.Iterator[SecretValue]:
    """Every secret in a value; `path` is the path of the value, and the beginning of each secret's path.

    `name` is the name that describes a string: its key, the key of the list around it, or the `name` of a variable.
    """
    if isinstance(value, dict):
        yield from _in_map(value, path, name)
    elif isinstance(value, (list, tuple)):
        yield from _in_list(value, path, name)
    elif isinstance(value, str):
        description = _describe(value, name)
        if description:
            yield SecretValue(path, description, value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and secrets.names_a_password(name):
        yield SecretValue(path, "a password", str(value))


def secret_texts(document: t.Any) -> set[str]:
    """The secrets themselves, for masking."""
    return {secret.value for secret in find_secrets(document)}


def without_secrets(document: t.Any) -> tuple[t.Any, list[str]]:
    """A copy of a document without the fields that hold a secret, and the paths of these fields."""
    paths = [secret.path for secret in find_secrets(document)]
    return _without(document, "", frozenset(paths)), paths


def _in_map(value: t.Mapping[t.Any, t.Any], path: str, name: str) -> t.Iterator[SecretValue]:
    # Entries of Google Cloud's metadata have `key` and `value`.
    variable = value.get("name") or value.get("key")
    for key, item in value.items():
        item_path, item_name = _item_path(path, key), str(key)
        if item_name == "auth" and isinstance(item, str) and secrets.is_docker_auth(item):
            yield SecretValue(item_path, "the credentials of a registry", item)
            continue
        if item_name == "value" and isinstance(variable, str):
            # An environment variable, or a parameter, whose name is in the field next to it.
            item_name = variable
        elif _is_plural(name) and isinstance(item, str):
            # Every entry of `passwords: {alice: ...}` and `stringData: {...}` is a secret.
            item_name = name
        yield from find_secrets(item, item_path, item_name)


def _in_list(value: t.Sequence[t.Any], path: str, name: str) -> t.Iterator[SecretValue]:
    option = ""
    for index, item in enumerate(value):
        yield from find_secrets(item, f"{path}[{index}]", option or name)
        # In `["--token", "..."]`, the next argument is the value of the option.
        is_option = isinstance(item, str) and re.fullmatch(r"--?[A-Za-z][\w-]*", item)
        option = str(item) if is_option and secrets.names_a_secret(str(item)) else ""


def _describe(text: str, name: str) -> str | None:
    if secrets.is_reference(text):
        return None
    shape = secrets.shape_of(text)
    if shape:
        return shape
    words = secrets.words_of(name)
    if secrets.names_a_secret(name) and not (words[-2:] == ("secret", "key") and _ENTRY_NAME.fullmatch(text)):
        return f"a value for {words[-1]}"
    if words[-1:] == ("secret",) and not _OBJECT_NAME.fullmatch(text):
        return "a value that cannot be the name of a Secret"
    if secrets.suggests_a_secret(name) and secrets.looks_random(text):
        return "a long random value"
    return _setting(text)


def _setting(text: str) -> str | None:
    """Describe the first secret in this text, which is one argument or the lines of a file; None if there is none."""
    lines = text.splitlines()
    if len(lines) == 1 and not re.match(r"--?\w|[A-Z_]+=", text):
        return None
    for line in lines:
        match = _SETTING.match(line)
        if match and secrets.names_a_secret(match["name"]) and not secrets.is_reference(match["value"]):
            return f"a value for {secrets.words_of(match['name'])[-1]}"
    return None


def _is_plural(name: str) -> bool:
    """Whether every string in a map with this name is a secret."""
    words = secrets.words_of(name)
    return words[-2:] == ("string", "data") or bool({"passwords", "tokens"} & set(words[-1:]))


def _item_path(path: str, key: t.Any) -> str:
    if isinstance(key, str) and _SIMPLE_KEY.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f"{path}['{str(key)[:60]}']"


def _without(value: t.Any, path: str, left_out: frozenset[str]) -> t.Any:
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if _item_path(path, key) not in left_out}
        return {key: _without(item, _item_path(path, key), left_out) for key, item in kept.items()}
    if isinstance(value, (list, tuple)):
        paths = [f"{path}[{index}]" for index in range(len(value))]
        return [
            _without(item, item_path, left_out)
            for item, item_path in zip(value, paths, strict=True)
            # A variable whose value is removed is removed as a whole.
            if item_path not in left_out
            and not (isinstance(item, dict) and "name" in item and f"{item_path}.value" in left_out)
        ]
    return value


_OPERATOR = "gpu_cluster.operator.values"
_READABLE = "which other users could read"
# Helm stores values in records, charts copy them to objects that many users can read, and programs print them.
_IN_HELM = "which must not be in Helm values"


def secret_problems(value: t.Any, path: str, reason: str, remedy: str | t.Callable[[SecretValue], str]) -> Problems:
    """The message for each secret in a value; `reason` is a relative clause, and `remedy` says what to do."""
    for secret in find_secrets(value, path):
        text = remedy if isinstance(remedy, str) else remedy(secret)
        yield f"{secret.path}: contains a secret ({secret.description}; not shown), {reason}; {text}"


def cluster_secret_problems(cluster: Document) -> Problems:
    """Free-form values in gpu_cluster must not contain secrets."""
    for keys, reason, remedy in _CLUSTER_VALUES:
        yield from secret_problems(get_nested(cluster, *keys), ".".join(("gpu_cluster", *keys)), reason, remedy)


def pool_secret_problems(pool: PoolVariables) -> Problems:
    """Free-form values in a pool must not contain secrets."""
    for keys, reason, remedy in _POOL_VALUES:
        yield from secret_problems(get_nested(pool.merged, *keys), ".".join((pool.path, *keys)), reason, remedy)


def _helm_remedy(secret: SecretValue) -> str:
    if "registry" in secret.description or "docker" in secret.path.lower():
        return "create a Secret of type kubernetes.io/dockerconfigjson in the release's namespace and name it in gpu_cluster.operator.image_pull_secrets"
    if "licens" in secret.path.lower():
        return "store it in a Secret in the operator's namespace, and set driver.licensingConfig.secretName"
    if secret.path.startswith(f"{_OPERATOR}.driver."):
        return "store the variable in a Secret in the operator's namespace, and name the Secret in gpu_cluster.operator.driver.secret_env"
    return "store it in a Secret and reference the Secret (secretName, secretKeyRef, imagePullSecrets, or as the chart defines it)"


_IN_SUBSCRIPTION = "store it in a Secret in the operator's namespace, and reference the Secret in envFrom"

_Checked = tuple[tuple[str, ...], str, "str | t.Callable[[SecretValue], str]"]
# The keys whose values are checked, why they must not contain a secret, and what to do instead.
_CLUSTER_VALUES: tuple[_Checked, ...] = (
    (("operator", "values"), _IN_HELM, _helm_remedy),
    (("nfd", "values"), _IN_HELM, _helm_remedy),
    (("operator", "olm", "subscription_config"), _READABLE, _IN_SUBSCRIPTION),
    (("nfd", "olm", "subscription_config"), _READABLE, _IN_SUBSCRIPTION),
    (("autoscaler", "values"), _READABLE, "remove it"),
)
_POOL_VALUES: tuple[_Checked, ...] = (
    # Every user of the machine can read a command line, and the role new_nodes stores the command in a ConfigMap.
    (("rollout", "reboot", "command"), _READABLE, "have the application read it from a file"),
)
