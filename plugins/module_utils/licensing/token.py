# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Client tokens and gridd.conf: parsing, checks, and whether a license server can be reached."""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import hmac
import json
import re
import typing as t
from dataclasses import dataclass

from ..catalog import secrets
from ..catalog.vgpu import FEATURE_TYPES
from ..core.messages import abbreviate, join_words, option_of_role, quote
from ..core.types import Integer, integer_between, is_blank
from ..core.values import format_time

# Defines the names of the licensing options in messages: the variable of the role, and the option of the module.

ALLOW_CONFIGMAP_OPTION = option_of_role("gpu_licensing_allow_configmap", "allow_configmap")
FEATURE_TYPE_OPTION = option_of_role("gpu_licensing_feature_type", "feature_type")
NODE_NAMES_OPTION = option_of_role("gpu_licensing_node_names", "node_names")
REPLACE_OPTION = option_of_role("gpu_licensing_replace", "replace")
RESTART_OPTION = option_of_role("gpu_licensing_restart_drivers", "restart_drivers")
RESTORE_OPTION = option_of_role("gpu_licensing_restore", "restore")
SECRET_NAME_OPTION = option_of_role("gpu_licensing_secret_name", "secret_name")
SOURCE_OPTION = option_of_role("gpu_licensing_report_source", "source")
# The environment variable that contains the token.
TOKEN_ENV = "NLS_CLIENT_TOKEN"
TOKEN_OPTION = option_of_role("gpu_licensing_token", "token")
TOKEN_PATH_OPTION = option_of_role("gpu_licensing_token_path", "token_path")
VGPU_TYPES_OPTION = option_of_role("gpu_licensing_vgpu_types", "vgpu_types")


# Parses client configuration tokens of the NVIDIA License System without network access (pure).
#
# Source: NVIDIA License System User Guide, "Generating a Client Configuration Token"; RFC 7515 (compact form), RFC 8017 8.2.2 (signature). NVIDIA does
# not document the claims. Independent tools for these tokens agree on the claims below, but any claim may be missing. A token is a credential, so no
# message and no result contains any part of it.

# A token has about 2.7 KB; a Secret has at most 1 MiB.
MAX_LENGTH = 64 * 1024
CLS, DLS = "cls", "dls"
_CLS_DOMAIN = "licensing.nvidia.com"
_ISSUER, _AUDIENCE = "NLS Service Instance", "NLS Licensed Client"
_ALGORITHM = "RS256"
# The maximum length of a file name, a host name, and the name of a Kubernetes object.
_MAX_NAME = 255
_THREE_PARTS = re.compile(r"[A-Za-z0-9_-]{20,}(\.[A-Za-z0-9_-]{20,}){2}")
_CHARACTERS = re.compile(r"[A-Za-z0-9_-]*")
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252})|[0-9A-Fa-f:.]{2,45}")
_MAX_HOSTS = 64
MAX_PORT = 65535
# The minimum and maximum key sizes, for which one verification takes only milliseconds.
_KEY_BITS = (1024, 8192)
_MAX_EXPONENT = 2**32
# The prefix of a SHA-256 digest in a signature (RFC 8017 9.2, note 1).
_SHA256_PREFIX = bytes.fromhex("3031300d060960864801650304020105000420")
# The length of a fingerprint in results. The modules compare complete fingerprints.
SHORT = 16

CONSISTENT, INCONSISTENT, UNKNOWN = "consistent", "inconsistent", "unknown"


class InvalidToken(ValueError):
    """The text is not a token. The message is the end of a sentence, and contains no part of the text."""


@dataclass(frozen=True)
class LicenseService:
    """One service of the license server that clients connect to. `port` is None if the token does not contain it."""

    host: str
    port: int | None
    service: str

    def as_dict(self) -> dict[str, t.Any]:
        """The service in the format that modules return."""
        return {"host": self.host, "port": self.port, "service": self.service}


