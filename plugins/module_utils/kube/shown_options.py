# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prepares a module's options for logs and results, without kubeconfigs, Helm values and other secrets (pure)."""

from __future__ import annotations

import typing as t

from ..catalog import secrets
from ..schema.messages import quote
from ..schema.secret_values import secret_texts

Document = dict[str, t.Any]

# Helm values: options of helm_release with their aliases and fields of components in gpu_cluster.
_VALUES = ("release_values", "values", "initial_values")
_COMPONENTS = ("operator", "nfd")
# The variables of the inventory, in which an invalid value can be a misplaced secret.
_VARIABLES = ("gpu_cluster", "gpu_defaults", "gpu_pools")
# Options without no_log that may contain a secret.
_WITH_SECRETS = ("gpu_cluster", "proxy", "proxy_address", "host", "provider_spec", "nodegroups", *_VALUES)
_MIN_LENGTH = 4
_SECRET_KEYS = ("client-key-data", "client-certificate-data", "password", "token")


def shown_options(options: t.Mapping[str, t.Any]) -> Document:
    """The options, with `(not shown)` for Helm values and for a kubeconfig that is a dictionary."""
    shown = _hidden(options)
    if "gpu_cluster" in shown:
        shown["gpu_cluster"] = _shown_cluster(shown["gpu_cluster"])
    for name in _VARIABLES:
        if name in shown:
            shown[name] = _quotable(shown[name])
    if isinstance(shown.get("definitions"), list):
        shown["definitions"] = [_shown_object(item) for item in shown["definitions"]]
    return shown


def secrets_in(options: t.Mapping[str, t.Any]) -> set[str]:
    """The secrets in the options, to be masked: credentials of kubeconfigs, api_key, and strings in _WITH_SECRETS that look like secrets."""
    if not isinstance(options, dict):
        # The module fails with its own message in this case.
        return set()
    cluster = options.get("gpu_cluster")
    of_cluster = secrets_of(cluster.get("kubeconfig")) if isinstance(cluster, dict) else set()
    given = {name: options.get(name) for name in _WITH_SECRETS}
    token = {str(options["api_key"]).strip()} if options.get("api_key") else set()
    secrets = secrets_of(options.get("kubeconfig")) | of_cluster | _of_components(cluster) | secret_texts(given) | token
    # Masking short strings would hide parts of other strings.
    return {text for text in secrets if len(text) >= _MIN_LENGTH}


def secrets_of(kubeconfig: t.Any) -> set[str]:
    """All credentials of the users of a kubeconfig that is a dictionary."""
    users = kubeconfig.get("users") if isinstance(kubeconfig, dict) else None
    secrets: set[str] = set()
    for entry in users if isinstance(users, list) else ():
        user = entry.get("user") if isinstance(entry, dict) else None
        if isinstance(user, dict):
            # A token is sent without the white space around it.
            secrets |= {
                text for key in _SECRET_KEYS if user.get(key) for text in (str(user[key]), str(user[key]).strip())
            }
            # Also the tokens of an auth-provider, and the variables and arguments of an exec plugin.
            secrets |= secret_texts(user)
    return secrets


def _of_components(cluster: t.Any) -> set[str]:
    """Strings in the fields of a component, or in place of the component, that look like secrets; none of these fields needs a secret."""
    component_secrets: set[str] = set()
    for part in _COMPONENTS if isinstance(cluster, dict) else ():
        component = cluster.get(part)
        texts = component.values() if isinstance(component, dict) else [component]
        component_secrets |= {text for text in texts if isinstance(text, str) and not secrets.is_quotable(text)}
    return component_secrets


def _quotable(value: t.Any) -> t.Any:
    """The value, with descriptions instead of strings that may be secrets."""
    if isinstance(value, dict):
        return {key: _quotable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_quotable(item) for item in value]
    return quote(value) if isinstance(value, str) and not secrets.is_quotable(value) else value


def _shown_cluster(cluster: t.Any) -> t.Any:
    """gpu_cluster without the kubeconfig and the Helm values."""
    if not isinstance(cluster, dict):
        return cluster
    shown = _hidden(cluster)
    for part in _COMPONENTS:
        component = cluster.get(part)
        if isinstance(component, dict) and component.get("values"):
            shown[part] = {**component, "values": secrets.NOT_SHOWN}
        elif component and not isinstance(component, dict):
            shown[part] = secrets.NOT_SHOWN
    return shown


def _shown_object(item: t.Any) -> t.Any:
    """A Kubernetes object, without the data if it is a Secret."""
    if not isinstance(item, dict):
        return item
    if isinstance(item.get("items"), list):
        return {**item, "items": [_shown_object(inner) for inner in item["items"]]}
    if item.get("kind") != "Secret":
        return item
    return {**item, **{key: secrets.NOT_SHOWN for key in ("data", "stringData") if item.get(key)}}


def _hidden(document: t.Mapping[str, t.Any]) -> Document:
    hidden = [key for key in _VALUES if document.get(key)]
    hidden += ["kubeconfig"] if isinstance(document.get("kubeconfig"), dict) else []
    return {**document, **dict.fromkeys(hidden, secrets.NOT_SHOWN)}
