# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The services' databases: created and seeded once, then copied from the cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from ..api import in_parallel
from ..errors import LabError
from ..flavors import FILE as FLAVORS
from ..layout import LAB, REPO, Lab, cache
from ..lock import locked
from .layout import CLOUD, DATABASES, NAME, PASSWORD, REGION, database, folder, state, url

_PACKAGE = LAB / NAME
ENTRY = _PACKAGE / "entry"
# Written last: without this file the databases are incomplete.
_COMPLETE = "seeded"
_OTHER_FILES = ("fernet", "fernet-receipts", "images", "seed.json")


def environment(venv: Path) -> dict[str, str]:
    """Return the variables for every program of a virtual environment: the lab's code and a cache folder."""
    return {
        "PYTHONPATH": f"{REPO}:{ENTRY}",
        # pip's bytecode is beside the sources; no bytecode may be written beside the lab's code.
        "PYTHONPYCACHEPREFIX": "",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONWARNINGS": "ignore",
        "EVENTLET_NO_GREENDNS": "yes",
        "XDG_CACHE_HOME": str(venv / "cache"),
    }


def is_seeded(lab: Lab) -> bool:
    """Return whether the lab's databases contain the initial data of the cloud."""
    return (state(lab) / _COMPLETE).exists()


def prepare(lab: Lab, venv: Path, magnum: Path, release: str) -> None:
    """Prepare the lab's databases: the existing ones, or a copy of seeded ones, or new empty ones."""
    used = state(lab) / "magnum-release"
    if is_seeded(lab) and used.read_text() != release:
        raise LabError(
            f"lab '{lab.name}' has the database of Magnum {used.read_text()}, not of {release}: run 'lab/lab{lab.option}"
            f" reset' for a new database, or 'up --magnum {used.read_text()}' to use the existing one"
        )
    if not is_seeded(lab):
        shutil.rmtree(state(lab), ignore_errors=True)
        seed = _seed(venv, magnum)
        if (seed / _COMPLETE).exists():
            shutil.copytree(seed, state(lab))
            os.utime(seed)
        else:
            state(lab).mkdir(mode=0o700, parents=True)
            _create(lab, venv, magnum)
        used.write_text(release)
    # The ports can change with each start.
    _update_addresses(lab)


def keep(lab: Lab, venv: Path, magnum: Path) -> None:
    """Mark the databases as seeded, and copy them to the cache for later labs."""
    (state(lab) / _COMPLETE).touch()
    target = _seed(venv, magnum)
    with locked(cache() / f"{NAME}-seed.lock", "caching the databases of a cloud"):
        # Another lab that started at the same time can have cached its copy, which a third lab may already read.
        if (target / _COMPLETE).exists():
            return
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(mode=0o700)
        for name in DATABASES:
            with (
                closing(sqlite3.connect(database(lab, name))) as live,
                closing(sqlite3.connect(target / f"{name}.sqlite")) as copy,
            ):
                live.backup(copy)
                copy.execute("PRAGMA journal_mode = WAL")
        for name in _OTHER_FILES:
            live_path = state(lab) / name
            (shutil.copytree if live_path.is_dir() else shutil.copy2)(live_path, target / name)
        (target / _COMPLETE).touch()


def _seed(venv: Path, magnum: Path) -> Path:
    """Return the cache folder of the seeded databases; its name ends in a hash of everything that determines their content."""
    digest = hashlib.sha256(f"{venv.name} {magnum.name}".encode())
    for source in (*(_PACKAGE / f"{name}.py" for name in ("seed", "databases", "config", "layout", "schema")), FLAVORS):
        digest.update(source.read_bytes())
    return cache() / f"{NAME}-seed-{digest.hexdigest()[:16]}"


def _create(lab: Lab, venv: Path, magnum: Path) -> None:
    """Create empty databases, three at a time."""
    conf = folder(lab)
    for name in ("fernet", "fernet-receipts", "images", "staging", "tasks"):
        (state(lab) / name).mkdir(mode=0o700)
    keystone = [str(venv / "bin" / "keystone-manage"), "--config-file", str(conf / "keystone" / "keystone.conf")]
    nova = [str(venv / "bin" / "nova-manage"), "--config-file", str(conf / "nova" / "nova.conf")]
    glance = [str(venv / "bin" / "glance-manage"), "--config-file", str(conf / "glance" / "glance-api.conf")]
    me = ["--keystone-user", str(os.getuid()), "--keystone-group", str(os.getgid())]
    bootstrap = ["bootstrap", "--bootstrap-password", PASSWORD, "--bootstrap-region-id", REGION]
    bootstrap += ["--bootstrap-public-url", url(lab, "keystone"), "--bootstrap-internal-url"]
    schema = [str(magnum / "bin" / "python"), "-P", "-m", "lab.openstack.schema", str(conf / "magnum" / "magnum.conf")]
    calls: tuple[tuple[list[str], ...], ...] = (
        (
            [*keystone, "db_sync"],
            [*keystone, "fernet_setup", *me],
            [*keystone, *bootstrap, url(lab, "keystone", internal=True)],
        ),
        ([*nova, "api_db", "sync"], [*nova, "db", "sync", "--local_cell"]),
        ([*glance, "db", "sync"], schema),
    )

    def run(several: tuple[list[str], ...]) -> None:
        for one in several:
            _run(one, environment(venv))

    in_parallel(run, calls)
    for name in DATABASES:
        with closing(sqlite3.connect(database(lab, name))) as made:
            # Some of Magnum's reads remain open for long: with a write-ahead log they do not block writes.
            made.execute("PRAGMA journal_mode = WAL")


def _run(command: Sequence[str], values: Mapping[str, str]) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("OS_", "PYTHON"))}
    done = subprocess.run(
        command, env=kept | dict(values), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LabError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def _update_addresses(lab: Lab) -> None:
    """Write the lab's current addresses to Keystone's catalog and to Magnum's cluster."""
    with closing(sqlite3.connect(database(lab, "keystone"))) as connection, connection as keystone:
        for service in ("keystone", "glance", "nova", "magnum"):
            for interface in ("public", "internal"):
                where = url(lab, service, internal=interface == "internal")
                keystone.execute(
                    "UPDATE endpoint SET url = ? WHERE interface = ? AND service_id IN (SELECT id FROM service WHERE"
                    " json_extract(extra, '$.name') = ?)",
                    (where, interface, service),
                )
    with closing(sqlite3.connect(database(lab, CLOUD))) as connection, connection as magnum:
        magnum.execute(
            "UPDATE cluster SET api_address = ? WHERE name = ? AND api_address LIKE 'https://127.0.0.1:%'",
            (f"https://127.0.0.1:{lab.ports()['kube-apiserver']}", lab.name),
        )