@dataclass(frozen=True)
class TokenProblem:
    """Why clients do not accept a token, as the end of a sentence, and the remedy as a sentence without the period."""

    reason: str
    remedy: str
    needs_new_token: bool = False

    def remedy_with(self, next_step: str) -> str:
        """The remedy as a sentence; if a new token is needed, the sentence also contains the next step."""
        return f"{self.remedy}, and {next_step}." if self.needs_new_token else f"{self.remedy}."


@dataclass(frozen=True)
class TokenInfo:
    """The values of a token; missing values are None or empty."""

    fingerprint: str
    algorithm: str
    expires: datetime.datetime | None = None
    not_before: datetime.datetime | None = None
    issued: datetime.datetime | None = None
    server_type: str | None = None
    services: tuple[LicenseService, ...] = ()
    license_classes: tuple[str, ...] = ()
    # The service instance of the license system that created the token, and the license servers of that instance for which the token is valid.
    instance: str | None = None
    license_servers: frozenset[str] = frozenset()
    signature: str = UNKNOWN
    warnings: tuple[str, ...] = ()

    def days_left(self, now: datetime.datetime) -> int | None:
        """Whole days until the token expires; negative after it has expired, and None if it does not expire."""
        return None if self.expires is None else (self.expires - now).days

    def problem(self, now: datetime.datetime) -> TokenProblem | None:
        """Why clients do not accept the token at this time; None if they do."""
        if self.expires is not None and self.expires <= now:
            remedy = "Create a new client configuration token in the license system"
            return TokenProblem(f"expired at {format_time(self.expires)}", remedy, needs_new_token=True)
        if self.not_before is not None and self.not_before > now:
            remedy = "Wait until then, or check the clocks of this machine and of the license server"
            return TokenProblem(f"is not valid before {format_time(self.not_before)}", remedy)
        return None

    @property
    def hosts(self) -> list[str]:
        """The hosts of the token's services, without duplicates."""
        return list(dict.fromkeys(service.host for service in self.services))

    @property
    def description(self) -> str:
        """The token's fingerprint, times, servers and service instance, for messages."""
        times = (("issued", self.issued), ("expires", self.expires))
        parts = [f"sha256:{self.fingerprint[:SHORT]}", *(f"{name} {format_time(time)}" for name, time in times if time)]
        parts += [f"for {abbreviate(self.hosts)}"] if self.services else []
        parts += [f"service instance {quote(self.instance)}"] if self.instance else []
        return ", ".join(parts)

    def not_a_renewal_of(self, current: TokenInfo) -> list[str]:
        """Reasons why this token may be older than the current one, or for different licenses, each as a clause."""
        return [*self.older_than(current), *self.other_licenses_than(current)]

    def older_than(self, current: TokenInfo) -> list[str]:
        """Reasons why this token may be older than the current one, each as a clause; unknown values are not compared."""
        pairs = (
            ("it was issued earlier", self.issued, current.issued),
            ("it expires earlier", self.expires, current.expires),
        )
        return [text for text, mine, other in pairs if mine and other and mine < other]

    def other_licenses_than(self, other: TokenInfo) -> list[str]:
        """Reasons why a client would get different licenses with this token, each as a clause; unknown servers and instances are not compared."""
        reasons = []
        hosts, servers = (self.hosts, other.hosts), (self.license_servers, other.license_servers)
        if any(mine and theirs and set(mine).isdisjoint(theirs) for mine, theirs in (hosts, servers)):
            reasons.append("it is for a different license server")
        if self.instance and other.instance and self.instance != other.instance:
            reasons.append("it is for a different service instance")
        if set(self.license_classes) != set(other.license_classes):
            reasons.append("it is for different license classes")
        return reasons

    def as_dict(self, now: datetime.datetime) -> dict[str, t.Any]:
        """The token in the format that modules return."""
        return {
            "fingerprint": self.fingerprint[:SHORT],
            "algorithm": self.algorithm,
            "expires": format_time(self.expires),
            "not_before": format_time(self.not_before),
            "issued": format_time(self.issued),
            "days_left": self.days_left(now),
            "valid": self.problem(now) is None,
            "server_type": self.server_type,
            "services": [service.as_dict() for service in self.services],
            "license_classes": list(self.license_classes),
            "signature": self.signature,
            "warnings": list(self.warnings),
        }


