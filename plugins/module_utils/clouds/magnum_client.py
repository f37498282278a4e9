# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Talks to Keystone, Magnum, Nova and Glance."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import re
import sys
import time
import traceback
import typing as t
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from ..catalog.names import VERSION
from ..core import http
from ..core.errors import ConnectionProblem, ServiceError, missing_library
from ..core.http import HttpResponse, Retrier, is_loopback
from ..core.messages import abbreviate
from ..core.waits import call_all

if t.TYPE_CHECKING:
    from ..core.values import Object

# Defines the errors of OpenStack's services, and the messages that explain these errors to users.

# Parts of the messages of ResourceLimitExceeded and ClusterAPIAddressUnavailable (magnum.common.exception).
_LIMIT = "Resource limit exceeded"
_NO_ADDRESS = "Cluster API address is not available yet"
# Part of the messages of OperationInProgress and NgOperationInProgress (in the same module).
_IN_PROGRESS = "already has an operation in progress"
_TAG = re.compile(r"<[^>]*>")


class OpenStackError(ServiceError):
    """An error response from Keystone, Magnum, Nova or Glance (`service`) at `url`. If the response is missing, the status is None."""

    service = "OpenStack"
    address_setting = "the configuration of the cloud"
    timeout_setting = "api_timeout"
    ca_setting = "ca_cert (or cacert in clouds.yaml)"

    def __init__(self, message: str, *, url: str = "", **fields: t.Any) -> None:
        """Store the service's address in addition to the other fields."""
        super().__init__(message, **fields)
        self.url = url

    @property
    def no_address_yet(self) -> bool:
        """Whether the API server of the cluster does not have an address yet. Without an address, Magnum does not create node groups."""
        return self.conflict and _NO_ADDRESS in self.message

    @property
    def in_progress(self) -> bool:
        """Whether another operation is in progress. Some drivers run only one operation at a time."""
        return _IN_PROGRESS in self.message

    @property
    def without_groups(self) -> bool:
        """Whether a cluster does not have any groups yet, or no longer has any because it is almost deleted.

        In both cases, Magnum's check of master_count fails.
        """
        return self.status == 400 and "master_count" in self.message

    @property
    def over_quota(self) -> bool:
        """Whether a quota was exceeded, which Magnum reports with the status 403."""
        return self.forbidden and _LIMIT in self.message


def explain(error: OpenStackError, origin: str) -> str:
    """One message with the request, the response and the remedy. origin: the cloud, the region and the project as a string."""
    text = error.message.rstrip(". ") or error.reason or "the response has no text"
    at = f"({origin}): {text}."
    if error.unreachable:
        return f"Cannot reach {error.service} at {error.url} {at} {error.remedy}"
    if error.status == 401:
        return (
            f"{error.service} at {error.url} does not accept the credentials {at} "
            "Check user, password and project, and whether the application credential has expired."
        )
    if error.over_quota:
        return f"{text} ({origin}). Delete unused resources, or ask the cloud's operator for a larger quota."
    if error.forbidden:
        return (
            f"{error.service} denies {error.operation} {at} "
            "The user needs a role in this project for which the policy allows this request: reader to read, or member to make changes."
        )
    if error.status == 406:
        return f"{error.service} does not have the API version that {error.operation} needs {at}"
    if error.transient:
        return f"{error.service} failed with {error.status} at {error.operation} {at} Try again when the service is available."
    return f"{error.service} rejected {error.operation} with {error.status} {at}"


def openstack_error_text(body: bytes) -> str:
    """The text of an error response. Magnum sends a list, Keystone and Nova send one object, and Glance sends an HTML page."""
    try:
        document = json.loads(body)
    except ValueError:
        return " ".join(_TAG.sub(" ", body.decode(errors="replace")).split())[:300]
    return _text(document) or ""


