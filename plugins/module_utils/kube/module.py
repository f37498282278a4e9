# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base class of modules that talk to a cluster."""

from __future__ import annotations

import functools
import os
import typing as t

from ansible.module_utils.basic import missing_required_lib

from ..catalog import secrets
from ..catalog.names import LEASE_NAMESPACE
from ..core.errors import InvalidOptions
from ..core.messages import diff_of, quote
from ..core.module import ArgumentSpec, BaseModule, merge_specs
from ..core.types import RENAMED_FROM, lease_settings, renaming_problems, secret_texts, to_names
from .connection_options import (
    CONNECTION,
    ConnectionOptions,
    ignored_variables,
    is_kubeconfig_text,
    secret_variables,
)
from .errors import ApiError
from .lease import RECORD, ClusterIdentity, Lease, holder_of
from .objects import ExpectedObjects

if t.TYPE_CHECKING:
    from ..core.errors import ServiceError
    from ..core.values import Object
    from .client import Client

# Prepares a module's options for logs and results, without kubeconfigs, Helm values and other secrets (pure).

# The names of Helm values: options of helm_release with their aliases, and fields of components in gpu_cluster.
_VALUES = ("release_values", "values", "initial_values")
_COMPONENTS = ("operator", "nfd")
# The variables of the inventory, in which an invalid value can be a misplaced secret.
_VARIABLES = ("gpu_cluster", "gpu_defaults", "gpu_pools")
# Options without no_log that may contain a secret.
_WITH_SECRETS = ("gpu_cluster", "proxy", "proxy_address", "host", "provider_spec", "nodegroups", *_VALUES)
_MIN_LENGTH = 4
_SECRET_KEYS = ("client-key-data", "client-certificate-data", "password", "token")


def shown_options(options: t.Mapping[str, t.Any]) -> Object:
    """The options, with `(not shown)` for Helm values and for the content of a kubeconfig."""
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


def _hidden(document: t.Mapping[str, t.Any]) -> Object:
    hidden = [key for key in _VALUES if document.get(key)]
    kubeconfig = document.get("kubeconfig")
    hidden += ["kubeconfig"] if isinstance(kubeconfig, dict) or is_kubeconfig_text(kubeconfig) else []
    return {**document, **dict.fromkeys(hidden, secrets.NOT_SHOWN)}


# Base classes of the Kubernetes modules, which provide the connection options, the client and the lease.

EXPECTED: ArgumentSpec = {
    "expected": {
        "type": "dict",
        "options": {
            "namespaces": {"type": "list", "elements": "str", "default": []},
            "kinds": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "api_version": {"type": "str", "required": True},
                    "kind": {"type": "str", "required": True},
                },
            },
        },
    },
}
WAIT: ArgumentSpec = {
    "wait": {"type": "bool", "default": True},
    "wait_timeout": {"type": "int", "default": 600},
    "wait_sleep": {"type": "int", "default": 2},
}
LEASE_OPTIONS: ArgumentSpec = {
    "lease_wait_timeout": {"type": "int"},
    "lease_namespace": {"type": "str", "default": LEASE_NAMESPACE},
}


class ClusterModule(BaseModule):
    """A module with connection options; provides the client, the identity of the cluster, and the lease."""

    # Whether acquiring the lease records gpu_cluster.name in the cluster.
    records_name = True
    _client: Client | None = None
    _verified = False

    @property
    def kube_params(self) -> dict[str, t.Any]:
        """The options of the connection and the lease."""
        return self.params

    def name_to_confirm(self) -> str:
        """The name in gpu_cluster, which the cluster's record must not contradict; without it, the name of the cluster in the kubeconfig."""
        name = (self.kube_params.get("gpu_cluster") or {}).get("name")
        return str(name or (self._client.connection.cluster_name if self._client else None) or "")

    def secrets(self) -> set[str]:
        """The credentials in kubeconfigs and in the environment, and strings in other options that look like secrets."""
        return super().secrets() | secrets_in(self.kube_params) | secret_variables(os.environ)

    @property
    def client(self) -> Client:
        """The client of the cluster, whose identity is verified; raises WrongCluster, ConnectionProblem or ApiError."""
        if self._client is None:
            self._client = self._connect()
        if not self._verified:
            self.identity.verify()
            self._verified = True
        return self._client

    def _connect(self) -> Client:
        # Imported here because the import takes half a second, and most runs of cloud modules drain no nodes.
        from .client import Client
        from .connection import KUBERNETES_IMPORT_ERROR, check_cluster

        if KUBERNETES_IMPORT_ERROR is not None:
            self.fail_json(msg=missing_required_lib("kubernetes"), exception=KUBERNETES_IMPORT_ERROR)
        cluster = self.kube_params["gpu_cluster"] or {}
        if "lease_wait_timeout" in self.kube_params:
            # An invalid value fails here, before any request.
            self._lease_settings()
        if problems := list(renaming_problems(cluster, self._renamed_from())):
            raise InvalidOptions(problems)
        client = Client(ConnectionOptions.from_params(self.kube_params, cluster), self.user_agent)
        if cluster.get("name"):
            name, kube_name = str(cluster["name"]), cluster.get("kube_name")
            check_cluster(client.connection, name, kube_name if kube_name != name else None)
        return client

    @functools.cached_property
    def identity(self) -> ClusterIdentity:
        """The identity that gpu_cluster declares; available once the client exists."""
        client = t.cast("Client", self._client)
        return ClusterIdentity(
            client, self.kube_params["gpu_cluster"], renamed_from=self._renamed_from(), records=self.records_name
        )

    def _renamed_from(self) -> str:
        return str(self.kube_params.get(RENAMED_FROM) or "").strip()

    def lease(self) -> Lease:
        """The lease, which must be held during all changes; it does nothing in check mode."""
        return Lease(
            self.client,
            holder_of(self.run_id, self.inventory_hostname),
            url=self.run_url,
            namespace=self.kube_params["lease_namespace"],
            progress=self.progress,
            active=not self.check_mode,
            identity=self.identity,
            **self._lease_settings(),
        )

    def _lease_settings(self) -> t.Mapping[str, t.Any]:
        return lease_settings(self.kube_params["gpu_cluster"] or {}, self.kube_params["lease_wait_timeout"])

    def explain_error(self, error: ServiceError) -> str:
        """The message for an error; if the error comes from Kubernetes, the message includes the connection."""
        if isinstance(error, ApiError) and self._client is not None:
            from .connection import explain

            return explain(error, self._client.connection)
        return super().explain_error(error)

    def has_written(self) -> bool:
        """Whether the API server has accepted a write."""
        return self._client is not None and self._client.has_written

    def service_warnings(self) -> t.Iterator[str]:
        """The warnings of the API server, and warnings about changes that will be reverted and about environment variables without an effect."""
        if self._client is None:
            return
        options = self._client.options
        yield from (f"Kubernetes: {text}" for text in self._client.warnings)
        yield from self._client.reverted
        for name in ignored_variables(options, os.environ):
            selected = " and ".join(options.names())
            yield f"{name} has no effect, since {selected} selects the connection; use the option instead."


