# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of gpu_cluster, gpu_defaults and gpu_pools: a new field is one entry here, and a line in derive."""

from __future__ import annotations

import typing as t

from ..catalog import releases
from ..mig.layout import STRATEGIES
from ..nvidia_config.device_plugin import EXCLUSIVE, MODES
from . import validators
from .mig_layout import LayoutField
from .nodegroup import AUTOSCALE, AUTOSCALE_DEFAULTS, CLOUD, NODES, NODES_DEFAULTS
from .operator import OPERATOR, HelmValues
from .rollout import ROLLOUT
from .types import Anything, Boolean, Choice, Field, Integer, ListOf, MapOf, Section, Text

# The kubelet runs 110 pods on a node unless told otherwise, and 250 on OpenShift: more shares could never be used.
MOST_SHARES = 250
MOST_GPUS = 64
# Kubernetes is tested up to 5,000 nodes (its documentation, "Considerations for large clusters"), of 16 GPUs with 7 devices at most.
MOST_DEVICES = 5000 * 16 * 7

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _release(
    namespace: str, release: str, chart: str, chart_repo: str, version: str, more: t.Mapping[str, Field] | None = None
) -> Section:
    # Text in place of these maps is likely to be the lines of a file, secrets among them.
    return Section(
        quotes_text=False,
        fields={
            "version": Text((validators.release_version,), default=version),
            "namespace": Text((validators.dns_label,), default=namespace),
            "release": Text((validators.release_name,), default=release),
            "chart": Text((validators.chart,), default=chart),
            "chart_repo": Text((validators.chart_repo,), default=chart_repo, empty=True),
            "values": HelmValues(default={}, quotes_text=False),
            **(more or {}),
        },
    )


CLUSTER = Section(
    fields={
        "name": Text(
            required=True,
            missing="say what the kubeconfig calls this cluster, so that a run cannot reach the wrong one",
        ),
        "kube_name": Text(),
        "uid": Text((validators.uid,)),
        "renamed_from": Text(),
        # Empty, these would lead to whatever cluster the environment names.
        "kubeconfig": Text((validators.kubeconfig_path,), blank_is_unset=False),
        "context": Text(blank_is_unset=False),
        "impersonate_user": Text(),
        "impersonate_groups": ListOf(),
        "cloud": CLOUD,
        "operator": _release(
            namespace=releases.OPERATOR_NAMESPACE,
            release=releases.OPERATOR_RELEASE,
            chart=releases.OPERATOR_CHART,
            chart_repo=releases.OPERATOR_CHART_REPO,
            version=releases.OPERATOR_VERSION,
            more=OPERATOR,
        ),
        "nfd": _release(
            namespace=releases.NFD_NAMESPACE,
            release=releases.NFD_RELEASE,
            chart=releases.NFD_CHART,
            chart_repo="",
            version=releases.NFD_VERSION,
        ),
        "validation": Section(
            fields={
                "image": Text((validators.image,)),
                "namespace": Text((validators.dns_label,)),
            }
        ),
    }
)

_TAINT = Section(
    fields={
        "key": Text(
            (validators.label_key, validators.free_taint), required=True, missing="a taint has a key and an effect"
        ),
        "value": Text((validators.label_value, validators.text_to_helm), empty=True),
        "effect": Choice(known=EFFECTS, required=True, missing=f"choose one of {', '.join(EFFECTS)}"),
    }
)

_NONE_ASKED = "a demand is of one device at least; leave the profile out"
_TOO_MANY = "no cluster has so many GPUs; ask for less"

_SHARING = Section(
    fields={
        "mode": Choice(known=MODES, default=EXCLUSIVE, blank_is_unset=False),
        "replicas": Integer(
            (
                validators.between(
                    2,
                    MOST_SHARES,
                    "sharing needs at least 2 (NVIDIA device plugin); leave it out, with mode: none for whole GPUs",
                    f"more than {MOST_SHARES} pods do not run on one node (kubelet); share each GPU among fewer",
                ),
            ),
            blank_is_unset=False,
        ),
        "layout": LayoutField(),
        "demand": MapOf(
            keys=(validators.mig_profile,), item=Integer((validators.between(1, MOST_DEVICES, _NONE_ASKED, _TOO_MANY),))
        ),
        "strategy": Choice(known=STRATEGIES, blank_is_unset=False),
        "rename": Boolean(default=False, blank_is_unset=False),
        "fail_requests_greater_than_one": Boolean(default=True, blank_is_unset=False),
    }
)

POOL = Section(
    fields={
        "name": Text((validators.dns_label,), required=True, missing="every pool has a name of its own, a DNS label"),
        "match": Section(
            fields={
                "model": Text((validators.known_model,), blank_is_unset=False),
                "labels": MapOf(
                    keys=(validators.label_key, validators.not_the_pin),
                    item=Text((validators.label_value,), empty=True),
                ),
            }
        ),
        "model": Text((validators.known_model,)),
        "nodes": NODES,
        "autoscale": AUTOSCALE,
        "gpus_per_node": Integer(
            (
                validators.between(
                    1,
                    MOST_GPUS,
                    "without a GPU there is nothing to drive or to share; leave the pool out",
                    f"no node has more than {MOST_GPUS} GPUs; give the number of one node",
                ),
            )
        ),
        "labels": MapOf(
            keys=(validators.label_key, validators.free_label),
            item=Text((validators.label_value,), empty=True),
            default={},
        ),
        "taints": ListOf(item=_TAINT, blank_is_unset=False),
        "sharing": _SHARING,
        "rollout": ROLLOUT,
        "startup_taint": Boolean(default=False),
    }
)


def _no_name_of_its_own(value: str) -> str:
    return "has no place in the defaults; every pool has a name of its own"


def _no_layout_for_all(value: t.Any) -> str:
    return "has no place in the defaults; each pool says what its own GPUs are cut into"


def _no_demand_for_all(value: t.Any) -> str:
    return "has no place in the defaults; each pool says which MIG devices its own nodes offer together"


# What all pools have in common may be any part of a pool but its name.
DEFAULTS = Section(
    fields={
        **POOL.fields,
        "name": Text((_no_name_of_its_own,)),
        "nodes": NODES_DEFAULTS,
        "autoscale": AUTOSCALE_DEFAULTS,
        "sharing": Section(
            fields={
                **_SHARING.fields,
                "layout": LayoutField((_no_layout_for_all,)),
                "demand": Anything((_no_demand_for_all,)),
            }
        ),
    }
)
POOLS = ListOf(item=POOL)