def _text(document: t.Any) -> str | None:
    if isinstance(document, list):
        return next((text for item in document if (text := _text(item))), None)
    if not isinstance(document, dict):
        return None
    for key in ("detail", "message", "title", "faultstring"):
        if isinstance(document.get(key), str) and document[key].strip():
            return " ".join(document[key].split())
    return next((text for inner in document.values() if (text := _text(inner))), None)


# Creates the session with an OpenStack cloud from clouds.yaml, OS_* variables or options, in the same way as openstacksdk.
#
# Only the SDK's configuration reader is imported. `import openstack` would also load the classes of all services, which are not used here
# because the SDK does not support node groups. With these classes, the import takes 0.9 s of CPU time for each host of each task. Without
# them, it takes 0.4 s. In total, the import of a module and of Ansible's code takes 0.65 s.

_PACKAGE = "openstack"

IMPORT_ERROR: str | None = None


@contextlib.contextmanager
def _without_package_code() -> t.Iterator[None]:
    """Import submodules without running openstack/__init__.py. A later `import openstack` loads the whole package."""
    spec = None if _PACKAGE in sys.modules else importlib.util.find_spec(_PACKAGE)
    if spec is None:
        yield
        return
    sys.modules[_PACKAGE] = importlib.util.module_from_spec(spec)
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
            del sys.modules[name]


try:
    try:
        with _without_package_code():
            from openstack import exceptions
            from openstack.config import OpenStackConfig
    except (ImportError, AttributeError):
        # In this release of the SDK, the submodules need openstack/__init__.py.
        from openstack import exceptions
        from openstack.config import OpenStackConfig
    from keystoneauth1 import exceptions as keystone
    from keystoneauth1.adapter import Adapter
except ImportError:
    IMPORT_ERROR = traceback.format_exc()
else:
    # The exceptions that can be raised while a configuration is read.
    UNUSABLE = (exceptions.SDKException, keystone.ClientException, TypeError, ValueError)

# The authentication plugins that first discover the versions of Keystone, and the corresponding plugins that do not. The latter
# save one request in each module.
_VERSIONED = {"password": "v3password", "token": "v3token"}
_UNVERSIONED_OPTIONS = {"default_domain_id", "default_domain_name"}
# The options and their names in openstacksdk.
_OPTIONS = {
    "auth": "auth",
    "auth_type": "auth_type",
    "region_name": "region_name",
    "validate_certs": "verify",
    "ca_cert": "cacert",
    "client_cert": "cert",
    "client_key": "key",
    "api_timeout": "api_timeout",
    "interface": "interface",
}
REQUEST_TIMEOUT = 60.0


@dataclass(frozen=True)
class CloudOptions:
    """The cloud that the user declares, either by an optional name in clouds.yaml and individual options, or by a whole configuration."""

    name: str | None = None
    config: t.Mapping[str, t.Any] = field(default_factory=dict)

    @classmethod
    def from_params(cls, params: t.Mapping[str, t.Any]) -> CloudOptions:
        """The cloud from the options of a module. Raises ConnectionProblem if individual options are combined with a whole configuration."""
        cloud = params.get("cloud")
        given = {name: params[name] for name in _OPTIONS if params.get(name) is not None}
        if not isinstance(cloud, t.Mapping):
            return cls(str(cloud) if cloud else None, {_OPTIONS[name]: value for name, value in given.items()})
        # The option `interface` has a default value, which does not count as given.
        extra = sorted(name for name in given if name != "interface" or given[name] != "public")
        if extra:
            raise ConnectionProblem(
                f"cloud is a whole configuration and cannot be combined with {', '.join(extra)}. Move these settings into cloud."
            )
        return cls(None, dict(cloud))

    @property
    def secrets(self) -> set[str]:
        """The values that must not be printed."""
        auth = self.config.get("auth")
        return {
            text
            for name, value in (auth.items() if isinstance(auth, t.Mapping) else ())
            if value and any(word in name for word in ("password", "secret", "token", "passcode"))
            # A value that ends with a line break may be printed without the line break.
            for text in (str(value), str(value).strip())
            if text
        }