def parse_token(text: str | bytes) -> TokenInfo:
    """The values of a token; raises InvalidToken if the text is not a token."""
    clean = normalize_token(text)
    parts = clean.split(".")
    if len(parts) != 3:
        raise InvalidToken(
            f"has {len(parts)} {'part' if len(parts) == 1 else 'parts'} instead of 3 (header, claims and signature, separated by dots); "
            "it is truncated, or it is a different file"
        )
    header = _json_part(parts[0], "header")
    claims = _json_part(parts[1], "claims")
    signature = _decode(parts[2], "signature")
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or not algorithm:
        raise InvalidToken("has no algorithm in its header, so it is not a signed token; download it again")
    if algorithm.lower() == "none" or not signature:
        raise InvalidToken("is not signed; it is truncated, or not from a license server")
    services, server_type, warnings = _services(claims)
    expires, not_before, issued = (_time(claims, name, warnings) for name in ("exp", "nbf", "iat"))
    if algorithm != _ALGORITHM:
        warnings.append(
            f"its algorithm is {quote(algorithm)}, not {_ALGORITHM}; it may not be a client configuration token"
        )
    for claim, expected in (("iss", _ISSUER), ("aud", _AUDIENCE)):
        if claim in claims and claims[claim] != expected:
            warnings.append(
                f"its claim {claim} is {quote(claims[claim])}, not {quote(expected)}; it may be a different kind of token"
            )
    if expires is None:
        warnings.append("it has no expiry")
    if not services:
        warnings.append("it names no license server")
    verified = _verify(f"{parts[0]}.{parts[1]}".encode(), signature, claims) if algorithm == _ALGORITHM else UNKNOWN
    if verified == INCONSISTENT:
        warnings.append(
            "its signature does not match the key in it; it was changed after it was signed, or the license server signs with another key"
        )
    instance = _map(claims.get("service_instance_configuration"))
    return TokenInfo(
        fingerprint=fingerprint(clean),
        algorithm=_short(algorithm, 16),
        expires=expires,
        not_before=not_before,
        issued=issued,
        server_type=server_type,
        services=services,
        license_classes=_texts(claims.get("fulfillment_class_ref_list")),
        instance=next(iter(_texts([instance.get("nls_service_instance_ref")])), None),
        license_servers=frozenset(_texts(claims.get("scope_ref_list"))),
        signature=verified,
        warnings=tuple(warnings),
    )


def normalize_token(text: str | bytes) -> str:
    """The token in the form that the Secret contains, without the line break that editors add. Raises InvalidToken if the text cannot be a token."""
    if len(text) > MAX_LENGTH:
        raise InvalidToken(too_long(len(text)))
    if isinstance(text, bytes):
        try:
            text = text.decode("ascii")
        except UnicodeDecodeError:
            raise InvalidToken("contains bytes that are not ASCII; download it again, and do not convert it") from None
    stripped = text.strip()
    if not stripped:
        raise InvalidToken("is empty")
    if not stripped.isascii():
        raise InvalidToken("contains characters that are not ASCII; download it again, and do not convert it")
    if any(not _CHARACTERS.fullmatch(part) for part in stripped.split(".")):
        raise InvalidToken(
            "contains characters that no token has, such as quotes, spaces or line breaks; use the downloaded file without changes"
        )
    return stripped


def too_long(size: int) -> str:
    """Why content of this size is not a token, as the end of a sentence."""
    return f"has {size} bytes; a token has about 2,700 bytes, and at most {MAX_LENGTH} bytes are read"


def looks_like_token(text: str) -> bool:
    """Whether a string that should be a name or a path may be a token or a part of one."""
    parts = text.split("/")
    return any(len(part) > _MAX_NAME or _THREE_PARTS.fullmatch(part) or secrets.shape_of(part) for part in parts)


