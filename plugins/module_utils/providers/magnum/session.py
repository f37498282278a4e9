# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How an OpenStack cloud is reached: clouds.yaml, OS_* or options, as openstacksdk reads them, with the fewest requests."""

from __future__ import annotations

import ipaddress
import typing as t
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ...catalog.names import VERSION
from ...common.errors import ConnectionProblem
from .sdk import IMPORT_ERROR

if IMPORT_ERROR is None:
    from keystoneauth1.adapter import Adapter

    from .sdk import UNUSABLE, OpenStackConfig

# The plugins that first ask Keystone which versions it speaks, and those that know: one request less for each module call.
_VERSIONED = {"password": "v3password", "token": "v3token"}
_UNVERSIONED_OPTIONS = {"default_domain_id", "default_domain_name"}
# What an option of the module is called in openstacksdk.
_NAMES = {"validate_certs": "verify", "ca_cert": "cacert", "client_cert": "cert", "client_key": "key"}
_OPTIONS = (
    "auth",
    "auth_type",
    "region_name",
    "validate_certs",
    "ca_cert",
    "client_cert",
    "client_key",
    "api_timeout",
    "interface",
)
REQUEST_TIMEOUT = 60.0


@dataclass(frozen=True)
class CloudOptions:
    """What the user says of the cloud: a name in clouds.yaml, a whole configuration, or options one by one."""

    cloud: str | t.Mapping[str, t.Any] | None = None
    given: t.Mapping[str, t.Any] = field(default_factory=dict)

    @classmethod
    def from_params(cls, params: t.Mapping[str, t.Any]) -> CloudOptions:
        """Of a module's options; ConnectionProblem when a whole configuration is contradicted by single options."""
        cloud = params.get("cloud")
        given = {name: params[name] for name in _OPTIONS if params.get(name) is not None}
        if isinstance(cloud, t.Mapping):
            # The default of the option interface is no contradiction.
            extra = sorted(name for name in given if name != "interface" or given[name] != "public")
            if extra:
                raise ConnectionProblem(
                    f"cloud is a whole configuration, so {', '.join(extra)} cannot be given beside it: put it into cloud."
                )
            return cls(dict(cloud))
        return cls(str(cloud) if cloud else None, {_NAMES.get(name, name): value for name, value in given.items()})

    @property
    def secrets(self) -> set[str]:
        """Values that must not be shown."""
        documents = [self.given, self.cloud] if isinstance(self.cloud, t.Mapping) else [self.given]
        auths = [document.get("auth") for document in documents]
        return {
            text
            for auth in auths
            if isinstance(auth, t.Mapping)
            for name, value in auth.items()
            if value and any(word in name for word in ("password", "secret", "token", "passcode"))
            # What ends with a line break may be shown without it.
            for text in (str(value), str(value).strip())
            if text
        }


class Session:
    """One cloud, region and project, with the token that all services share."""

    def __init__(self, options: CloudOptions, user_agent: str) -> None:
        """Read the configuration (ConnectionProblem if it cannot be used); nothing is sent yet."""
        self._config = OpenStackConfig(app_name="accel.gpu", app_version=VERSION)
        self._region = self._configured(options)
        self._user_agent = user_agent
        self._name = options.cloud if isinstance(options.cloud, str) else ""
        self._session = self._region.get_session()
        self._require_secure(self.auth_url, "auth_url")

    def _configured(self, options: CloudOptions) -> t.Any:
        whole = options.cloud if isinstance(options.cloud, t.Mapping) else None
        name = options.cloud if isinstance(options.cloud, str) else None
        given = dict(whole if whole is not None else options.given)
        try:
            region = self._config.get_one(cloud=name, **given)
        except (*UNUSABLE, OSError) as error:
            raise ConnectionProblem(
                f"The cloud's configuration cannot be used ({name or 'no cloud named'}): {error}"
            ) from None
        if not (region.config.get("auth") or {}).get("auth_url"):
            raise ConnectionProblem(
                "No cloud is named: give cloud (a name in clouds.yaml), auth with its auth_url, or set OS_CLOUD or OS_AUTH_URL."
            )
        return self._versioned(region, name, given)

    def _versioned(self, region: t.Any, name: str | None, given: dict[str, t.Any]) -> t.Any:
        """The same cloud without a look for the versions of Keystone, where the URL says which one it is."""
        plugin = _VERSIONED.get(str(region.config.get("auth_type")))
        auth = region.config["auth"]
        at_three = urlsplit(str(auth["auth_url"])).path.rstrip("/").endswith("/v3")
        if plugin is None or not at_three or _UNVERSIONED_OPTIONS & {key for key, value in auth.items() if value}:
            return region
        try:
            return self._config.get_one(cloud=name, **{**given, "auth_type": plugin})
        except UNUSABLE:
            # It asks for more than the other one, which finds out by itself what is missing.
            return region

    @property
    def auth_url(self) -> str:
        """Where Keystone is."""
        return str((self._region.config.get("auth") or {}).get("auth_url"))

    @property
    def timeout(self) -> float:
        """Seconds within which one request must be answered."""
        return float(self._region.config.get("api_timeout") or REQUEST_TIMEOUT)

    @property
    def origin(self) -> str:
        """The cloud, region and project, in words."""
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
        """The region's name; empty where the cloud has one alone."""
        return str(self._region.get_region_name() or "")

    def project_id(self) -> str:
        """Of the token."""
        return str(self._session.get_project_id() or "")

    def adapter(self, service_type: str) -> t.Any:
        """Of one service as the catalog has it, without a look for versions; what fails is answered, not raised."""
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

    def require_secure(self, url: str) -> None:
        """Raise ConnectionProblem for an endpoint to which the token would be sent unencrypted."""
        self._require_secure(url, "the endpoint")

    def _require_secure(self, url: str, name: str) -> None:
        parts = urlsplit(url)
        verified = self._region.get_requests_verify_args()[0]
        if parts.scheme == "http" and verified is not False and not _loopback(parts.hostname or ""):
            raise ConnectionProblem(
                f"{name} is {url}: without TLS the token can be read on the network. Use https, or set validate_certs=false to "
                "accept that."
            )


def regions_of(cloud: str) -> list[str]:
    """The regions that clouds.yaml has for a cloud, in its order; none where it names none."""
    document = (OpenStackConfig().cloud_config.get("clouds") or {}).get(cloud) or {}
    regions = [region["name"] if isinstance(region, dict) else region for region in document.get("regions") or ()]
    return [str(region) for region in regions]


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