class Session:
    """The session with one cloud, region and project. It has one token for all services."""

    def __init__(self, options: CloudOptions, user_agent: str) -> None:
        """Read the configuration without sending a request. Raises ConnectionProblem if the configuration cannot be used."""
        require_sdk()
        self._config = OpenStackConfig(app_name="accel.gpu", app_version=VERSION)
        self._region = self._configured(options)
        self._user_agent = user_agent
        self._name = options.name
        self._session = self._region.get_session()
        self.require_secure(self.auth_url, "auth_url")

    def _configured(self, options: CloudOptions) -> t.Any:
        try:
            region = self._config.get_one(cloud=options.name, **options.config)
        except (*UNUSABLE, OSError) as error:
            raise ConnectionProblem(
                f"The cloud's configuration cannot be used ({options.name or 'no cloud specified'}): {error}"
            ) from None
        if not (region.config.get("auth") or {}).get("auth_url"):
            raise ConnectionProblem(
                "No cloud is specified. Set cloud (a name in clouds.yaml), auth with auth_url, or the environment variable OS_CLOUD or OS_AUTH_URL."
            )
        return self._versioned(region, options)

    def _versioned(self, region: t.Any, options: CloudOptions) -> t.Any:
        """The same region, but without the discovery of Keystone's versions if the URL contains the version."""
        plugin = _VERSIONED.get(str(region.config.get("auth_type")))
        auth = region.config["auth"]
        at_three = urlsplit(str(auth["auth_url"])).path.rstrip("/").endswith("/v3")
        if plugin is None or not at_three or _UNVERSIONED_OPTIONS & {key for key, value in auth.items() if value}:
            return region
        try:
            return self._config.get_one(cloud=options.name, **{**options.config, "auth_type": plugin})
        except UNUSABLE:
            # The versioned plugin needs more options than the original plugin, which reports missing options itself.
            return region

    @property
    def auth_url(self) -> str:
        """The URL of Keystone."""
        return str((self._region.config.get("auth") or {}).get("auth_url"))

    @property
    def timeout(self) -> float:
        """The timeout for one request in seconds."""
        return float(self._region.config.get("api_timeout") or REQUEST_TIMEOUT)

    @property
    def origin(self) -> str:
        """The cloud, the project and the region as a string for messages."""
        auth = self._region.config.get("auth") or {}
        project = auth.get("project_name") or auth.get("project_id")
        parts = [
            f"cloud {self._name}" if self._name else f"Keystone {self.auth_url}",
            f"project {project}" if project else "",
            f"region {self._region.get_region_name()}" if self._region.get_region_name() else "",
        ]
        return ", ".join(part for part in parts if part)

    @property
    def region(self) -> str:
        """The name of the region, or an empty string if no region is configured."""
        return str(self._region.get_region_name() or "")

    def project_id(self) -> str:
        """The id of the project for which the token is valid."""
        return str(self._session.get_project_id() or "")

    def adapter(self, service_type: str) -> t.Any:
        """The adapter for one service. It does not discover versions, and returns error responses instead of raising exceptions."""
        region = self._region
        return Adapter(
            session=self._session,
            service_type=region.get_service_type(service_type),
            service_name=region.get_service_name(service_type),
            interface=region.get_interface(service_type),
            region_name=region.get_region_name(service_type) or None,
            endpoint_override=region.get_endpoint(service_type),
            user_agent=self._user_agent,
            connect_retries=0,
            status_code_retries=0,
            raise_exc=False,
        )

    def require_secure(self, url: str, name: str = "the endpoint") -> None:
        """Raise ConnectionProblem if the token would be sent to this endpoint unencrypted, unless validate_certs is false."""
        parts = urlsplit(url)
        verified = self._region.get_requests_verify_args()[0]
        if parts.scheme == "http" and verified is not False and not is_loopback(parts.hostname):
            raise ConnectionProblem(
                f"{name} is {url}: without TLS, the token can be read on the network. Use https, or set validate_certs=false to "
                "accept that."
            )