def fingerprint(content: str | bytes) -> str:
    """The SHA-256 digest of a file's content, in the format of sha256sum."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def utc_now() -> datetime.datetime:
    """The current time of this machine, in UTC."""
    return datetime.datetime.now(datetime.UTC)


def _decode(part: str, name: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidToken(f"has a part ({name}) that is not base64url; it is truncated or was changed") from None


def _json_part(part: str, name: str) -> dict[str, t.Any]:
    try:
        document = json.loads(_decode(part, name).decode())
    except InvalidToken:
        raise
    except (ValueError, RecursionError):
        raise InvalidToken(f"has a part ({name}) that is not JSON; it is truncated or was changed") from None
    if not isinstance(document, dict):
        raise InvalidToken(f"has a part ({name}) that is not a JSON object; it is a different file")
    return document


def _time(claims: t.Mapping[str, t.Any], name: str, warnings: list[str]) -> datetime.datetime | None:
    value = claims.get(name)
    if value is None:
        return None
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError
        return datetime.datetime.fromtimestamp(value, datetime.UTC).replace(microsecond=0)
    except (ValueError, OverflowError, OSError):
        warnings.append(f"its claim {name} is not a time")
        return None


def _services(claims: t.Mapping[str, t.Any]) -> tuple[tuple[LicenseService, ...], str | None, list[str]]:
    """The services of each host, the type of the license server, and warnings about entries that are ignored."""
    instance = _map(claims.get("service_instance_configuration"))
    sets = {_key(item.get("idx")): item for item in map(_map, _list(instance.get("svc_port_set_list")))}
    services: list[LicenseService] = []
    warnings: list[str] = []
    for node in map(_map, _list(instance.get("node_url_list"))[:_MAX_HOSTS]):
        host, port = _split_host(node.get("url"))
        if not host:
            warnings.append("an entry for a license server has no valid host")
            continue
        ports = map(_map, _list(_map(sets.get(_key(node.get("svc_port_set_idx")))).get("svc_port_map"))[:_MAX_HOSTS])
        named = [
            LicenseService(host, _port(item.get("port")), _short(str(item.get("service") or ""), 32)) for item in ports
        ]
        services += named or [LicenseService(host, port, "")]
    hosts = {service.host for service in services}
    if not hosts:
        return (), None, warnings
    of_cloud = [host for host in hosts if host == _CLS_DOMAIN or host.endswith(f".{_CLS_DOMAIN}")]
    return tuple(services), CLS if of_cloud else DLS, warnings


def _split_host(url: t.Any) -> tuple[str, int | None]:
    """The host and the port of an address with or without a scheme; the host is empty if the value is not an address."""
    if not isinstance(url, str) or len(url) > 300:
        return "", None
    rest = url.strip().rpartition("://")[2].partition("/")[0]
    if rest.startswith("["):
        host, after = rest[1:].partition("]")[::2]
        return (host.lower(), _port(after.removeprefix(":") or None)) if HOST.fullmatch(host) else ("", None)
    host, port = rest.partition(":")[::2] if rest.count(":") == 1 else (rest, "")
    return (host.lower(), _port(port or None)) if HOST.fullmatch(host) else ("", None)


def _port(value: t.Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 5:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_PORT else None


def _verify(signed: bytes, signature: bytes, claims: t.Mapping[str, t.Any]) -> str:
    """Whether the signature matches the public key in the token itself; this detects changes, but does not identify the signer."""
    keys = _map(_map(claims.get("service_instance_public_key_configuration")).get("service_instance_public_key_me"))
    modulus, exponent = _integer(keys.get("mod"), 16), _integer(keys.get("exp"), 10)
    if modulus is None or exponent is None or not _KEY_BITS[0] <= modulus.bit_length() <= _KEY_BITS[1]:
        return UNKNOWN
    if not 2 < exponent <= _MAX_EXPONENT:
        return UNKNOWN
    size = (modulus.bit_length() + 7) // 8
    value = int.from_bytes(signature, "big")
    if len(signature) != size or value >= modulus:
        return INCONSISTENT
    digest = _SHA256_PREFIX + hashlib.sha256(signed).digest()
    expected = b"\x00\x01" + b"\xff" * (size - len(digest) - 3) + b"\x00" + digest
    decrypted = pow(value, exponent, modulus).to_bytes(size, "big")
    return CONSISTENT if hmac.compare_digest(decrypted, expected) else INCONSISTENT


def _integer(value: t.Any, base: int) -> int | None:
    """Convert a number or a string to an integer; None if it is neither, or if the string is too long for the largest key."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or len(value) > 4 * _KEY_BITS[1] // 8:
        return None
    try:
        return int(value, base)
    except ValueError:
        return None


