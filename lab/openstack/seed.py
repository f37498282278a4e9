# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The initial data of the cloud, created by the services' own APIs."""

from __future__ import annotations

import json
import uuid
from typing import Any

from .. import flavors
from ..fleet import Group
from ..layout import Lab
from .layout import PASSWORD, REGION, SERVICES, state, url
from .rest import Rest

FLAVOR_IDS = uuid.UUID("5f0f5a0c-6d2b-4b5e-9a50-2f6f0c1f2a11")
_TYPES = {"glance": "image", "nova": "compute", "magnum": "container-infra"}
# User -> project and roles in it. The services' own policies define the permissions of a reader.
_USERS = {"demo": ("demo", ["member"]), "other": ("other", ["member"]), "reader": ("demo", ["reader"])}
_PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl lab"
# Image -> its properties; Magnum selects the driver by os_distro, and has one for ubuntu.
_IMAGES = {
    "ubuntu-k8s": {"os_distro": "ubuntu", "os_version": "24.04", "kube_version": "v1.36.4"},
    "ubuntu-k8s-1.35": {"os_distro": "ubuntu", "os_version": "24.04", "kube_version": "v1.35.6"},
    "coreos-k8s": {"os_distro": "fedora-coreos", "os_version": "42", "kube_version": "v1.36.4"},
}
# Template -> image, and labels in addition to the common ones.
_TEMPLATES = {
    "k8s": ("ubuntu-k8s", {}),
    "k8s-gpu": ("ubuntu-k8s", {"nvidia_gpu_enabled": "true"}),
    "k8s-1.35": ("ubuntu-k8s-1.35", {"kube_tag": "v1.35.6"}),
}


def flavor_id(name: str) -> str:
    """Return Nova's id of a flavor, which is the same in every lab."""
    return str(uuid.uuid5(FLAVOR_IDS, name))


def populate(lab: Lab) -> None:
    """Create projects, users, a catalog, flavors, images, a key pair, templates and an application credential."""
    admin = Rest(lab)
    roles = {role["name"]: role["id"] for role in admin.get("keystone", "/roles")["roles"]}
    projects = {name: _project(admin, name) for name in ("service", "demo", "other")}
    for service in ("nova", "glance", "magnum"):
        _user(admin, service, projects["service"], [roles["admin"], roles["service"]])
    for name, (project, granted) in _USERS.items():
        _user(admin, name, projects[project], [roles[role] for role in granted])
    _trustees(admin, roles["admin"])
    for service in SERVICES:
        if service in _TYPES:
            _endpoints(lab, admin, service)
    for name, flavor in flavors.load().items():
        if offered := flavor.offers.get("magnum"):
            _flavor(admin, name, flavor.machine, offered)
    images = {name: _image(admin, name, properties) for name, properties in _IMAGES.items()}
    demo = Rest(lab, "demo", "demo")
    demo.post("nova", "/os-keypairs", {"keypair": {"name": "lab", "public_key": _PUBLIC_KEY}})
    for name, (image, labels) in _TEMPLATES.items():
        _template(admin, name, images[image], labels)
    made = demo.post(
        "keystone", f"/users/{demo.user_id}/application_credentials", {"application_credential": {"name": "lab"}}
    )["application_credential"]
    kept = {"application_credential": {key: made[key] for key in ("id", "secret")}, "projects": projects}
    (state(lab) / "seed.json").write_text(json.dumps(kept))


def _project(admin: Rest, name: str) -> str:
    body = {"project": {"name": name, "domain_id": "default"}}
    return str(admin.post("keystone", "/projects", body)["project"]["id"])


def _user(admin: Rest, name: str, project: str, roles: list[str]) -> None:
    body = {"user": {"name": name, "password": PASSWORD, "domain_id": "default"}}
    user = admin.post("keystone", "/users", body)["user"]["id"]
    for role in roles:
        admin.put("keystone", f"/projects/{project}/users/{user}/roles/{role}")


def _trustees(admin: Rest, role: str) -> None:
    """Create the domain in which Magnum up to 21 creates a user for each cluster."""
    domain = admin.post("keystone", "/domains", {"domain": {"name": "magnum"}})["domain"]["id"]
    body = {"user": {"name": "magnum-domain-admin", "password": PASSWORD, "domain_id": domain}}
    user = admin.post("keystone", "/users", body)["user"]["id"]
    admin.put("keystone", f"/domains/{domain}/users/{user}/roles/{role}")


def _endpoints(lab: Lab, admin: Rest, service: str) -> None:
    body = {"service": {"name": service, "type": _TYPES[service]}}
    made = admin.post("keystone", "/services", body)["service"]["id"]
    for interface in ("public", "internal"):
        where = url(lab, service, internal=interface == "internal")
        endpoint = {"service_id": made, "interface": interface, "url": where, "region_id": REGION}
        admin.post("keystone", "/endpoints", {"endpoint": endpoint})


def _flavor(admin: Rest, name: str, machine: Group, offered: dict[str, Any]) -> None:
    memory = int(machine.memory.removesuffix("Gi").removesuffix("Ti"))
    body = {
        "id": flavor_id(name),
        "name": name,
        "vcpus": machine.cpus,
        "ram": memory * (1024 if machine.memory.endswith("Gi") else 1024 * 1024),
        "disk": offered["disk"],
    }
    admin.post("nova", "/flavors", {"flavor": body})
    if specs := offered.get("extra_specs"):
        admin.post("nova", f"/flavors/{body['id']}/os-extra_specs", {"extra_specs": specs})


def _image(admin: Rest, name: str, properties: dict[str, str]) -> str:
    body = {"name": name, "disk_format": "raw", "container_format": "bare", "visibility": "public", **properties}
    image = str(admin.post("glance", "/v2/images", body)["id"])
    admin.put("glance", f"/v2/images/{image}/file", b"lab")
    return image


def _template(admin: Rest, name: str, image: str, labels: dict[str, str]) -> None:
    body = {
        "name": name,
        "coe": "kubernetes",
        "public": True,
        "image_id": image,
        "flavor_id": "m2.large",
        "master_flavor_id": "m2.medium",
        "network_driver": "calico",
        "docker_volume_size": 20,
        "labels": {"kube_tag": "v1.36.4", "monitoring_enabled": "true", **labels},
    }
    admin.post("magnum", "/clustertemplates", body)