def require_sdk() -> None:
    """Raise ConnectionProblem if openstacksdk is missing."""
    if IMPORT_ERROR is not None:
        raise missing_library("openstacksdk", "A cloud with Magnum")


def regions_of(cloud: str) -> list[str]:
    """The regions of a cloud in the order of clouds.yaml. The list may be empty."""
    require_sdk()
    document = (OpenStackConfig().cloud_config.get("clouds") or {}).get(cloud) or {}
    regions = [region["name"] if isinstance(region, dict) else region for region in document.get("regions") or ()]
    return [str(region) for region in regions]


def enable_logging(path: str | None, level: str) -> None:
    """Make openstacksdk write a log file in which secrets are masked. This imports the whole SDK."""
    if path:
        require_sdk()
        import openstack

        debug = level == "DEBUG"
        openstack.enable_logging(debug=debug, http_debug=debug, path=path, stream=None)


# Sends requests to an OpenStack service through openstacksdk's session.

if IMPORT_ERROR is None:
    from keystoneauth1 import exceptions as keystone

KEYSTONE = "Keystone"


class Service:
    """A client for one service in Keystone's catalog. It is thread-safe."""

    def __init__(
        self,
        session: Session,
        service_type: str,
        name: str,
        base: str = "",
    ) -> None:
        """Store the arguments without sending a request. `base`, such as `/v1`, is prepended to each path unless the URL in the catalog ends with it."""
        self.name = name
        self._session = session
        self._adapter = session.adapter(service_type)
        self._type = service_type
        self._base = base
        self._retrier = Retrier()
        self._connected_before = False
        self._prefix: str | None = None
        self._url = ""

    def send(
        self,
        method: str,
        path: str,
        *,
        body: t.Any = None,
        headers: t.Mapping[str, str] | None = None,
        repeatable: bool = True,
    ) -> HttpResponse:
        """Send a request, and return the response. The time limit for all attempts is twice the timeout for one request; see Retrier.send()."""
        return self._retrier.send(
            lambda dummy_left: self._attempt(method, path, body, headers or {}),
            limit=2 * self._session.timeout,
            repeatable=repeatable,
            is_connected=lambda error: self._connected_before,
        )

    def pages(self, path: str, key: str, send: t.Callable[[str], HttpResponse] | None = None) -> list[Object]:
        """All items of a collection. Magnum and Glance return the link to the next page as `next`, and Nova returns it in KEY_links."""
        send = send or (lambda page: self.send("GET", page))
        items: list[Object] = []
        page: str | None = path
        while page:
            answer = send(page).json()
            items.extend(answer.get(key) or [])
            links = [link["href"] for link in answer.get(f"{key}_links") or () if link.get("rel") == "next"]
            page = self._path_of(str(answer.get("next") or next(iter(links), "")))
        return items

    def _path_of(self, url: str) -> str | None:
        """The path of a page for send(), or None if the URL is empty. The host in the URL is ignored, because it often differs from the service's host."""
        if not url:
            return None
        parts = urlsplit(url)
        path = parts.path.removeprefix(urlsplit(self._url).path.rstrip("/")).removeprefix(self._prefix or "")
        return f"{path}?{parts.query}" if parts.query else path

    def _attempt(self, method: str, path: str, body: t.Any, headers: t.Mapping[str, str]) -> HttpResponse:
        try:
            answer = self._adapter.request(
                self._path_prefix() + path,
                method,
                json=body,
                headers={"Accept": "application/json", **headers},
                timeout=self._session.timeout,
            )
        except keystone.HttpError as error:
            # The error comes from Keystone's response to the token request, because error responses of the service
            # itself are not raised.
            content = error.response.content if error.response is not None else b""
            raise OpenStackError(
                openstack_error_text(content) or str(error.message),
                status=error.http_status,
                method="POST",
                path="/auth/tokens",
                service=KEYSTONE,
                url=self._session.auth_url,
                # The request to the service would have been sent after the request for the token.
                sent=False,
            ) from None
        except keystone.ConnectionError as error:
            cause = error.__context__
            if isinstance(cause, ValueError):
                raise self._not_sendable() from None
            # Until the service has responded for the first time, it may be Keystone that does not respond.
            by_keystone = not self._url or (not self._connected_before and self._session.auth_url in str(error))
            raise http.no_answer(
                OpenStackError,
                cause if isinstance(cause, Exception) else error,
                method=method,
                path=path,
                service=KEYSTONE if by_keystone else self.name,
                url=self._session.auth_url if by_keystone else self._url,
            ) from None
        except keystone.ClientException as error:
            raise ConnectionProblem(f"Keystone cannot be used ({self._session.origin}): {error}") from None
        except ValueError:
            raise self._not_sendable() from None
        self._connected_before = True
        if answer.status_code >= 300:
            raise OpenStackError(
                openstack_error_text(answer.content) or str(answer.reason or ""),
                status=answer.status_code,
                reason=str(answer.reason or ""),
                method=method,
                path=path,
                retry_after=http.retry_after(answer.headers.get("Retry-After")),
                service=self.name,
                url=self._url,
            )
        return HttpResponse(answer.status_code, answer.content, answer.headers)

    def _not_sendable(self) -> ConnectionProblem:
        return http.not_sendable(self._session.origin, "Check the token.")

    def _path_prefix(self) -> str:
        """The prefix of each path. The first call looks up the service in the catalog."""
        if self._prefix is None:
            url = self._adapter.get_endpoint()
            if not url:
                raise ConnectionProblem(
                    f"Keystone's catalog does not contain {self.name} (service type {self._type}; {self._session.origin}). Check the region "
                    "and the interface, and whether the cloud provides this service."
                )
            self._session.require_secure(url)
            self._url = str(url)
            self._prefix = "" if urlsplit(self._url).path.rstrip("/").endswith(self._base) else self._base
        return self._prefix


