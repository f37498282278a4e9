# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Client configuration tokens for tests, signed by a key of the tests. No license server accepts them."""

from __future__ import annotations

import base64
import functools
import json
import time
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

Object = dict[str, Any]
CLS_HOST = "api.cls.licensing.nvidia.com"


@functools.cache
def key(size: int = 2048) -> rsa.RSAPrivateKey:
    """The key of this process."""
    return rsa.generate_private_key(public_exponent=65537, key_size=size)


def claims(
    *hosts: str, expires_in: float = 30 * 86400, starts_in: float = -3600, now: float | None = None, **changes: Any
) -> Object:
    """The claims of a token; a change to None removes a claim."""
    moment = int(time.time() if now is None else now)
    numbers = key().public_key().public_numbers()
    ports = [{"service": "auth", "port": 443}, {"service": "lease", "port": 443}]
    found: Object = {
        "jti": "5a7f6bb2-0000-4000-8000-000000000001",
        "iss": "NLS Service Instance",
        "aud": "NLS Licensed Client",
        "iat": moment,
        "nbf": moment + int(starts_in),
        "exp": moment + int(expires_in),
        "protocol_version": "2.0",
        "update_mode": "ABSOLUTE",
        "scope_ref_list": ["5a7f6bb2-0000-4000-8000-000000000002"],
        "fulfillment_class_ref_list": [],
        "service_instance_configuration": {
            "nls_service_instance_ref": "5a7f6bb2-0000-4000-8000-000000000003",
            "svc_port_set_list": [{"idx": 0, "d_name": "DLS", "svc_port_map": ports}],
            "node_url_list": [
                {"idx": index, "url": host, "url_qr": host, "svc_port_set_idx": 0}
                for index, host in enumerate(hosts or ("dls.example.com",))
            ],
        },
        "service_instance_public_key_configuration": {
            "service_instance_public_key_me": {"mod": f"{numbers.n:x}", "exp": numbers.e},
            "key_retention_mode": "LATEST_ONLY",
        },
        **changes,
    }
    return {name: value for name, value in found.items() if value is not None}


def encode(data: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sign(payload: Object, header: Object | None = None) -> str:
    """A signed token with these claims."""
    parts = [encode(json.dumps(part).encode()) for part in (header or {"alg": "RS256", "typ": "JWT"}, payload)]
    signed = ".".join(parts)
    signature = key().sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{encode(signature)}"


def token(*hosts: str, **options: Any) -> str:
    """A token for these hosts; the options are those of claims()."""
    return sign(claims(*hosts, **options))
