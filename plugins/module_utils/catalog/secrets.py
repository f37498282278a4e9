# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognizes secrets by the names of their fields, and by the formats of keys, tokens and passwords (pure).

docs/secrets.md lists the rules for users. `core/types.py` applies them to variables.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import typing as t
import urllib.parse

# Shown in place of a secret in options and results.
NOT_SHOWN = "(not shown)"
# The last words of a field's name, split at separators and capitals: `adminPassword`, `API_TOKEN`, `aws.secret-key`.
_SECRET_NAMES: frozenset[tuple[str, ...]] = frozenset(
    tuple(name.split())
    for name in (
        "password", "passwords", "passwd", "passphrase", "pwd", "pass", "pass phrase", "pass word",
        "token", "tokens", "credential", "credentials", "apikey", "secretkey", "accesskey", "privatekey",
        "api key", "secret key", "access key", "private key", "encryption key", "signing key", "shared key", "auth key",
        "license key", "ssh key", "access key id", "client secret", "shared secret", "app secret", "auth secret",
        "webhook secret", "connection string", "dockerconfigjson", "dockercfg", "basic auth", "string data",
    )
)  # fmt: skip
# A number can be a secret only in fields with these names.
_PASSWORDS = frozenset({"password", "passwords", "passwd", "passphrase", "pwd"})
# If the name of a field contains one of these words, a value that looks random is also a secret.
_SUGGESTING = frozenset(
    {"key", "keys", "auth", "secret", "secrets", "license", "licence", "pass", "cookie", "session", "salt", "jwt", "sas", "private"}
)  # fmt: skip
_NOT_SUGGESTING = frozenset({"public", "hash", "digest", "checksum", "fingerprint", "thumbprint"})

_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----")
_URL_USER = re.compile(r"\b[a-z][a-z0-9+.-]*://(?P<user>[^\s/?#@:]*):(?P<password>[^\s/?#@]+)@", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\([A-Za-z_]\w*\)|\$\{[A-Za-z_]\w*\}|\$[A-Z_][A-Z0-9_]*")
_AUTHORIZATION = re.compile(r"\b(?:bearer|basic)\s+(?=[A-Za-z0-9._~+/=-]*\d)[A-Za-z0-9._~+/-]{16,}=*", re.IGNORECASE)
_DOCKER_AUTHS = re.compile(r"[\"']auths[\"']\s*:\s*\{.*[\"'](?:auth|password|identitytoken)[\"']\s*:\s*[\"'][^\"']", re.DOTALL)  # fmt: skip
_JWT = re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*")
# Prefixes that make the tokens of services recognizable: NVIDIA NGC, OpenShift, GitHub, GitLab, Docker Hub, AWS, Slack,
# HashiCorp Vault, Google, npm, Hugging Face, OpenAI, age.
_KNOWN_TOKEN = re.compile(
    r"(?<![A-Za-z0-9_-])(?:nvapi-[A-Za-z0-9_-]{20,}|sha256~[A-Za-z0-9_-]{40,}|gh[opusr]_[A-Za-z0-9]{30,}|github_pat_\w{20,}"
    r"|glpat-[A-Za-z0-9_-]{20,}|dckr_pat_[A-Za-z0-9_-]{20,}|A[KS]IA[0-9A-Z]{16}|xox[abeprs]-[A-Za-z0-9-]{10,}|hv[sb]\.[A-Za-z0-9_-]{20,}"
    r"|AIza[A-Za-z0-9_-]{35}|npm_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{30,}|sk-[A-Za-z0-9_-]{32,}|AGE-SECRET-KEY-1[0-9A-Z]{50,})"
)
_RANDOM = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")
_HEX = re.compile(r"[0-9a-f]{32,}|[0-9A-F]{32,}")
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]{24,}={0,2}\s*")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[0-9]+")
# `name=value`, `name: value`, `"name": "value"`; the value is a lookahead, because it may itself contain a pair.
_NAMED = re.compile(r"(?<![\w.-])(?P<name>[\w.-]+)[\"']?\s*[:=]\s*[\"']?(?!\*\*\*(?:[\s\"',;]|$))(?=[^\s\"'])")
_OPTION = re.compile(r"(?<!\S)--?(?P<name>[A-Za-z][\w-]*)\s+(?!\*\*\*(?:\s|$))(?=\S)")
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}")
# The last words in the names of signed parameters (Azure: sig, AWS: X-Amz-Signature, Google: X-Goog-Signature).
_SIGNATURES = frozenset({"sig", "signature", "hmac"})
# This limit exceeds the length that a message quotes; it is needed because rejected text can have any length.
_MAX_CHECKED = 4096
# Bits per character; text with fewer bits consists of words and is not random.
_RANDOM_ENTROPY = 3.6
_MIN_KEY_LENGTH = 20


def words_of(name: str) -> tuple[str, ...]:
    """The words of a field's name in lower case; `imagePullSecret`, `IMAGE_PULL_SECRET` and `image-pull-secret` have the same words."""
    return tuple(word.lower() for word in _WORD.findall(name))


def names_a_secret(name: str) -> bool:
    """Whether a field with this name contains a secret; `secretName`, `tokenSecretRef` and `passwordFile` only refer to one."""
    words = words_of(name)
    return any(words[-count:] in _SECRET_NAMES for count in (1, 2, 3))


def names_a_password(name: str) -> bool:
    """Whether even a number would be a secret in a field with this name."""
    return bool(_PASSWORDS & set(words_of(name)[-1:]))