# Reads flavors, keypairs, limits and images from Nova and Glance, because Magnum itself checks none of them reliably.

# The first microversion that returns extra specs in the flavor (Nova 18.0, Rocky).
_EXTRA_SPECS = {"OpenStack-API-Version": "compute 2.61"}


class Nova:
    """Reads flavors, keypairs and limits."""

    def __init__(self, session: Session) -> None:
        """Store the arguments without sending a request."""
        self._service = Service(session, "compute", "Nova")

    @functools.cached_property
    def flavors(self) -> list[Object]:
        """All flavors of the project, with `extra_specs` if the user is allowed to read them."""
        try:
            return self._service.pages(
                "/flavors/detail", "flavors", lambda at: self._service.send("GET", at, headers=_EXTRA_SPECS)
            )
        except OpenStackError as error:
            if error.status != 406:
                raise
        return [
            {**flavor, **self._read(f"/flavors/{flavor['id']}/os-extra_specs")}
            for flavor in self._service.pages("/flavors/detail", "flavors")
        ]

    def _read(self, path: str) -> Object:
        """The response, or an empty map if the user is not allowed to read it."""
        try:
            return self._service.send("GET", path).json()
        except OpenStackError as error:
            if not error.forbidden:
                raise
            return {}

    def flavor(self, name: str) -> Object | None:
        """The flavor with this name or id, or None if it does not exist."""
        return next((flavor for flavor in self.flavors if name in (flavor["id"], flavor["name"])), None)

    @functools.cached_property
    def keypairs(self) -> list[str]:
        """The names of the user's keypairs."""
        return sorted(entry["keypair"]["name"] for entry in self._service.pages("/os-keypairs", "keypairs"))

    @functools.cached_property
    def limits(self) -> Object:
        """The project's absolute limits and usage, or an empty map if the user is not allowed to read them."""
        return dict(self._read("/limits").get("limits", {}).get("absolute", {}))


