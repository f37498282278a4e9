# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares and writes the objects that contain the licensing files."""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import dataclass, replace

from ..common.errors import InvalidOptions
from ..kube.conflict_retry import retry_conflicts
from ..kube.errors import ApiError
from ..kube.object_managers import manager_of
from ..kube.objects import write_or_dry_run
from ..kube.paths import collection_path, object_path
from ..schema.messages import join_words, quote
from .connectivity import proxy_of
from .content import (
    DesiredFiles,
    LicenseFiles,
    desired_files,
    kept_files,
    managed_files,
    managed_remedy,
    object_body,
    other_config_warning,
    read_files,
    require_renewal,
    restored_files,
    token_of,
)
from .gridd_conf import AUTOMATIC, GriddOptions, feature_type_of
from .option_names import ALLOW_CONFIGMAP_OPTION, SECRET_NAME_OPTION, TOKEN_OPTION, TOKEN_PATH_OPTION
from .targets import CONFIG_MAP, LicenseTarget, has_secret_name, live_target
from .token import SHORT, fingerprint, utc_now

if t.TYPE_CHECKING:
    import datetime

    from ..kube.client import Client
    from .cluster import LicenseCluster
    from .token import TokenInfo

Object = dict[str, t.Any]


@dataclass(frozen=True)
class LicenseOptions:
    """The user's options: the token, the parameters of gridd.conf, and the classes of vGPU types that no node has yet."""

    token: str | None
    gridd: GriddOptions
    # Whether the token may replace a newer one, or one for another license server.
    replace: bool = False
    classes: frozenset[str] = frozenset()
    # Whether objects get their previous files back, instead of a token.
    restore: bool = False


@dataclass(frozen=True)
class LicenseObjectChange:
    """One object with its actual and its desired state. `body` is the body of the request; None if no request is needed."""

    target: LicenseTarget
    live: Object | None
    before: LicenseFiles
    desired: DesiredFiles
    body: Object | None
    # The ConfigMap from which the files were copied.
    migrated_from: LicenseTarget | None = None
    # The ConfigMap that this Secret replaces; None if it contains no token.
    former: LicenseTarget | None = None
    # The tool that manages the object; if it is set, the object is not changed.
    managed_by: str = ""
    # The files that the object keeps beside the desired ones.
    previous: LicenseFiles | None = None

    @property
    def action(self) -> str:
        """The action: created, updated or unchanged."""
        if self.body is None:
            return "unchanged"
        return "created" if self.live is None else "updated"

    def summary(self, namespace: str, now: datetime.datetime) -> dict[str, t.Any]:
        """The object in the format that the module returns."""
        token = self.desired.token.as_dict(now)
        origin = self.migrated_from
        return {
            "kind": self.target.kind,
            "name": self.target.name,
            "namespace": namespace,
            "action": self.action,
            "pools": list(self.target.pools),
            "feature_type": feature_type_of(self.desired.files.config_text),
            "proxy": proxy_of(self.desired.files.config_text),
            "digests": self.desired.files.digests(),
            "managed_by": self.managed_by,
            "previous": fingerprint(self.previous.token)[:SHORT] if self.previous and self.previous.token else "",
            "migrated_from": origin.label(namespace) if origin is not None else "",
            **{
                name: token[name]
                for name in ("fingerprint", "expires", "not_before", "days_left", "server_type", "services")
            },
        }


