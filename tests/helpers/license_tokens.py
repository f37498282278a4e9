# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Synthetic client configuration tokens of NVIDIA's License System; no license server knows them.

`python3 -m tests.helpers.license_tokens` prints one.
"""

from __future__ import annotations

import base64
import functools
import json
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

DAY = 86400
DLS_HOST = "dls.example.com"
CLS_HOST = "api.cls.licensing.nvidia.com"


@functools.cache
def signing_key(name: str = "server") -> rsa.RSAPrivateKey:
    """Return a key for this run of the tests."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def token_claims(
    *,
    hosts: Sequence[str] = (DLS_HOST,),
    ports: Mapping[str, int] | None = None,
    service: str = "DLS",
    not_before: float = -DAY,
    expires: float = 365 * DAY,
    key: rsa.RSAPrivateKey | None = None,
    instance: str | None = None,
) -> dict[str, Any]:
    """Return all claims of a token of a license server; the times are seconds from now. By default, each first host is one service instance."""
    reference = str(uuid.uuid5(uuid.NAMESPACE_DNS, instance or hosts[0]))
    public = (key or signing_key()).public_key()
    numbers, now = public.public_numbers(), int(time.time())
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()
    port_map = [{"service": name, "port": port} for name, port in (ports or {"auth": 443, "lease": 443}).items()]
    return {
        "jti": str(uuid.uuid4()),
        "iss": "NLS Service Instance",
        "aud": "NLS Licensed Client",
        "iat": now + int(not_before),
        "nbf": now + int(not_before),
        "exp": now + int(expires),
        "protocol_version": "2.0",
        "update_mode": "ABSOLUTE",
        "scope_ref_list": [reference],
        "fulfillment_class_ref_list": [],
        "service_instance_configuration": {
            "nls_service_instance_ref": reference,
            "svc_port_set_list": [{"idx": 0, "d_name": service, "svc_port_map": port_map}],
            "node_url_list": [
                {"idx": index, "url": host, "url_qr": host, "svc_port_set_idx": 0} for index, host in enumerate(hosts)
            ],
        },
        "service_instance_public_key_configuration": {
            "service_instance_public_key_me": {"mod": f"{numbers.n:x}", "exp": numbers.e},
            "service_instance_public_key_pem": pem,
            "key_retention_mode": "LATEST_ONLY",
        },
    }


def sign_token(
    claims: Mapping[str, Any],
    *,
    key: rsa.RSAPrivateKey | None = None,
    header: Mapping[str, Any] | None = None,
) -> str:
    """Return claims as a JSON Web Token that is signed with RS256, whatever the header says."""
    signed = f"{_part(header or {'alg': 'RS256', 'typ': 'JWT'})}.{_part(claims)}"
    signature = (key or signing_key()).sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{_encode(signature)}"


def make_token(
    *,
    without: Collection[str] = (),
    changed: Mapping[str, Any] | None = None,
    key: rsa.RSAPrivateKey | None = None,
    **options: Any,
) -> str:
    """Return a valid token, without some claims and with changed ones; for the options see token_claims."""
    claims = token_claims(key=key, **options) | dict(changed or {})
    return sign_token({name: value for name, value in claims.items() if name not in without}, key=key)


def _part(value: Mapping[str, Any]) -> str:
    return _encode(json.dumps(value, separators=(",", ":")).encode())


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


if __name__ == "__main__":
    print(make_token())