class Glance:
    """Reads images."""

    def __init__(self, session: Session) -> None:
        """Store the arguments without sending a request."""
        self._service = Service(session, "image", "Glance", "/v2")

    @functools.cached_property
    def images(self) -> list[Object]:
        """All images of the project."""
        return self._service.pages("/images", "images")

    def named(self, name: str) -> list[Object]:
        """The images with this name or id. The names of images are not unique."""
        return [image for image in self.images if name in (image["id"], image["name"])]


# Defines the client for Magnum's API, including node groups, which openstacksdk does not support.
#
# Request bodies and responses are dictionaries.

Version = tuple[int, int]

# Magnum has supported node groups since microversion 1.9 (Train). The newest microversion that this client supports is 1.14 (Magnum 23.0).
NODE_GROUPS: Version = (1, 9)
_NEWEST: Version = (1, 14)

# The status of a cluster that is being deleted.
IN_DELETION = "DELETE_IN_PROGRESS"

# The number of parallel requests. The library keeps the same number of connections open.
PARALLEL = 10

# The time limit in seconds for a new object to appear in lists, which takes 0.1 s or more, and the interval between two reads in seconds.
_APPEARS_WITHIN = 5.0
_POLL = 0.2
_VERSION = re.compile(r"(\d+)\.(\d+)\s*$")