class LicenseObjects:
    """The objects that contain the licensing files of one cluster."""

    def __init__(self, client: Client, cluster: LicenseCluster, options: LicenseOptions) -> None:
        """Store the arguments; no request is sent yet."""
        self._client = client
        self._cluster = cluster
        self._options = options
        # The names of the objects whose files some node could not use yet. The files that they have kept stay in place.
        self.unverified: set[str] = set()

    def select(self, targets: list[LicenseTarget], name: str | None) -> list[LicenseTarget]:
        """The objects to compare. If the user has provided a token, `name` selects one of several objects. Raises InvalidOptions if no object has this name
        or, without a name, if the token may not fit all objects.
        """
        if self._options.token is None or len(targets) == 1:
            return targets
        labels = join_words([target.label_with_pools(self._cluster.namespace) for target in targets])
        if name:
            if chosen := [target for target in targets if target.name == name]:
                return chosen
            raise InvalidOptions(
                [f"{SECRET_NAME_OPTION}: no driver pod mounts {quote(name)}; the driver pods mount {labels}"]
            )
        tokens = [token for target in targets if (token := self._replaceable_token(target)) is not None]
        if any(one.other_licenses_than(other) for one, other in itertools.combinations(tokens, 2)):
            raise InvalidOptions(
                [
                    f"{labels} contain different tokens, but only one token was provided. Set {SECRET_NAME_OPTION} to the name of the Secret that it is for."
                ]
            )
        return targets

    def require_secrets(self, targets: t.Iterable[LicenseTarget], version: str) -> None:
        """Raise InvalidOptions if a ConfigMap would get the token without explicit permission. An existing token may stay in a ConfigMap that is in use."""
        cluster = self._cluster
        named = [each for each in (live_target(cluster.policy), *cluster.mounted) if each is not None]
        for target in targets:
            in_use = self._options.token is None and any(target.is_same_object(each) for each in named)
            if target.kind == CONFIG_MAP and not in_use:
                label = target.label(cluster.namespace)
                remedy = (
                    f"The driver mounts {label}, which more users can read than a Secret. Set driver.licensing_secret of the pool"
                    if has_secret_name(version)
                    else f"GPU operator {version} can mount the token only from {label}, which more users can read than a Secret. Upgrade the operator to "
                    "v25.10 or later"
                )
                raise InvalidOptions(
                    [f"{remedy}, or set {ALLOW_CONFIGMAP_OPTION} to write the token into the ConfigMap anyway."]
                )

    def _replaceable_token(self, target: LicenseTarget) -> TokenInfo | None:
        """The token in an object that is not managed by another tool; None if there is no valid token."""
        live = self._cluster.read(target)
        if live is None or manager_of(live, target.kind):
            return None
        return token_of(read_files(target, live, self._cluster.namespace))

    def compare(self, target: LicenseTarget) -> LicenseObjectChange:
        """The change to one object; raises InvalidOptions if nodes would get no license from it."""
        namespace = self._cluster.namespace
        live = self._cluster.read(target)
        before = read_files(target, live, namespace)
        options = self._options
        classes = self._classes(target, before)
        origin = self._migration_source(target)
        former = self._former(target, origin)
        if live is not None and (manager := manager_of(live, target.kind)):
            kept = managed_files(target, before, options.token, options.gridd, classes, namespace, manager)
            return LicenseObjectChange(target, live, before, kept, None, former=former, managed_by=manager)
        mounted = read_files(origin, self._cluster.read(origin), namespace) if origin is not None else LicenseFiles()
        known = before.completed_by(mounted)
        exists = live is not None or known.token is not None
        if options.restore and before.previous is not None:
            desired = restored_files(target, before, before.previous, classes, namespace)
            body = object_body(target, namespace, live, before, desired.files)
            return LicenseObjectChange(target, live, before, desired, body, former=former)
        desired = desired_files(target, known, options.token, options.gridd, classes, namespace, exists=exists)
        if options.token is not None and not options.replace:
            require_renewal(target, known, desired, namespace)
        if origin is not None and origin in self._cluster.mounted and not target.pools:
            # An earlier run may have created the Secret, and the ConfigMap may have been changed since. If the Secret contains a token for another
            # license server, that token was put there on purpose.
            if not options.replace:
                require_renewal(origin, mounted, desired, namespace, given=options.token is not None)
            if text := other_config_warning(target, desired.files, origin, mounted, namespace):
                desired = replace(desired, warnings=(*desired.warnings, text))
        previous = kept_files(before, desired.files, verified=target.name not in self.unverified)
        body = object_body(target, namespace, live, before, desired.files, previous)
        copied = origin if known != before else None
        return LicenseObjectChange(target, live, before, desired, body, copied, former, previous=previous)

    def _classes(self, target: LicenseTarget, before: LicenseFiles) -> set[str]:
        """The classes of the vGPU types that use the object. Drivers are asked only if the labels do not show every class and FeatureType requests one
        product: any other FeatureType fits all classes.
        """
        requested = self._options.gridd.feature_type
        if requested is None:
            requested = feature_type_of(before.config_text)
        ask = requested not in (None, AUTOMATIC)
        return self._cluster.classes(target, ask_drivers=ask) | self._options.classes

    def _migration_source(self, target: LicenseTarget) -> LicenseTarget | None:
        """The ConfigMap that the ClusterPolicy refers to instead of this Secret."""
        live = live_target(self._cluster.policy)
        return live if live is not None and live.kind == CONFIG_MAP and live != target else None

    def _former(self, target: LicenseTarget, origin: LicenseTarget | None) -> LicenseTarget | None:
        """The ConfigMap that a Secret replaces: the one still in use, or one of the same name that an earlier run has copied; None if it contains no token."""
        former = origin or LicenseTarget(CONFIG_MAP, target.name)
        if target.kind == CONFIG_MAP:
            return None
        try:
            live = self._cluster.read(former)
        except ApiError as error:
            if not error.forbidden:
                raise
            return None
        return former if read_files(former, live, self._cluster.namespace).token is not None else None

    def write(self, change: LicenseObjectChange, *, check: bool) -> str | None:
        """Create or patch the object; after a conflict, compare it again. If check mode cannot validate the change, returns the reason."""

        def send(body: Object) -> None:
            metadata = body["metadata"]
            if "resourceVersion" in metadata:
                path = object_path("v1", change.target.kind, metadata["name"], metadata["namespace"])
                self._client.patch(path, body, dry_run=check)
            else:
                path = collection_path("v1", change.target.kind, metadata["namespace"])
                self._client.create(path, body, dry_run=check)

        body = change.body
        if body is None:
            return None
        return write_or_dry_run(
            lambda: retry_conflicts(send, body, lambda: self.compare(change.target).body), check=check
        )


def shown_changes(changes: t.Iterable[LicenseObjectChange], namespace: str) -> tuple[Object, Object]:
    """The content of the objects that change, before and after, for a diff."""
    before: Object = {}
    after: Object = {}
    for change in changes:
        if change.body is not None:
            label = change.target.label(namespace)
            before |= {label: _shown(change.before, change.before.previous)} if change.live is not None else {}
            after[label] = _shown(change.desired.files, change.previous)
    return before, after


def _shown(files: LicenseFiles, previous: LicenseFiles | None) -> Object:
    return {**files.shown(), **({"previous": previous.shown()} if previous is not None else {})}


def require_valid(changes: t.Iterable[LicenseObjectChange], namespace: str) -> None:
    """Raise InvalidOptions if the driver pods would get a token that clients do not accept now."""
    problems = [
        f"The token in {change.target.label(namespace)} {problem.reason}. "
        + (
            managed_remedy(change.target, namespace, change.managed_by)
            if change.managed_by
            else problem.remedy_with(f"set {TOKEN_OPTION} or {TOKEN_PATH_OPTION}")
        )
        for change in changes
        if (problem := change.desired.token.problem(utc_now()))
    ]
    if problems:
        raise InvalidOptions(problems)