def _map(value: t.Any) -> dict[str, t.Any]:
    return value if isinstance(value, dict) else {}


def _list(value: t.Any) -> list[t.Any]:
    return value if isinstance(value, list) else []


def _texts(value: t.Any) -> tuple[str, ...]:
    """The strings in a list, shortened."""
    return tuple(_short(item, 100) for item in _list(value) if isinstance(item, str) and item)


def _short(text: str, length: int) -> str:
    """The beginning of a string, in a form that can be encoded."""
    return text[:length].encode(errors="backslashreplace").decode()


def _key(value: t.Any) -> t.Any:
    """The value if it can be the key of a map; None for a list, a map, or any other value."""
    return value if isinstance(value, (str, int)) else None


# Composes and parses gridd.conf, the configuration file of the license client in a vGPU guest (pure).
#
# Source: NVIDIA Virtual GPU Client Licensing User Guide, "Configuration Parameters for vGPU Software on Linux"; NVIDIA's cloud-native-docs,
# install-gpu-operator-vgpu. An empty file is valid.

# The parameters that results and diffs show.
SHOWN = ("FeatureType", "ProxyServerAddress", "ProxyServerPort", "ServerAddress", "ServerPort")
_LICENSED = join_words([f"{value} ({product})" for value, product in FEATURE_TYPES.items() if value], "or")


def _unknown_feature_type(value: int) -> str | None:
    if value == 0:
        return f"requests no license, but each vGPU type needs one; use {_LICENSED}"
    return None if value in FEATURE_TYPES else f"is not known; use {_LICENSED}"


_PORTS = f"use a port from 1 to {MAX_PORT}"
_FEATURE_TYPE = Integer((_unknown_feature_type,))
_PORT = integer_between(1, MAX_PORT, _PORTS, _PORTS)
# The content of a new file.
GRIDD_CONF_HEADER = "# Managed by accel.gpu\n"


@dataclass(frozen=True)
class GriddOptions:
    """The declared parameters; None means that a parameter is not declared."""

    feature_type: int | None = None
    proxy_address: str | None = None
    proxy_port: int | None = None

    @property
    def parameters(self) -> dict[str, str]:
        """The declared parameters by their names in the file."""
        values = {
            "FeatureType": self.feature_type,
            "ProxyServerAddress": self.proxy_address,
            "ProxyServerPort": self.proxy_port,
        }
        return {name: str(value) for name, value in values.items() if value is not None}

    @classmethod
    def from_params(cls, params: t.Mapping[str, t.Any]) -> GriddOptions:
        """Create the object from the options of a module. An empty string counts as not declared; problems() reports invalid values."""
        given = {name: None if is_blank(params[name]) else params[name] for name in cls.__dataclass_fields__}
        return cls(
            _FEATURE_TYPE.coerce(given["feature_type"]), given["proxy_address"], _PORT.coerce(given["proxy_port"])
        )

    def problems(self) -> list[str]:
        """The problems in the options; each begins with the name of the option."""
        texts: list[str] = []
        for name, field in (("feature_type", _FEATURE_TYPE), ("proxy_port", _PORT)):
            if getattr(self, name) is not None:
                texts += field.problems(getattr(self, name), name)
        if self.proxy_address is not None and not HOST.fullmatch(self.proxy_address):
            texts.append("proxy_address: is not a host; use a name or an address without scheme, user and port")
        if (self.proxy_address is None) != (self.proxy_port is None):
            missing = "proxy_port" if self.proxy_port is None else "proxy_address"
            texts.append(f"{missing}: is missing; proxy_address and proxy_port must be set together")
        return texts


