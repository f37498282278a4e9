# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The users of registry-tls, their passwords, and their hashes for the registry."""

from __future__ import annotations

import ctypes
import json
import secrets
import string
from pathlib import Path

from ..errors import LabError
from ..files import write_private
from ..layout import Lab
from .layout import folder

# The first one is exported by `lab env`. The registry has no permissions per user: each may read and write everything.
USERS = ("lab", "other")
# The lowest cost that bcrypt has, because the registry hashes the password again for each request.
_COST = 4
_ALPHABET = f"./{string.ascii_letters}{string.digits}"
# The last character of a salt encodes only two bits.
_LAST = ".Oeu"
# Debian and Fedora; musl has the function in its C library (None).
_LIBRARIES = ("libcrypt.so.1", "libcrypt.so.2", None)


def create(lab: Lab) -> None:
    """Create the passwords, once per lab, and the files that the registry and its clients read."""
    users = folder(lab) / "users.json"
    if not users.exists():
        write_private(users, json.dumps({user: secrets.token_urlsafe(24) for user in USERS}, indent=2) + "\n")
    known = passwords(lab)
    write_private(password_file(lab), known[USERS[0]])
    write_private(htpasswd(lab), "".join(f"{user}:{bcrypt(password)}\n" for user, password in known.items()))


def passwords(lab: Lab) -> dict[str, str]:
    """Return the passwords, by user."""
    users: dict[str, str] = json.loads((folder(lab) / "users.json").read_text())
    return users


def password_file(lab: Lab) -> Path:
    """Return the file with the password of the first user, without a newline."""
    return folder(lab) / "password"


def htpasswd(lab: Lab) -> Path:
    """Return the file with the hashes."""
    return folder(lab) / "htpasswd"


def bcrypt(password: str) -> str:
    """Return a bcrypt hash, the only kind that the registry accepts; the standard library has none."""
    salt = "".join(secrets.choice(_ALPHABET) for _ in range(21)) + secrets.choice(_LAST)
    for library in _LIBRARIES:
        try:
            crypt = ctypes.CDLL(library).crypt
        except (OSError, AttributeError):
            continue
        crypt.restype = ctypes.c_char_p
        crypt.argtypes = (ctypes.c_char_p, ctypes.c_char_p)
        hashed: bytes | None = crypt(password.encode(), f"$2b${_COST:02}${salt}".encode())
        if hashed and hashed.startswith(b"$2b$"):
            return hashed.decode()
    raise LabError("no libcrypt with bcrypt: install it (apt install libcrypt1)")
