# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the documents to the plan: pure, and the only place where a value that two components share is made."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..catalog import mig as geometries
from ..catalog import models, names, releases
from ..catalog.taints import STARTUP_TAINT, plain_taint, toleration_of
from ..common.nested import get_nested
from ..mig import layout as mig
from ..nvidia_config import device_plugin, mig_parted, yaml_text
from ..nvidia_config.device_plugin import MIG, Sharing
from ..schema.matching import resolve_match
from .merge import merge
from .nodegroups import cloud_of, drain_options, nodegroup_spec, nodegroup_specs
from .operator_values import mirrored_image, nfd_values, operator_values
from .plan import (
    ClusterPlan,
    ConfigPlan,
    MigPlan,
    NodeGroupPlan,
    Plan,
    PolicyPlan,
    PoolPlan,
    Provides,
    Registration,
    ReleasePlan,
    Taint,
    Toleration,
    ValidationPlan,
    rollout_plan,
)
from .variables import load

Document = dict[str, t.Any]

# What every GPU workload tolerates: the taint under which GPU nodes usually stand.
_GPU_TOLERATION: Toleration = {"key": names.GPU_TAINT_KEY, "operator": "Exists", "effect": "NoSchedule"}
# As NVIDIA's own chart sets them for the NFD workers (gpu-operator: deployments/gpu-operator/values.yaml).
_CONTROL_PLANE_TOLERATIONS: tuple[Toleration, ...] = tuple(
    {"key": f"node-role.kubernetes.io/{role}", "operator": "Equal", "value": "", "effect": "NoSchedule"}
    for role in ("master", "control-plane")
)
# NFD is a release of its own; the chart's Job that upgrades CRDs needs an image, and we apply them ourselves. Without a MIG
# strategy for all, the plugin takes it from each node's own configuration (gpu-operator applyMIGConfiguration).
_OPERATOR_VALUES: Document = {"nfd": {"enabled": False}, "operator": {"upgradeCRD": False}, "mig": {"strategy": ""}}
_PCI_CLASSES = ("02", "0200", "0207", "0300", "0302")
# Drivers and NFD's workers mount host paths, which Pod Security allows in privileged namespaces only.
_PRIVILEGED = {names.POD_SECURITY_LABEL: "privileged"}
_SYSTEM_NAMESPACES = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})


def derive(cluster: t.Any, defaults: t.Any, pools: t.Any) -> Plan:
    """Everything that the three documents decide; raises InvalidDocuments with every mistake in them."""
    documents = load(cluster, defaults, pools)
    settings = documents.cluster
    release = releases.operator_release(settings["operator"]["version"]).release
    cloud = cloud_of(settings)
    planned = tuple(
        replace(
            _pool(pool, nodegroup_spec(pool, cloud), release.extras_named),
            declares_sharing=pool["name"] not in documents.silent,
        )
        for pool in documents.pools
    )
    operator, nfd = settings["operator"], settings["nfd"]
    tolerations = _tolerations(taint for pool in planned for taint in pool.registration.taints)
    config = config_of(planned, operator["namespace"])
    cut = _mig(planned, operator["namespace"])
    return Plan(
        cluster=ClusterPlan(
            name=settings["name"],
            kube_name=settings.get("kube_name") or settings["name"],
            kubeconfig=settings.get("kubeconfig"),
            context=settings.get("context"),
            cloud=cloud,
            uid=settings.get("uid"),
            renamed_from=settings.get("renamed_from"),
            impersonate_user=settings.get("impersonate_user"),
            impersonate_groups=tuple(settings["impersonate_groups"]),
        ),
        operator=_release(
            operator, get_nested(documents.written, "operator"), merge(_OPERATOR_VALUES, operator_values(operator))
        ),
        nfd=_release(
            nfd,
            get_nested(documents.written, "nfd"),
            _nfd_values(tolerations, merge(nfd_values(operator), nfd["values"])),
        ),
        policy=PolicyPlan(spec=_policy_spec(config, cut), tolerations=tolerations, mig_by_node=cut.wanted),
        config=config,
        mig=cut,
        validation=ValidationPlan(
            image=settings["validation"].get("image")
            or mirrored_image(releases.VALIDATION_IMAGE, operator.get("registry")),
            namespace=settings["validation"].get("namespace") or operator["namespace"],
            configmap=names.VALIDATION_CONFIGMAP,
        ),
        pools=planned,
        nodegroups=nodegroup_specs(cloud, planned),
        drain_options=drain_options(planned),
        provides=Provides(
            namespaces=tuple(dict.fromkeys((nfd["namespace"], operator["namespace"]))),
            kinds=tuple(
                {"api_version": api_version, "kind": kind}
                for api_version, kind in (*releases.NFD_KINDS, *releases.operator_kinds(operator["version"]))
            ),
        ),
    )


