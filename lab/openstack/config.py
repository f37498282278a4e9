# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the configuration of the services and of their clients."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import yaml

from ..layout import Lab
from .layout import PASSWORD, POOL, REGION, clients, database, folder, state, url

Sections = dict[str, dict[str, str]]
_DOMAIN = "Default"
_POLICY = "policy.yaml"
# Cloud -> user and project; seed.py defines their roles.
CLOUDS = {
    "lab": ("demo", "demo"),
    "lab-admin": ("admin", "admin"),
    "lab-other": ("other", "other"),
    "lab-reader": ("reader", "demo"),
}
APPLICATION_CREDENTIAL = "lab-appcred"


def write(lab: Lab, venv: Path, magnum: Path) -> None:
    """Write the configuration of the services, which are installed in these virtual environments."""
    files = {
        "keystone/keystone.conf": _keystone(lab),
        "glance/glance-api.conf": _glance(lab, venv),
        "nova/nova.conf": _nova(lab),
        "magnum/magnum.conf": _magnum(lab, magnum),
    }
    (folder(lab) / f"{_POLICY}.d").mkdir(parents=True, exist_ok=True)
    (folder(lab) / _POLICY).write_text("{}\n")
    for name, sections in files.items():
        path = folder(lab) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"[{name}]\n{_lines(values)}\n" for name, values in sections.items()))
    shutil.copyfile(venv / "etc" / "nova" / "api-paste.ini", folder(lab) / "nova" / "api-paste.ini")


def write_clients(lab: Lab, application_credential: Mapping[str, str]) -> None:
    """Write clouds.yaml for clients."""
    clouds: dict[str, object] = {
        cloud: _cloud(lab, {"username": user, "password": PASSWORD, "project_name": project} | _domains())
        for cloud, (user, project) in CLOUDS.items()
    }
    named = {f"application_credential_{key}": value for key, value in application_credential.items()}
    clouds[APPLICATION_CREDENTIAL] = {"auth_type": "v3applicationcredential", **_cloud(lab, named)}
    path = clients(lab)
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump({"clouds": clouds}, sort_keys=False))


def _cloud(lab: Lab, auth: Mapping[str, str]) -> dict[str, object]:
    return {"region_name": REGION, "auth": {"auth_url": url(lab, "keystone"), **auth}}


def _domains() -> dict[str, str]:
    return {"user_domain_name": _DOMAIN, "project_domain_name": _DOMAIN}


def _lines(values: Mapping[str, str]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in values.items())


def _keystone(lab: Lab) -> Sections:
    return {
        "DEFAULT": {"use_stderr": "true"},
        # One day; the fault token-expiry overrides it.
        "token": {"provider": "fernet", "expiration": "86400"},
        "fernet_tokens": {"key_repository": str(state(lab) / "fernet")},
        "fernet_receipts": {"key_repository": str(state(lab) / "fernet-receipts")},
        # Without a cache a call takes 75 to 300 ms; with the default 12 rounds of bcrypt a password check takes 0.25 s.
        "cache": {"enabled": "true", "backend": "dogpile.cache.memory"},
        "identity": {"password_hash_rounds": "4"},
        "oslo_policy": _policy(lab),
        "database": _database(lab, "keystone"),
    }


def _glance(lab: Lab, venv: Path) -> Sections:
    stores = {name: state(lab) / name for name in ("images", "staging", "tasks")}
    return {
        "DEFAULT": {
            "use_stderr": "true",
            "worker_self_reference_url": url(lab, "glance"),
            "enabled_backends": "local:file",
            "enabled_import_methods": "[]",
            "node_staging_uri": f"file://{stores['staging']}",
        },
        "paste_deploy": {"flavor": "keystone", "config_file": str(venv / "etc" / "glance" / "glance-api-paste.ini")},
        "glance_store": {"default_backend": "local"},
        "local": {"filesystem_store_datadir": str(stores["images"])},
        "os_glance_staging_store": {"filesystem_store_datadir": str(stores["staging"])},
        "os_glance_tasks_store": {"filesystem_store_datadir": str(stores["tasks"])},
        "oslo_policy": _policy(lab),
        "database": _database(lab, "glance"),
        "keystone_authtoken": _service_user(lab, "glance"),
    }


def _nova(lab: Lab) -> Sections:
    return {
        "DEFAULT": {
            "use_stderr": "true",
            "state_path": str(state(lab)),
            "host": "lab",
            "transport_url": "fake:/",
        },
        "oslo_concurrency": {"lock_path": str(state(lab))},
        "oslo_policy": _policy(lab),
        "api_database": _database(lab, "nova_api"),
        "database": _database(lab, "nova"),
        "keystone_authtoken": _service_user(lab, "nova"),
        # Nova's default of 20 cores is less than one GPU node has.
        "quota": {"instances": "1000", "cores": "100000", "ram": "1000000000"},
    }


def _magnum(lab: Lab, venv: Path) -> Sections:
    inside = {"endpoint_type": "internalURL", "region_name": REGION}
    login = {"auth_type": "password", "username": "magnum", "password": PASSWORD, "project_name": "service"}
    return {
        "DEFAULT": {
            "use_stderr": "true",
            "host": "lab",
            "state_path": str(state(lab)),
            # The API and the conductor are one process.
            "transport_url": "fake:/",
        },
        "api": {"api_paste_config": str(venv / "etc" / "magnum" / "api-paste.ini")},
        # Keys are stored in the database, without Barbican.
        "certificates": {"cert_manager_type": "x509keypair"},
        "oslo_messaging_notifications": {"driver": "noop"},
        "keystone_auth": {"auth_url": url(lab, "keystone", internal=True), **login, **_domains()},
        **{f"{service}_client": inside for service in ("magnum", "nova", "glance", "cinder")},
        # Up to Magnum 21: the users of clusters, which the lab does not use.
        "trust": {
            "trustee_domain_name": "magnum",
            "trustee_domain_admin_name": "magnum-domain-admin",
            "trustee_domain_admin_password": PASSWORD,
            "trustee_keystone_interface": "internal",
        },
        "oslo_policy": _policy(lab),
        "database": _database(lab, "magnum"),
        "keystone_authtoken": _service_user(lab, "magnum"),
    }


def _service_user(lab: Lab, service: str) -> dict[str, str]:
    return {
        "www_authenticate_uri": url(lab, "keystone"),
        "auth_url": url(lab, "keystone", internal=True),
        "interface": "internal",
        "auth_type": "password",
        "username": service,
        "password": PASSWORD,
        "project_name": "service",
        **_domains(),
        "region_name": REGION,
    }


def _database(lab: Lab, name: str) -> dict[str, str]:
    return {"connection": f"sqlite:///{database(lab, name)}?plugin={POOL}", "sqlite_synchronous": "false"}


def _policy(lab: Lab) -> dict[str, str]:
    """Return the settings of an empty policy file: without a file, each request searches all folders for one."""
    return {"policy_file": str(folder(lab) / _POLICY), "policy_dirs": str(folder(lab) / f"{_POLICY}.d")}