class Magnum:
    """A client for Magnum. It is thread-safe after the first response."""

    def __init__(self, session: Session) -> None:
        """Store the arguments without sending a request."""
        self.session = session
        self._service = Service(session, "container-infrastructure-management", "Magnum", "/v1")
        self._spoken: Version | None = None
        self._offered: Version | None = None

    @property
    def version(self) -> Version:
        """The microversion in use. Reading it sends a request if Magnum has not responded to any request yet."""
        if self._spoken is None:
            self.clusters(limit=1)
        return t.cast("Version", self._spoken)

    @property
    def offered(self) -> Version | None:
        """The newest microversion that this Magnum supports, or None if it is not known."""
        dummy = self.version
        return self._offered

    @property
    def resizes_to_zero(self) -> bool:
        """Whether node groups can have zero nodes (since microversion 1.10)."""
        return self.version >= (1, 10)

    # Clusters

    def cluster(self, name: str) -> Object:
        """The cluster with this name or id. Raises ConnectionProblem if no cluster or more than one cluster has the name."""
        row = self._lookup(name)
        if row is None:
            clusters = self.clusters()
            # A new cluster may have become visible between the two requests.
            if any(name in (cluster["name"], cluster["uuid"]) for cluster in clusters):
                row = self._lookup(name)
        if row is None:
            names = sorted(str(cluster["name"]) for cluster in clusters)
            known = f"it has {abbreviate(names)}" if names else "it has none"
            raise ConnectionProblem(
                f"Magnum has no cluster {name} ({self.session.origin}): {known}. Clusters of other projects are not visible."
            )
        return row

    def find_cluster(self, name: str) -> Object | None:
        """Like cluster(), but returns None if the cluster does not exist.

        Near the end of a cluster's deletion, the result contains only the id, the name and the status.
        """
        try:
            return self._lookup(name)
        except OpenStackError as error:
            if error.without_groups:
                return {"uuid": name, "name": name, "status": IN_DELETION}
            raise

    def _lookup(self, name: str) -> Object | None:
        try:
            return self._find(f"/clusters/{quote(name, safe='')}")
        except OpenStackError as error:
            if error.conflict:
                raise ConnectionProblem(self._ambiguous(name)) from None
            raise

    def clusters(self, limit: int | None = None) -> list[Object]:
        """All clusters of the project, or the first `limit` of them."""
        deadline = time.monotonic() + _APPEARS_WITHIN
        while True:
            try:
                if limit is not None:
                    return list(self._send("GET", f"/clusters?limit={limit}").json().get("clusters") or [])
                return self._pages("/clusters", "clusters")
            except OpenStackError as error:
                # As long as any cluster has no groups, Magnum returns an error.
                if not error.without_groups or time.monotonic() > deadline:
                    raise
            time.sleep(_POLL)

    def create_cluster(self, body: t.Mapping[str, t.Any]) -> str:
        """Create a cluster, and return its id.

        Magnum accepts a second cluster with the same name. If a response is lost, the request is therefore repeated only after a list shows that it
        did not create a cluster. Magnum also responds before it has stored the cluster. This method waits until the cluster is stored, because
        otherwise the next run would create another cluster.
        """
        name, before = str(body["name"]), {cluster["uuid"] for cluster in self.clusters()}
        while True:
            try:
                cluster_id = str(self._send("POST", "/clusters", body=body, repeatable=False).json()["uuid"])
                self._await_stored(cluster_id)
                return cluster_id
            except OpenStackError as error:
                if not error.outcome_unknown:
                    raise
                made = self._new_cluster(name, before)
                if made is not None:
                    return str(made["uuid"])
                if error.unreachable:
                    raise

    def delete_cluster(self, cluster_id: str) -> None:
        """Request the deletion of a cluster. It is not an error if the cluster does not exist."""
        self._delete(f"/clusters/{cluster_id}")

    def templates(self) -> list[Object]:
        """The cluster templates that the project may use."""
        return self._pages("/clustertemplates", "clustertemplates")

    def template(self, name: str) -> Object | None:
        """The template with this name or id, or None if it does not exist. Raises ConnectionProblem if several templates have the name."""
        try:
            return self._find(f"/clustertemplates/{quote(name, safe='')}")
        except OpenStackError as error:
            if error.conflict:
                ids = [template["uuid"] for template in self.templates() if template["name"] == name]
                raise ConnectionProblem(
                    f"{len(ids)} cluster templates have the name {name}: {', '.join(ids)} ({self.session.origin}). Use the id of one."
                ) from None
            raise

    def quota(self) -> int | None:
        """The project's cluster quota, or None if it is unknown."""
        try:
            limit = self._get(f"/quotas/{self.session.project_id()}/Cluster").get("hard_limit")
        except OpenStackError as error:
            if error.fails_every_request and not error.forbidden:
                raise
            return None
        return int(limit) if limit is not None else None

    # Certificates

    def ca(self, cluster_id: str) -> str:
        """The certificate of the cluster's CA, in PEM format."""
        return str(self._get(f"/certificates/{cluster_id}")["pem"])

    def sign(self, cluster_id: str, csr: str) -> str:
        """The certificate that Magnum issues for a certificate signing request. Both are in PEM format."""
        return str(self._send("POST", "/certificates", body={"cluster_uuid": cluster_id, "csr": csr}).json()["pem"])

    # Node groups

    def nodegroups(self, cluster_id: str) -> list[Object]:
        """All node groups of a cluster. They do not contain labels, addresses and reasons, and their bounds are wrong."""
        return self._pages(f"/clusters/{cluster_id}/nodegroups", "nodegroups")

    def nodegroup(self, cluster_id: str, group: str) -> Object | None:
        """The node group with this id, with all fields, or None if it does not exist."""
        return self._find(f"/clusters/{cluster_id}/nodegroups/{quote(group, safe='')}")

    def complete_nodegroups(self, cluster_id: str, ids: t.Iterable[str]) -> list[Object]:
        """The node groups with these ids, with all fields. They are read in parallel, and groups that no longer exist are omitted."""
        calls = [(group, functools.partial(self.nodegroup, cluster_id, group)) for group in ids]
        return [group for group in call_all(calls, PARALLEL) if group is not None]

    def create_nodegroup(self, cluster_id: str, body: t.Mapping[str, t.Any]) -> None:
        """Create a node group. The request is not repeated after a lost response, because the caller must first check whether the group exists."""
        self._send("POST", f"/clusters/{cluster_id}/nodegroups", body=body, repeatable=False)

    def patch_nodegroup(self, cluster_id: str, group: str, edits: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        """Change bounds, node labels or taints with a JSON patch. Magnum silently ignores the patch during another operation on the group."""
        self._send("PATCH", f"/clusters/{cluster_id}/nodegroups/{group}", body=list(edits))

    def resize(self, cluster_id: str, group: str, count: int, servers: t.Sequence[str] = ()) -> None:
        """Change the number of nodes. A scale-down removes `servers` (ids in Nova) first. Magnum ignores the request while the cluster is being created."""
        body = {"node_count": count, "nodegroup": group, **({"nodes_to_remove": list(servers)} if servers else {})}
        self._send("POST", f"/clusters/{cluster_id}/actions/resize", body=body)

    def delete_nodegroup(self, cluster_id: str, group: str) -> None:
        """Request the deletion of a node group. It is not an error if the group does not exist."""
        self._delete(f"/clusters/{cluster_id}/nodegroups/{group}")

    # Requests

    def _get(self, path: str) -> Object:
        return self._send("GET", path).json()

    def _find(self, path: str) -> Object | None:
        """The object, or None if it does not exist."""
        try:
            return self._get(path)
        except OpenStackError as error:
            if error.not_found:
                return None
            raise

    def _delete(self, path: str) -> None:
        try:
            self._send("DELETE", path)
        except OpenStackError as error:
            if not error.not_found:
                raise

    def _pages(self, path: str, key: str) -> list[Object]:
        return self._service.pages(path, key, lambda at: self._send("GET", at))

    def _headers(self) -> dict[str, str]:
        # Magnum releases before 22 accept only this name of the service. Newer releases accept it as well.
        spoken = self._spoken or NODE_GROUPS
        return {"OpenStack-API-Version": f"container-infra {spoken[0]}.{spoken[1]}"}

    def _send(self, method: str, path: str, *, body: t.Any = None, repeatable: bool = True) -> HttpResponse:
        try:
            answer = self._service.send(method, path, body=body, headers=self._headers(), repeatable=repeatable)
        except OpenStackError as error:
            if error.status == 406 and self._spoken is None:
                raise ConnectionProblem(
                    f"This Magnum ({self.session.origin}) does not support node groups, which require microversion 1.9 of the API (release 9, Train)."
                ) from None
            raise
        if self._spoken is None:
            self._negotiate(answer.headers.get("OpenStack-API-Maximum-Version"))
        return answer

    def _negotiate(self, newest: str | None) -> None:
        """Use the newest version that both sides support. Responses contain Magnum's newest version."""
        match = _VERSION.search(newest or "")
        self._offered = (int(match[1]), int(match[2])) if match else None
        self._spoken = min(self._offered or NODE_GROUPS, _NEWEST)

    def _await_stored(self, cluster_id: str) -> None:
        """Wait at most a few seconds until Magnum returns a new cluster with its groups, which Magnum stores after the cluster."""

        def stored() -> Object | None:
            try:
                return self._lookup(cluster_id)
            except OpenStackError as error:
                if error.without_groups:
                    return None
                raise

        _appearing(stored)

    def _new_cluster(self, name: str, before: set[str]) -> Object | None:
        """The cluster that a request with a lost response created, or None if no such cluster appears within a few seconds."""
        return _appearing(
            lambda: next((one for one in self.clusters() if one["name"] == name and one["uuid"] not in before), None)
        )

    def _ambiguous(self, name: str) -> str:
        twins = [cluster for cluster in self.clusters() if cluster["name"] == name]
        ids = ", ".join(f"{cluster['uuid']} ({cluster['status']})" for cluster in twins)
        return (
            f"{len(twins)} clusters have the name {name} ({self.session.origin}): {ids}. "
            "Use the id of one, or delete the other."
        )


def _appearing(find: t.Callable[[], Object | None]) -> Object | None:
    """The object, as soon as `find` returns it, or None if this does not happen within a few seconds."""
    deadline = time.monotonic() + _APPEARS_WITHIN
    while True:
        item = find()
        if item is not None or time.monotonic() > deadline:
            return item
        time.sleep(_POLL)
