# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The initial data of the account: project, networks, keys, and a cluster without GPUs."""

from __future__ import annotations

import functools
import uuid
from typing import Any

from .. import flavors
from ..systems import KUBELET
from .state import Row, stamp

_NAMESPACE = uuid.UUID("b6a2f1c4-3f0b-4c59-8a5e-51d0a3f6e7aa")
ZONES = ("HCM03-1A", "HCM03-1B", "HCM03-1C")
# The first is the initial version of clusters, the last is a future version.
VERSIONS = ("v1.35.6", KUBELET, "v1.37.1")
IMAGES = {
    "ubuntu": "Ubuntu with containerd",
    "linux": "Container-Optimized OS with containerd",
    "rocky": "Rocky with containerd",
}


def stable_id(prefix: str, name: str) -> str:
    """Return the id of an initial object, which is the same in every lab."""
    return f"{prefix}-{uuid.uuid5(_NAMESPACE, f'{prefix} {name}')}"


PROJECT = stable_id("pro", "lab")
NETWORK = stable_id("net", "lab")


def image(system: str, version: str) -> str:
    """Return the image id of an operating system for a version."""
    return stable_id("img", f"{system} {version}")


@functools.cache
def volume_types() -> list[Row]:
    """Return the volume types by zone; names and numbers are from VNG Cloud's documentation, ids are invented."""
    kinds = {
        "NVME": (("nvme-iops3000", 3000, 200), ("nvme-iops5000", 5000, 400)),
        "SSD": (("ssd-iops3000", 3000, 200),),
    }
    return [
        {
            "id": stable_id("vtype", f"{zone} {name}"),
            "name": name,
            "iops": iops,
            "minSize": 1,
            "maxSize": 10000 if kind == "NVME" else 5000,
            "throughPut": throughput,
            "zoneId": stable_id("vtz", f"{zone} {kind}"),
            "zone": zone,
            "kind": kind,
        }
        for zone in ZONES
        for kind, named in kinds.items()
        for name, iops, throughput in named
    ]


@functools.cache
def flavors_offered() -> list[Row]:
    """Return the flavors in vServer's format, which contains the number of GPUs; only the flavor name contains the model."""
    rows = []
    for name, flavor in flavors.load().items():
        if offered := flavor.offers.get("vks"):
            machine = flavor.machine
            rows.append(
                {
                    "flavorId": offered["id"],
                    "name": name,
                    "cpu": machine.cpus,
                    "memory": int(machine.memory.removesuffix("Gi")),
                    "gpu": machine.gpus,
                    "group": "GPU" if machine.gpus else "General Code S",
                    "remainingVms": 20,
                    "isSoldOut": False,
                    "zoneId": offered["zone"],
                }
            )
    return rows


def new_account(name: str, version: str) -> Row:
    """Return a new account with one cluster."""
    vpc = {"id": NETWORK, "displayName": "lab", "cidr": "10.81.0.0/16", "status": "ACTIVE", "dnsStatus": "ENABLED"}
    other = {
        "id": stable_id("net", "other"),
        "displayName": "other",
        "cidr": "10.99.0.0/16",
        "status": "ACTIVE",
        "dnsStatus": "DISABLED",
    }
    return {
        "serial": 0,
        "networks": [vpc, other],
        "subnets": _subnets(),
        "keys": [_key(name) for name in ("lab", "other", "twin", "twin ")],
        "security_groups": [
            _security_group("default", system=True),
            _security_group("gpu-nodes"),
            _security_group("twin"),
            _security_group("twin", "second "),
            {**_security_group("going"), "status": "DELETING"},
        ],
        "server_groups": [
            {"uuid": stable_id("sg", "apart"), "name": "apart", "policyName": "anti-affinity", "serverGroupId": 1}
        ],
        "clusters": {stable_id("k8s", name): cluster(stable_id("k8s", name), name, version=version)},
        "groups": {},
        "events": {},
        "failed_logins": {},
    }


def cluster(identity: str, name: str, *, version: str, **fields: Any) -> Row:
    """Return an ACTIVE cluster with the given fields."""
    return {
        "id": identity,
        "name": name,
        "description": "",
        "status": "ACTIVE",
        "releaseChannel": "STABLE",
        "enablePrivateCluster": False,
        "azStrategy": "SINGLE",
        "version": version,
        "createdAt": stamp(),
        "updatedAt": None,
        "networkType": "TIGERA",
        "vpcId": NETWORK,
        "subnetId": stable_id("sub", "a"),
        "listSubnetIds": [stable_id("sub", "a")],
        "secondarySubnets": [],
        "cidr": "172.16.0.0/16",
        "nodeNetmaskSize": None,
        "enabledLoadBalancerPlugin": True,
        "enabledBlockStoreCsiPlugin": True,
        "enabledServiceEndpoint": False,
        "whitelistNodeCIDRs": ["0.0.0.0/0"],
        "poc": False,
        "autoRenewal": True,
        "autoUpgradeConfig": None,
        "autoHealingConfig": None,
        **fields,
    }


def first_group() -> Row:
    """Return the request body of the initial node group of the lab's cluster."""
    return {
        "name": "default-worker",
        "numNodes": 2,
        "os": "ubuntu",
        "flavorId": next(row["flavorId"] for row in flavors_offered() if row["name"] == "s-general-8x16"),
        "diskSize": 100,
        "diskType": next(row["id"] for row in volume_types() if row["zone"] == ZONES[0]),
        "enablePrivateNodes": False,
        "securityGroups": [],
        "sshKeyId": stable_id("ssh", "lab"),
        "upgradeConfig": {"strategy": "SURGE", "maxSurge": 1, "maxUnavailable": 0},
    }


def _subnets() -> list[Row]:
    named = [("a", 0, "ACTIVE"), ("b", 1, "ACTIVE"), ("c", 2, "ACTIVE"), ("going", 0, "DELETING")]
    subnets = [
        _subnet(name, NETWORK, 16 * number, ZONES[zone], status) for number, (name, zone, status) in enumerate(named)
    ]
    return [*subnets, _subnet("elsewhere", stable_id("net", "other"), 0, ZONES[0], "ACTIVE")]


def _subnet(name: str, network: str, third: int, zone: str, status: str) -> Row:
    return {
        "uuid": stable_id("sub", name),
        "name": name,
        "cidr": f"10.{81 if network == NETWORK else 99}.{third}.0/20",
        "status": status,
        "networkUuid": network,
        "zone": {"uuid": zone, "name": zone},
        "secondarySubnets": [{"uuid": stable_id("ssub", name), "name": f"{name}-pods", "cidr": f"10.90.{third}.0/20"}],
    }


def _key(name: str) -> Row:
    return {
        "id": stable_id("ssh", name),
        "name": name.strip(),
        "status": "ACTIVE",
        "pubKey": f"ssh-ed25519 AAAA {name.strip()}",
    }


def _security_group(name: str, which: str = "", *, system: bool = False) -> Row:
    made = f"{which}{name}"
    return {"id": stable_id("secg", made), "name": name, "description": made, "status": "ACTIVE", "system": system}