class GpuModule(ClusterModule):
    """A module for a cluster, with connection options and, if requested, other shared options."""

    def __init__(
        self,
        argument_spec: ArgumentSpec | None = None,
        *,
        expected: bool = False,
        wait: bool = False,
        lease: bool = False,
        records_name: bool = True,
        empty_is_unset: t.Collection[str] = (),
        **kwargs: t.Any,
    ) -> None:
        """Compose the argument spec; the module's own options override shared options with the same name.

        `records_name` is true if acquiring the lease records gpu_cluster.name in the cluster. `empty_is_unset` lists the options for which an empty string
        unsets the option, because the empty list has a meaning of its own.
        """
        shared = ((EXPECTED, expected), (WAIT, wait), (LEASE_OPTIONS, lease))
        parts = [CONNECTION, *(part for part, used in shared if used)]
        super().__init__(merge_specs(*parts, argument_spec or {}), **kwargs)
        self.records_name = records_name
        for name, option in self.argument_spec.items():
            # Names of directory groups may contain commas.
            if name == "impersonate_groups":
                continue
            if option.get("type") == "list" and option.get("elements") == "str" and self.params[name] is not None:
                unset = name in empty_is_unset and self.params[name] == [""]
                # Ansible splits a string only at commas, and keeps spaces, line breaks and brackets.
                self.params[name] = None if unset else self._names(name)

    def _names(self, option: str) -> list[str]:
        given = self.params[option]
        try:
            listed = to_names(given)
        except ValueError as error:
            self.fail_json(msg=f"{option}: {error}", code="invalid")
        # Ansible converts an empty string to one empty element, and a comma to two empty elements.
        if not listed and (len(given) > 1 or any(str(item).strip() not in ("", "[]") for item in given)):
            # For many options, an empty list selects everything; a string such as "," must not do so.
            self.fail_json(msg=f"{option}: contains no name; use comma-separated names", code="invalid")
        return listed

    def shown_params(self) -> dict[str, t.Any]:
        """The options, without Helm values and without the contents of kubeconfigs."""
        return shown_options(self.params)

    @property
    def expected(self) -> ExpectedObjects:
        """The option `expected`."""
        return ExpectedObjects.from_dict(self.params["expected"])

    def run(self, work: t.Callable[[t.Any], dict[str, t.Any]]) -> t.NoReturn:
        """Like BaseModule.run(), but recording the name of the cluster counts as a change."""
        super().run(lambda module: self._with_record(work(module)))

    def _with_record(self, result: dict[str, t.Any]) -> dict[str, t.Any]:
        """The result, with the recorded name of the cluster if this module has recorded or would record the name."""
        if not self._verified or "lease_namespace" not in self.params:
            return result
        if self.identity.renames and not self.check_mode:
            with self.lease():
                pass
        predicted = self.identity.pending if self.check_mode and (result["changed"] or self.identity.renames) else None
        change = self.identity.change or predicted
        if change is None:
            return result
        names = [{"cluster_name": name} if name else {} for name in change]
        diff = result.get("diff") or []
        if isinstance(diff, list):
            diff = [*diff, diff_of(names[0], names[1], RECORD)]
        else:
            before, after = ({**diff[side], **name} for side, name in zip(("before", "after"), names, strict=True))
            diff = {**diff, "before": before, "after": after}
        return {**result, "changed": True, "diff": diff}
