# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses, files and credentials of a lab's OpenStack; uses only the standard library."""

from __future__ import annotations

from pathlib import Path

from ..layout import Lab

NAME, CLOUD = "openstack", "magnum"
REGION = "RegionOne"
# The password of all users: the services listen only on loopback and are deleted with the lab.
PASSWORD = "labpass"
SERVICES = ("keystone", "glance", "nova", "magnum")
_PATHS = {"keystone": "/v3", "nova": "/v2.1", "magnum": "/v1"}
# The entry point name of pool.py in entry/accel_gpu_lab.dist-info.
POOL = "accel_gpu_lab_pool"
DATABASES = ("keystone", "glance", "nova_api", "nova", "magnum")


def url(lab: Lab, service: str, *, internal: bool = False) -> str:
    """Return the address of a service's API, for clients or, with `internal`, for the other services."""
    port = lab.ports()[f"{service}-internal" if internal else service]
    return f"http://127.0.0.1:{port}{_PATHS.get(service, '')}"


def folder(lab: Lab) -> Path:
    """Return the folder of the services' configuration, which each start rewrites."""
    return lab.dir / NAME


def state(lab: Lab) -> Path:
    """Return the folder of the services' state."""
    return lab.clouds / NAME


def database(lab: Lab, name: str) -> Path:
    """Return the file of one of DATABASES."""
    return state(lab) / f"{name}.sqlite"


def clients(lab: Lab) -> Path:
    """Return the path of clouds.yaml for users of the cloud."""
    return folder(lab) / "clouds.yaml"