def with_parameters(text: str, parameters: t.Mapping[str, str]) -> str:
    """The content of the file with these parameters; all other lines are kept."""
    present = parse_gridd_conf(text)
    pending = {name: value for name, value in parameters.items() if present.get(name) != value}
    if not pending:
        return text
    changed = frozenset(pending)
    lines = []
    for line in text.removesuffix("\n").split("\n") if text else []:
        name = next(iter(parse_gridd_conf(line)), "")
        if name not in changed:
            lines.append(line)
        elif name in pending:
            lines.append(f"{name}={pending.pop(name)}")
    lines += [f"{name}={value}" for name, value in pending.items()]
    return "\n".join(lines) + "\n"


def is_managed_gridd_conf(text: str) -> bool:
    """Whether the collection has generated the file."""
    return text.startswith(GRIDD_CONF_HEADER.rstrip())


def parse_gridd_conf(text: str) -> dict[str, str]:
    """The parameters of a file, as strings; lines in any other format are ignored."""
    parameters: dict[str, str] = {}
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if equals and re.fullmatch(r"[A-Za-z]+", name.strip()):
            parameters[name.strip()] = value.strip().strip('"')
    return parameters


def feature_type_of(text: str) -> int | None:
    """The FeatureType of a file; None if it is missing or not valid."""
    value = parse_gridd_conf(text).get("FeatureType", "")
    return int(value) if value.isascii() and value.isdecimal() and len(value) <= 4 else None


def shown_gridd_conf(text: str) -> dict[str, str]:
    """The parameters that results and diffs may show."""
    return {name: value[:100] for name, value in parse_gridd_conf(text).items() if name in SHOWN}


def gridd_conf_warnings(text: str) -> list[str]:
    """A sentence for each parameter that has no effect with the NVIDIA License System."""
    parameters = parse_gridd_conf(text)
    texts = []
    if parameters.get("ServerAddress"):
        texts.append(
            "gridd.conf has ServerAddress, a parameter of the legacy license server, which current drivers do not support. Remove it."
        )
    path = parameters.get("ClientConfigTokenPath", "")
    if path and path.rstrip("/") != "/etc/nvidia/ClientConfigToken":
        texts.append(
            "gridd.conf has ClientConfigTokenPath, but the driver container has the token in /etc/nvidia/ClientConfigToken. Remove it."
        )
    return texts


# Checks whether the license client in a driver pod can reach a license server: name resolution, port and TLS (pure).
#
# NVIDIA's driver images contain curl (gpu-driver-container rhel9/Dockerfile and ubuntu24.04/install.sh). The manual page of curl documents the exit codes.
# The certificate is not checked, because the license client uses the key in the token, not the certificate, to decide whether it trusts the server.

DNS, TCP, TLS, PROXY, UNKNOWN_LAYER = "dns", "tcp", "tls", "proxy", "unknown"
_MAX_SECONDS = 10
_DEFAULT_PORT = 443
# The maximum number of servers to check. A highly available license server has fewer addresses.
_MAX_SERVERS = 8
_TIMES = "%{time_namelookup} %{time_connect} %{time_appconnect}"
_RESOLVE_PROXY, _RESOLVE, _CONNECT, _TIMEOUT, _RECEIVE, _PROXY_HANDSHAKE = 5, 6, 7, 28, 56, 97
_NOT_FOUND = (126, 127)
_MAX_TEXT = 200


@dataclass(frozen=True)
class Server:
    """A host and a port from the token."""

    host: str
    port: int

    @property
    def address(self) -> str:
        """Host and port as one string."""
        return _address(self.host, str(self.port))


@dataclass(frozen=True)
class ServiceCheck:
    """The result of checking one license server from one node. `layer` is the layer that failed; empty if none failed. `message` describes the failure."""

    address: str
    layer: str = ""
    message: str = ""

    @property
    def failed(self) -> bool:
        """Whether it is certain that the server cannot be reached."""
        return self.layer not in ("", UNKNOWN_LAYER)

    def as_dict(self) -> dict[str, t.Any]:
        """The result in the format that modules return; `reachable` is null if the check could not determine it."""
        reachable = None if self.layer == UNKNOWN_LAYER else not self.layer
        return {"address": self.address, "reachable": reachable, "layer": self.layer or None, "message": self.message}


