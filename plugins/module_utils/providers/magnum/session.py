# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creates the session with an OpenStack cloud from clouds.yaml, OS_* variables or options, in the same way as openstacksdk.

Only the SDK's configuration reader is imported. `import openstack` would also load the classes of all services, which are not used here
because the SDK does not support node groups. With these classes, the import takes 0.9 s of CPU time for each host of each task. Without
them, it takes 0.4 s. In total, the import of a module and of Ansible's code takes 0.65 s.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import traceback
import typing as t
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ...catalog.names import VERSION
from ...common.errors import ConnectionProblem, missing_library
from ...common.http import is_loopback

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
