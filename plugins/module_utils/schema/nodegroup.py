# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of nodes that a run makes: gpu_cluster.cloud, and a pool's `nodes` and `autoscale`."""

from __future__ import annotations

import dataclasses
import typing as t

from . import validators
from .types import Boolean, Field, Integer, ListOf, MapOf, Section, Text

MAGNUM, VKS = "magnum", "vks"
PROVIDERS = {MAGNUM: "Magnum", VKS: "VKS"}
# The label by which Magnum tells whose a node is (magnum, doc/source/user/node-groups.rst).
NODEGROUP_LABEL = "magnum.openstack.org/nodegroup"
# Kubernetes is tested up to so many (its documentation, "Considerations for large clusters").
_MOST_NODES = 5000


class Optional(Section):
    """A map that is there or not: left out, it has no defaults either."""

    def complete(self, value: t.Any) -> t.Any:
        """Nothing for nothing."""
        return None if value is None else super().complete(value)


@dataclasses.dataclass(frozen=True)
class OptionalList(ListOf):
    """A list that is there or not: an empty one is something else than none."""

    def complete(self, value: t.Any) -> t.Any:
        """Nothing for nothing."""
        return None if value is None else super().complete(value)


CLOUD = Optional(
    fields={
        MAGNUM: Optional(
            fields={
                "cloud": Text(),
                "region_name": Text(),
                "cluster": Text(),
                "template": Text(),
                "nodegroup_label": Text((validators.label_key,), default=NODEGROUP_LABEL),
            }
        ),
        VKS: Optional(
            fields={
                "cluster": Text(),
                "region": Text(),
                "project_id": Text(),
                "iam_url": Text((validators.http_address,)),
                "vks_url": Text((validators.http_address,)),
                "vserver_url": Text((validators.http_address,)),
            }
        ),
    }
)


def _nodes(low: int, too_low: str) -> Integer:
    most = f"no cluster is made for more than {_MOST_NODES} nodes; give less"
    return Integer((validators.between(low, _MOST_NODES, too_low, most),))


def _not_master(value: str) -> str | None:
    return (
        "is the control plane's role, which Magnum gives no other group; choose another one"
        if value == "master"
        else None
    )


_COMMON: dict[str, Field] = {
    "name": Text(),
    "flavor": Text(required=True, missing="name the flavor of the nodes, which decides what GPUs they have"),
    "count": _nodes(0, "a group has 0 nodes or more; give such a number"),
    "recreate": Boolean(),
}
# By the options of the providers' modules.
_OF_MAGNUM: dict[str, Field] = {
    "image": Text(),
    "role": Text((_not_master,)),
    "labels": MapOf(item=Text(empty=True)),
    "merge_labels": Boolean(),
    "docker_volume_size": Integer(
        (
            validators.between(
                1, 2**31 - 1, "a volume has 1 GiB at least; give more", "no volume is so large; give less"
            ),
        )
    ),
}
_OF_VKS: dict[str, Field] = {
    "os": Text(),
    # VKS's schema (node-group create body).
    "disk_size": Integer(
        (validators.between(20, 5000, "VKS wants 20 GiB at least; give more", "VKS takes 5000 GiB at most; give less"),)
    ),
    "disk_type": Text(),
    "ssh_key": Text(),
    "subnet": Text(),
    "secondary_subnets": OptionalList(item=Text()),
    "security_groups": OptionalList(item=Text()),
    "private_nodes": Boolean(),
    "encrypted_volume": Boolean(),
    "tags": MapOf(item=Text(empty=True)),
    "upgrade_strategy": Optional(
        fields={
            "max_surge": Integer(
                (
                    validators.between(
                        1, 100, "VKS makes one node more at least; give 1", "VKS allows 100 at most; give less"
                    ),
                )
            ),
            "max_unavailable": Integer(
                (validators.between(0, 100, "0 is the least; give that", "VKS allows 100 at most; give less"),)
            ),
        }
    ),
    "kubernetes_version": Text(),
}
ONLY_OF = {MAGNUM: tuple(_OF_MAGNUM), VKS: tuple(_OF_VKS)}
COMMON = tuple(_COMMON)
# What the modules have as an option and a pool says in another place.
_ELSEWHERE = {
    **dict.fromkeys(("node_count", "num_nodes"), "write count"),
    **dict.fromkeys(
        ("min_node_count", "max_node_count", "min_size", "max_size", "autoscaling"),
        "say it by autoscale: {min, max} of the pool",
    ),
    "node_labels": "the labels of the pool are those of its nodes",
    **dict.fromkeys(("node_taints", "taints"), "the taints of the pool are those of its nodes"),
    "cluster": "it belongs under gpu_cluster.cloud",
}

NODES = Optional(fields={**_COMMON, **_OF_MAGNUM, **_OF_VKS}, hints=_ELSEWHERE)
AUTOSCALE = Optional(
    fields={
        "min": dataclasses.replace(
            _nodes(0, "a group has 0 nodes or more; give such a number"),
            required=True,
            missing="say how few nodes there may be",
        ),
        "max": dataclasses.replace(
            _nodes(1, "a group that may have no node needs no autoscaler; give 1 or more"),
            required=True,
            missing="say how many nodes there may be",
        ),
    }
)


def _no_name_for_all(value: str) -> str:
    return "has no place in the defaults; each node group has a name of its own"


# The defaults of pools that make nodes: any part, none required.
NODES_DEFAULTS = Optional(
    fields={
        **{name: dataclasses.replace(field, required=False) for name, field in NODES.fields.items()},
        "name": Text((_no_name_for_all,)),
    },
    hints=_ELSEWHERE,
)
AUTOSCALE_DEFAULTS = Optional(
    fields={name: dataclasses.replace(field, required=False) for name, field in AUTOSCALE.fields.items()}
)