def suggests_a_secret(name: str) -> bool:
    """Whether a random-looking value of a field with this name is a secret."""
    words = set(words_of(name))
    return bool(words & _SUGGESTING) and not words & _NOT_SUGGESTING


def is_reference(text: str) -> bool:
    """Whether a string only refers to a value: it is empty, a variable that the program replaces, or a path."""
    return (
        not text.strip() or bool(_VARIABLE.fullmatch(text.strip())) or bool(re.fullmatch(r"(file://)?[/~][^\s]*", text))
    )


def shape_of(text: str) -> str | None:
    """The kind of secret that a string is or contains, regardless of the field's name; None if the string does not look like a secret."""
    plain = _shape(text)
    if plain or not _BASE64.fullmatch(text):
        return plain
    decoded = _decoded(text)
    return _shape(decoded) if decoded else None


def is_quotable(text: str) -> bool:
    """Whether a message may quote a string: no part of the string looks like a secret, or has the name of a secret."""
    start = text[:_MAX_CHECKED]
    return not any(_may_hold_secret(form) for form in (start, urllib.parse.unquote(start)))


def names_a_secret_parameter(name: str) -> bool:
    """Whether a parameter with this name, which may end with a number, contains a secret, or a signature, which counts as one."""
    plain = name.rstrip("0123456789_-.")
    return names_a_secret(plain) or suggests_a_secret(plain) or bool(_SIGNATURES & set(words_of(plain)[-1:]))


def address_holds_a_secret(address: str) -> bool:
    """Whether an address contains a user or a password, or a parameter whose name or format shows that it is a secret."""
    if shape_of(address) or without_user_info(address) != address:
        return True
    for parameter in re.split(r"[?&;#]", address)[1:]:
        name, dummy, value = (urllib.parse.unquote(part) for part in parameter.partition("="))
        named = bool(value) and names_a_secret_parameter(name)
        if named or any(shape_of(text) or _is_mixed(text) for text in (name, value)):
            return True
    return False


def without_user_info(address: str) -> str:
    """An address without its user and its password."""
    return re.sub(r"^((?:[A-Za-z][A-Za-z0-9+.-]*:)?//)?[^/?#]*@", lambda match: match[1] or "", address)


def looks_random(text: str) -> bool:
    """Whether a string is long and irregular like a key (hexadecimal, or letters of both cases and digits)."""
    if _HEX.fullmatch(text):
        return True
    if not _RANDOM.fullmatch(text):
        return False
    return _is_mixed(text) and "BEGIN CERTIFICATE" not in (_decoded(text) or "")


def is_docker_auth(text: str) -> bool:
    """Whether a string is the `auth` of a registry: a user and a password in base64."""
    decoded = _decoded(text)
    return bool(decoded and re.fullmatch(r"[^\s:]+:\S+", decoded))


def masked(text: str) -> str:
    """A line of another program's output with secrets masked: single words, and everything after the name of a secret."""
    line = text[:_MAX_CHECKED]
    ends = [
        match.end()
        for pattern in (_NAMED, _OPTION)
        for match in pattern.finditer(line)
        if names_a_secret_parameter(match["name"])
    ]
    line = f"{line[: min(ends)]}***" if ends else line
    line = " ".join(word if is_quotable(word) else "***" for word in line.split(" "))
    return line if is_quotable(line) else f"(text of {len(text)} characters; not shown)"


def _may_hold_secret(text: str) -> bool:
    named = (match["name"] for pattern in (_NAMED, _OPTION) for match in pattern.finditer(text))
    return bool(
        shape_of(text)
        or any(names_a_secret_parameter(name) for name in named)
        or _holds_user_info(text)
        or any(_is_mixed(word) for word in re.split(r"[^A-Za-z0-9+]+", text))
    )


def _holds_user_info(text: str) -> bool:
    """Whether a string contains `user:password@host` or `//user@host`, or is `user@host.domain`; image digests and masked users (`***`) do not count."""
    plain = _DIGEST.sub("", text).replace("***@", "")
    if re.search(r"//[^/]*@", plain) or re.fullmatch(r"\s*[^\s@]+@[^\s@]*[.:][^\s@]*\s*", plain):
        return True
    return any(at and ":" in user for user, at, dummy in (word.rpartition("@") for word in plain.split()))


def _shape(text: str) -> str | None:
    if _PRIVATE_KEY.search(text):
        return "a private key"
    if any(not _VARIABLE.fullmatch(match["password"]) for match in _URL_USER.finditer(text)):
        return "an address with a password"
    if _JWT.search(text) and any(_is_jwt(match[0]) for match in _JWT.finditer(text)):
        return "a token (JWT)"
    if _DOCKER_AUTHS.search(text):
        return "the credentials of a registry"
    if _KNOWN_TOKEN.search(text):
        return "a service's token"
    return "an authorization header" if _AUTHORIZATION.search(text) else None


def _is_jwt(text: str) -> bool:
    header = _decoded(text.partition(".")[0].replace("-", "+").replace("_", "/"))
    try:
        return isinstance(json.loads(header or ""), dict)
    except ValueError:
        return False


def _decoded(text: str) -> str | None:
    joined = "".join(text.split()).rstrip("=")
    try:
        return base64.b64decode(joined + "=" * (-len(joined) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def _is_mixed(text: str) -> bool:
    mixed = len(text) >= _MIN_KEY_LENGTH and all(re.search(kind, text) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    return mixed and _entropy(text) >= _RANDOM_ENTROPY


def _entropy(text: str) -> float:
    counts: t.Iterable[int] = (text.count(character) for character in set(text))
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts)