def _pool(pool: Document, group: NodeGroupPlan | None, extras_named: bool) -> PoolPlan:
    match = resolve_match(pool.get("match") or {})
    named = match.model or pool.get("model")
    model = models.find(named) if named else None
    sharing = sharing_of(pool["sharing"], model.product if model else "", extras_named)
    key, mig_key, mig_entry = entries_of(sharing, pool.get("gpus_per_node"))
    by_gpu = bool(sharing.demand) or any(part.devices for part in sharing.layout)
    labels = pool.get("labels") or {}
    taints = tuple(plain_taint(taint) for taint in pool.get("taints") or ())
    node_labels = node_labels_of(pool["name"], labels, key, mig_key)
    return PoolPlan(
        name=pool["name"],
        match=match,
        model=model.key if model else None,
        group=group,
        labels=labels,
        taints=taints,
        tolerations=_tolerations(taints),
        sharing=sharing,
        gpus_per_node=pool.get("gpus_per_node"),
        resource=sharing.resources[0],
        resources=sharing.resources,
        quota_keys=tuple(f"{names.QUOTA_PREFIX}{resource}" for resource in sharing.resources),
        accelerator=_accelerator(model, sharing) if model else None,
        shares_per_gpu=None if by_gpu else sum(sharing.offers(1).values()),
        config_key=key,
        mig_key=mig_key,
        mig_entry=mig_entry,
        memory_mib_per_share=model.memory_mib // sharing.replicas if model and sharing.mode != MIG else None,
        node_labels=node_labels,
        registration=Registration(
            node_labels=dict(node_labels),
            taints=(*taints, dict(STARTUP_TAINT)) if pool["startup_taint"] and sharing.mode == MIG else taints,
        ),
        rollout=rollout_plan(pool["rollout"]),
    )


def entries_of(sharing: Sharing, gpus: int | None) -> tuple[str, str, mig_parted.Entry]:
    """The names of the two configurations that a node with so many GPUs goes by, and the MIG manager's; none where nothing is cut."""
    entry = mig_parted.entry(sharing.layout, gpus)
    return device_plugin.entry_name(sharing), mig_parted.entry_name(entry) if entry else "", entry


def node_labels_of(pool: str, labels: t.Mapping[str, str], config_key: str, mig_key: str) -> dict[str, str]:
    """What the nodes of a pool carry: its own labels, its name, and the names of their configurations."""
    return {
        **labels,
        names.POOL_LABEL: pool,
        names.CONFIG_LABEL: config_key,
        **({names.MIG_CONFIG_LABEL: mig_key} if mig_key else {}),
    }


def sharing_of(written: Document, product: str = "", extras_named: bool = True) -> Sharing:
    """The sharing that a sound document declares for GPUs of this product name; what it leaves out has its default.

    `extras_named`: the device plugin tells MIG devices with extras from plain ones.
    """
    mode = written["mode"]
    sharing = Sharing(
        mode=mode,
        replicas=written.get("replicas") or 1 if mode != device_plugin.EXCLUSIVE else 1,
        rename=written.get("rename", False),
        fail_requests=written.get("fail_requests_greater_than_one", True),
        layout=mig.read(written["layout"]) if mode == MIG and written.get("layout") else (),
        demand=dict(sorted(written.get("demand", {}).items())) if mode == MIG else {},
    )
    if mode != MIG:
        return sharing
    by_need = mig.MIXED if sharing.demand else mig.strategy_for(sharing.layout, product, sharing.suffix)
    return replace(sharing, strategy=written.get("strategy") or by_need, extras_named=extras_named)