def servers_of(services: t.Iterable[LicenseService]) -> list[Server]:
    """The license servers that provide the services of a token, without duplicates."""
    named = dict.fromkeys(Server(service.host, service.port or _DEFAULT_PORT) for service in services)
    return list(named)[:_MAX_SERVERS]


def proxy_of(config: str) -> str:
    """The proxy from gridd.conf that the license client uses; empty if gridd.conf contains none."""
    parameters = parse_gridd_conf(config)
    host, port = parameters.get("ProxyServerAddress", "").strip("[]"), parameters.get("ProxyServerPort", "")
    return _address(host, port) if host and port.isdecimal() else ""


def _address(host: str, port: str) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_command(server: Server, proxy: str) -> list[str]:
    """The command that checks a server. Like the license client, the command ignores the proxy in the environment."""
    way = ["--proxy", f"http://{proxy}"] if proxy else ["--noproxy", "*"]
    options = ["-sSkg", "-o", "/dev/null", "-m", str(_MAX_SECONDS), "-w", _TIMES]
    return ["curl", *options, *way, f"https://{server.address}/"]


def evaluate_check(server: Server, proxy: str, exit_code: int | None, output: str, error: str) -> ServiceCheck:
    """Evaluate the command's output. A server that has completed the TLS handshake counts as reachable, regardless of its response."""
    resolved, connected, encrypted = _times(output)
    text = _text(error) or f"exit code {exit_code}"
    if exit_code == 0 or encrypted:
        return ServiceCheck(server.address)
    if exit_code is None or exit_code in _NOT_FOUND:
        return unknown_check(server, text)
    if proxy and (exit_code in (_RESOLVE_PROXY, _CONNECT, _RECEIVE, _PROXY_HANDSHAKE) or not connected):
        remedy = "Check gpu_licensing_proxy_address and gpu_licensing_proxy_port, and verify that the proxy allows connections to this server"
        return ServiceCheck(
            server.address, PROXY, f"{server.address} cannot be reached through the proxy {proxy} ({text}). {remedy}."
        )
    if exit_code == _RESOLVE or (exit_code == _TIMEOUT and not resolved and ":" not in server.host):
        remedy = "Check the DNS servers of the node and of the cluster, and the name of the license server in the token"
        return ServiceCheck(server.address, DNS, f"The name {server.host} cannot be resolved ({text}). {remedy}.")
    if exit_code == _CONNECT or not connected:
        remedy = (
            "Allow the connection in firewalls and network policies, and check the route and whether nodes need a proxy (gpu_licensing_proxy_address). The "
            "port is 443 in CLS, and 443 or 8082 in DLS"
        )
        return ServiceCheck(server.address, TCP, f"Cannot connect to {server.address} ({text}). {remedy}.")
    remedy = "Check that this is the port of the license server, and that no firewall intercepts TLS"
    return ServiceCheck(
        server.address, TLS, f"{server.address} accepts connections, but the TLS handshake fails ({text}). {remedy}."
    )


def unknown_check(server: Server, text: str) -> ServiceCheck:
    """The result for a server that could not be checked, for example because the image has no curl."""
    return ServiceCheck(server.address, UNKNOWN_LAYER, f"{server.address} could not be checked from the node: {text}.")


def are_unreachable(checks: t.Collection[ServiceCheck]) -> bool:
    """Whether no license server can be reached; one reachable server is sufficient for a license."""
    return bool(checks) and all(check.failed for check in checks)


def _times(output: str) -> tuple[bool, bool, bool]:
    """Whether the name was resolved, the connection was established, and the TLS handshake was completed."""
    try:
        resolved, connected, encrypted = (float(word.replace(",", ".")) > 0 for word in output.split())
    except ValueError:
        return False, False, False
    return resolved, connected, encrypted


def _text(error: str) -> str:
    """The last line of an error, without its prefix and the period at its end."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    text = lines[-1] if lines else ""
    dummy, separator, rest = text.partition(") ")
    return (rest if text.startswith("curl: (") and separator else text)[:_MAX_TEXT].rstrip(".")
