# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The passwords of registry-tls."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import LabError
from lab.layout import Lab
from lab.registry import layout, logins


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab.named("own", tmp_path)
    layout.folder(lab).mkdir()
    return lab


def test_passwords_are_created_once_and_private(lab: Lab) -> None:
    logins.create(lab)
    first = logins.passwords(lab)
    assert first.keys() == set(logins.USERS)
    assert len(set(first.values())) == len(logins.USERS)
    assert logins.password_file(lab).read_text() == first[logins.USERS[0]]
    logins.create(lab)
    assert logins.passwords(lab) == first
    assert {path.stat().st_mode & 0o777 for path in layout.folder(lab).iterdir()} == {0o600}
    hashes = dict(line.split(":", 1) for line in logins.htpasswd(lab).read_text().splitlines())
    assert hashes.keys() == first.keys()
    assert not [password for password in first.values() if password in logins.htpasswd(lab).read_text()]


def test_bcrypt_has_a_salt() -> None:
    hashes = {logins.bcrypt("secret") for _ in range(3)}
    assert len(hashes) == 3
    assert {(len(one), one[:7]) for one in hashes} == {(60, "$2b$04$")}


def test_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "_LIBRARIES", ("libabsent.so.1",))
    with pytest.raises(LabError, match="apt install libcrypt1"):
        logins.bcrypt("secret")