def _accelerator(model: models.Model, sharing: Sharing) -> str:
    """A label value: nodes that are shared or cut offer other numbers, so the autoscaler must not count them as one kind."""
    if sharing.mode == MIG:
        return f"{model.product}-MIG"
    return f"{model.product}{names.SHARED_SUFFIX}" if sharing.replicas > 1 else model.product


def _tolerations(taints: t.Iterable[Taint]) -> tuple[Toleration, ...]:
    """Each toleration once, in an order that does not depend on the pools'; none that the GPU taint's own covers."""
    wanted = {(taint["key"], taint["effect"], taint.get("value", "")): toleration_of(taint) for taint in taints}
    return (
        dict(_GPU_TOLERATION),
        *(wanted[key] for key in sorted(wanted) if key[:2] != (names.GPU_TAINT_KEY, "NoSchedule")),
    )


def config_of(pools: t.Iterable[PoolPlan], namespace: str) -> ConfigPlan:
    """The entries of the device plugin's ConfigMap for all of them."""
    contents = {pool.config_key: device_plugin.config(pool.sharing) for pool in pools}
    data = {key: yaml_text.render(contents[key]) for key in sorted(contents)}
    return ConfigPlan(name=names.DEVICE_PLUGIN_CONFIGMAP, namespace=namespace, data=data)


def _mig(pools: t.Sequence[PoolPlan], namespace: str) -> MigPlan:
    found = [models.find(pool.model) for pool in pools if pool.model]
    gpus = [(model.pci_ids, geometry) for model in found if model and (geometry := geometries.geometry(model.key))]
    return MigPlan(
        name=names.MIG_CONFIGMAP,
        namespace=namespace,
        entries=mig_entries_of(pools),
        usual=mig_parted.usual(gpus) if any(pool.mode == MIG for pool in pools) else {},
    )


def mig_entries_of(pools: t.Iterable[PoolPlan]) -> Document:
    """The entries of the MIG manager's ConfigMap for all of them."""
    entries = {pool.mig_key: pool.mig_entry for pool in pools if pool.mig_key}
    return {key: entries[key] for key in sorted(entries)}


def _policy_spec(config: ConfigPlan, cut: MigPlan) -> Document:
    """Without an entry there is no ConfigMap, and a plugin that is told to mount one that is not there never starts.

    The device plugin's default stays empty: nodes outside every pool keep whole GPUs, and changing it would roll every
    plugin.
    """
    spec: Document = {"devicePlugin": {"config": {"name": config.name, "default": ""}}} if config.data else {}
    if cut.wanted:
        spec["migManager"] = {"config": {"name": cut.name}}
    return spec


def _nfd_values(tolerations: tuple[Toleration, ...], theirs: Document) -> Document:
    """What the operator's own NFD sub-chart is given, plus the pools' taints: NFD has to find their GPUs.

    The user's values lie on top, but their tolerations are added to ours: a pool's taint must stay tolerated.
    """
    needed = [dict(toleration) for toleration in (*_CONTROL_PLANE_TOLERATIONS, *tolerations)]
    ours: Document = {
        "master": {"extraLabelNs": ["nvidia.com"]},
        "worker": {
            "config": {
                "sources": {"pci": {"deviceClassWhitelist": list(_PCI_CLASSES), "deviceLabelFields": ["vendor"]}}
            },
            "tolerations": needed,
        },
    }
    values: Document = merge(ours, theirs)
    worker = values["worker"]
    if isinstance(worker, dict) and isinstance(worker["tolerations"], list):
        worker["tolerations"] = needed + [extra for extra in worker["tolerations"] if extra not in needed]
    return values


def _release(settings: Document, written: t.Any, values: Document) -> ReleasePlan:
    namespace = settings["namespace"]
    return ReleasePlan(
        name=settings["release"],
        namespace=namespace,
        named=any(get_nested(written, key) is not None for key in ("release", "namespace")),
        namespace_labels={} if namespace in _SYSTEM_NAMESPACES else dict(_PRIVILEGED),
        chart=settings["chart"],
        chart_repo=settings["chart_repo"],
        version=settings["version"],
        values=values,
    )
