# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the services of a lab's OpenStack are: ports, files, users; with the standard library alone."""

from __future__ import annotations

from pathlib import Path

from ..layout import Lab

NAME, CLOUD = "openstack", "magnum"
REGION = "RegionOne"
# Everybody's: all of it is on loopback, and gone with the lab.
PASSWORD = "labpass"
SERVICES = ("keystone", "glance", "nova", "magnum")
_PATHS = {"keystone": "/v3", "nova": "/v2.1", "magnum": "/v1"}
# entry/accel_gpu_lab.dist-info calls pool.py so.
POOL = "accel_gpu_lab_pool"
DATABASES = ("keystone", "glance", "nova_api", "nova", "magnum")


def url(lab: Lab, service: str, *, internal: bool = False) -> str:
    """Return the address of a service's API, for clients of the cloud or for the services among themselves."""
    port = lab.ports()[f"{service}-internal" if internal else service]
    return f"http://127.0.0.1:{port}{_PATHS.get(service, '')}"


def folder(lab: Lab) -> Path:
    """Return the folder of the services' configuration, written anew at each start."""
    return lab.dir / NAME


def state(lab: Lab) -> Path:
    """Return the folder of all that the services remember."""
    return lab.clouds / NAME


def database(lab: Lab, name: str) -> Path:
    """Return the file of one of DATABASES."""
    return state(lab) / f"{name}.sqlite"


def clients(lab: Lab) -> Path:
    """Return the clouds.yaml that users of the lab's clouds read."""
    return folder(lab) / "clouds.yaml"
