# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derives the plan of a cluster from its declaration, and warns about what is valid but unknown or has known issues (pure)."""

from __future__ import annotations

import copy
import typing as t
from dataclasses import replace

from ..catalog import mig as geometries
from ..catalog import models, names, releases
from ..catalog.distributions import (
    BY_NAME,
    DEFAULT_SOCKET,
    DROP_IN,
    HOST_USERS,
    MODEL_CONDITION,
    SOCKET,
    KnownIssue,
    issues_of,
)
from ..catalog.openshift import (
    ACCELERATOR_LABEL,
    AUTOMATIC,
    AUTOSCALER_RULES,
    MACHINE_API_NAMESPACE,
    NFD,
    OLM,
    OPENSHIFT,
    PACKAGES,
)
from ..catalog.releases import ANY_CUDA_VERSION
from ..catalog.taints import STARTUP_TAINT, Toleration, plain_taint, toleration_of
from ..core import yaml_text
from ..core.messages import join_words
from ..core.types import Integer, MapOf, is_empty
from ..core.values import Object, get_nested, set_nested
from ..schema.cluster import helm_fields, installer_of, olm_fields
from ..schema.driver import VGPU_TYPE, driver_of_values, module_type_problem
from ..schema.pool import POOLS, member_name
from ..schema.providers import (
    MACHINESET,
    MAX_NODE_COUNT,
    MIN_NODE_COUNT,
    NODE_COUNT,
    NODE_LABELS,
    NODE_TAINTS,
    PROVIDERS,
    SPEC_PATHS,
    VSPHERE_CONNECTION,
    VSPHERE_TEMPLATE,
)
from ..schema.validation_programs import PROGRAMS
from ..schema.validators import DrainOptions, is_bare_chart, resolve_match
from ..schema.variables import NOT_SET, InvalidVariables, load, merge
from ..sharing_modes import mig_parted
from ..sharing_modes.modes import MPS, Sharing, device_plugin_config, plugin_entry_name, sharing_of
from .operator_values import declared_distribution_values, mirrored_image, nfd_values, operator_values, policy_values
from .plan import (
    POOL_KEYS,
    AutoscalerPlan,
    CloudPlan,
    ClusterPlan,
    ComponentPlan,
    ConfigPlan,
    MigPlan,
    NodeGroupMember,
    NodeGroupPlan,
    Plan,
    PolicyPlan,
    PoolPlan,
    PoolTaint,
    Provides,
    Registration,
    ValidationPlan,
    VspherePlan,
    future_node,
    rollout_plan,
)

if t.TYPE_CHECKING:
    from ..catalog.openshift import AutoscalerRules
    from ..schema.validation_programs import Program
    from ..sharing_modes.mig import Layout

# Derives the node groups of the pools, in the format of the option `nodegroups` of the providers' modules (pure).

# The changed numbers of nodes, by pool.
_COUNTS = MapOf(item=Integer())
# null removes a label of an earlier sharing mode, and `state: absent` removes the startup taint.
_OWN_LABELS = (names.MIG_CONFIG_LABEL,)


def cloud_of(cluster: Object) -> CloudPlan | None:
    """The cloud of a valid gpu_cluster; None if it has no cloud."""
    for key, settings in (cluster.get("cloud") or {}).items():
        if settings is not None:
            definition = PROVIDERS[key]
            return CloudPlan(
                provider=key,
                cluster=settings.get("cluster") or cluster["name"],
                template=settings.get("template"),
                nodegroup_label=settings.get("nodegroup_label", ""),
                options={name: settings[name] for name in definition.connection_options if name in settings},
                module=definition.nodegroup_module,
                issues_kubeconfig=definition.issues_kubeconfig,
                lists_undeclared_groups=definition.lists_undeclared_groups,
            )
    return None


def nodegroup_plan(pool: Object, cloud: CloudPlan | None) -> NodeGroupPlan | None:
    """The node group of a valid pool; None if its nodes already exist."""
    nodes = pool.get("nodes")
    if nodes is None or cloud is None:
        return None
    scale = pool.get("autoscale") or {}
    definition = PROVIDERS[cloud.provider]
    name, zones = nodes.get("name") or pool["name"], tuple(nodes.get("zones") or ())
    count, low, high = nodes.get("count", scale.get("min", 0)), scale.get("min"), scale.get("max")
    gpus = definition.flavor_gpus(nodes["flavor"]) if "flavor" in nodes else None
    vgpu = pool.get("vgpu")
    return NodeGroupPlan(
        name=name,
        group_label=cloud.nodegroup_label,
        flavor=nodes.get("flavor")
        or (f"{vgpu['count']} x {vgpu['profile']}" if vgpu else nodes[definition.flavor_instead]),
        node_count=count,
        min_node_count=low,
        max_node_count=high,
        settings={key: nodes[key] for key in ("recreate", *definition.nodes_fields) if key in nodes and key != "zones"},
        zones=zones,
        members=_members(name, zones, count, low, high),
        flavor_gpus=vgpu["count"] if vgpu else gpus.count if gpus else None,
        priority=scale.get("priority"),
    )


def _members(
    name: str, zones: t.Sequence[str], count: int, low: int | None, high: int | None
) -> tuple[NodeGroupMember, ...]:
    """The node groups of a pool; with several zones, the first groups get the nodes that cannot be distributed evenly."""
    places: t.Sequence[str | None] = zones or (None,)

    def part(total: int | None, index: int) -> int | None:
        return None if total is None else total // len(places) + (index < total % len(places))

    return tuple(
        NodeGroupMember(member_name(name, zone), zone, part(count, index) or 0, part(low, index), part(high, index))
        for index, zone in enumerate(places)
    )


def nodegroups_option(cloud: CloudPlan | None, pools: t.Iterable[PoolPlan]) -> tuple[Object, ...]:
    """The option `nodegroups` of the provider's module: each group with the labels and taints that its nodes register with."""
    return tuple(
        _group(cloud, pool, pool.nodegroup, member)
        for pool in pools
        if cloud and pool.nodegroup
        for member in pool.nodegroup.members
    )


def _group(cloud: CloudPlan, pool: PoolPlan, group: NodeGroupPlan, member: NodeGroupMember) -> Object:
    scale: Object = {}
    definition = PROVIDERS[cloud.provider]
    if group.autoscaled:
        scale = {MIN_NODE_COUNT: member.min_node_count, MAX_NODE_COUNT: member.max_node_count}
        if definition.autoscaling_option:
            scale["autoscaling"] = True
    taints: list[Object] = [dict(taint) for taint in pool.registration.taints]
    if STARTUP_TAINT not in taints:
        taints.append({**STARTUP_TAINT, "state": "absent"})
    labels: Object = dict.fromkeys(_OWN_LABELS)
    return {
        "name": member.name,
        # A setting that replaces the flavor is one of the provider's own settings.
        **({} if pool.vgpu or definition.flavor_instead in group.settings else {"flavor": group.flavor}),
        NODE_COUNT: member.node_count,
        **scale,
        **group.settings,
        **({"zone": member.zone} if member.zone else {}),
        **(_future_node_settings(pool, labels) if definition.scaled_by_openshift else {}),
        NODE_LABELS: {**labels, **pool.registration.node_labels},
        NODE_TAINTS: taints,
    }


def _future_node_settings(pool: PoolPlan, labels: Object) -> Object:
    """The description of the pool's future nodes for the autoscaler of OpenShift; adds the label of their kind of GPU to `labels`."""
    node = future_node(pool)
    labels[ACCELERATOR_LABEL] = node.accelerator or None
    capacity: Object = {"labels": dict(node.labels)}
    if node.resources is not None:
        capacity["resources"] = dict(node.resources)
    return {"capacity": capacity}


def vsphere_plan(cluster: Object, pools: t.Iterable[PoolPlan]) -> VspherePlan | None:
    """The templates for the pools with vGPUs of a valid gpu_cluster: one for each node group; None if there is none, and no connection is declared."""
    settings = get_nested(cluster, "cloud", MACHINESET.key, "vsphere") or {}
    options = {key: settings[key] for key in VSPHERE_TEMPLATE if settings.get(key) is not None}
    templates = tuple(
        {
            "name": member.name,
            **{key: value for key, value in pool.vgpu.items() if value is not None},
            **({"failure_domain": member.zone} if member.zone else {}),
            **options,
            **_machines(pool, pool.nodegroup, member),
        }
        for pool in pools
        if pool.vgpu and pool.nodegroup
        for member in pool.nodegroup.members
    )
    connection = {key: settings[key] for key in VSPHERE_CONNECTION if settings.get(key) is not None}
    return (
        VspherePlan(connection, templates, bool(settings.get("narrow_boot_images")))
        if templates or connection
        else None
    )


def _machines(pool: PoolPlan, group: NodeGroupPlan, member: NodeGroupMember) -> Object:
    """The machines that are cloned from a template, for the comparison with the hosts."""
    values = {
        "machines": member.node_count,
        "max_machines": member.max_node_count,
        "recreate": group.settings.get("recreate") or None,
        "driver_version": (pool.driver or {}).get("version"),
    }
    return {key: value for key, value in values.items() if value is not None}


def with_node_counts(
    pools: t.Sequence[Object] | None, counts: t.Mapping[str, t.Any], defaults: Object | None = None
) -> list[Object]:
    """gpu_pools with the numbers of nodes in `counts` (by pool); raises InvalidVariables for a pool without a fixed number of nodes."""
    if pools is None:
        raise InvalidVariables([NOT_SET])
    if reason := POOLS.mistyped(pools):
        raise InvalidVariables([f"gpu_pools: {reason}"])
    counts = _COUNTS.coerce(counts)
    problems = list(_COUNTS.problems(counts, "counts"))
    if not problems:
        problems = [problem for name in counts for problem in _count_problems(name, pools, defaults or {})]
    if problems:
        raise InvalidVariables(problems, "the numbers of nodes (gpu_nodegroups_node_counts)")
    return [
        {**pool, "nodes": {**pool["nodes"], "count": counts[pool["name"]]}}
        if get_nested(pool, "name") in tuple(counts)
        else pool
        for pool in pools
    ]


def _count_problems(name: str, pools: t.Sequence[t.Any], defaults: t.Any) -> t.Iterator[str]:
    pool, *others = [pool for pool in pools if get_nested(pool, "name") == name] or [None]
    if others:
        yield f"pool {name}: {len(others) + 1} pools have this name; use a unique name for each"
    elif pool is None:
        known = [str(get_nested(pool, "name")) for pool in pools]
        yield f"{name} is not a declared pool; declared pools: {', '.join(known) or 'none'}"
    elif not isinstance(pool.get("nodes"), dict):
        yield f"pool {name}: it has no node group, so its number of nodes cannot be set; declare nodes first"
    elif pool.get("autoscale") or get_nested(defaults, "autoscale"):
        yield f"pool {name}: its autoscaler chooses the number of nodes; change autoscale.min and max"


# Derives the declared fields of OpenShift's ClusterAutoscaler (pure).


def autoscaler_plan(cloud: CloudPlan | None, settings: Object | None) -> AutoscalerPlan | None:
    """The plan for a valid gpu_cluster.autoscaler; None without a cloud, and for clouds with their own autoscaler."""
    if cloud is None or not PROVIDERS[cloud.provider].scaled_by_openshift:
        return None
    declared = settings or {}
    spec: Object = _without_nulls(declared.get("values") or {})
    for keys, path in SPEC_PATHS.items():
        value = get_nested(declared, *keys)
        if value is not None:
            set_nested(spec, path, copy.deepcopy(value))
    return AutoscalerPlan(cloud.options.get("namespace", MACHINE_API_NAMESPACE), spec)


def _without_nulls(document: Object) -> Object:
    """A copy without keys that have no value, which declare nothing."""
    return {
        key: _without_nulls(value) if isinstance(value, dict) else copy.deepcopy(value)
        for key, value in document.items()
        if value is not None
    }


# Derives the plan from the variables; every value that several components share is computed only here (pure).

# Every GPU workload tolerates the usual taint of GPU nodes.
_GPU_TOLERATION: Toleration = {"key": names.GPU_TAINT_KEY, "operator": "Exists", "effect": "NoSchedule"}
# NFD is a separate release. The chart's Job that upgrades CRDs needs an image, so this collection applies the CRDs.
# Without a global MIG strategy, the plugin uses the strategy in each node's configuration (gpu-operator
# applyMIGConfiguration).
_OPERATOR_VALUES: Object = {"nfd": {"enabled": False}, "operator": {"upgradeCRD": False}, "mig": {"strategy": ""}}
# Drivers and NFD's workers mount host paths, which Pod Security only allows in privileged namespaces.
_PRIVILEGED = {names.POD_SECURITY_LABEL: "privileged"}
_SYSTEM_NAMESPACES = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})


def derive(cluster: t.Any, defaults: t.Any, pools: t.Any) -> Plan:
    """The plan for the three variables; raises InvalidVariables with all problems in them."""
    variables = load(cluster, defaults, pools)
    settings = _with_installers(variables.cluster, variables.declared_cluster)
    release = releases.operator_release(settings["operator"]["version"]).release
    cloud = cloud_of(settings)
    planned = tuple(
        _pool(pool, nodegroup_plan(pool, cloud), release.extras_named, pool["name"] not in variables.pools_without_mode)
        for pool in variables.pools
    )
    operator, nfd = settings["operator"], settings["nfd"]
    pull_secrets = operator["image_pull_secrets"]
    tolerations = _tolerations(taint for pool in planned for taint in pool.registration.taints)
    config = ConfigPlan(names.DEVICE_PLUGIN_CONFIGMAP, operator["namespace"], _config_entries(planned))
    mig = _mig(planned, operator["namespace"])
    return Plan(
        cluster=ClusterPlan(
            name=settings["name"],
            kubeconfig=settings.get("kubeconfig"),
            cloud=cloud,
            distribution=settings.get("distribution"),
            distribution_values=declared_distribution_values(operator, settings.get("distribution")),
            known_issues=tuple(settings["known_issues"]),
        ),
        operator=_component(
            "operator",
            operator,
            get_nested(variables.declared_cluster, "operator"),
            policy_values(operator)
            if operator["installer"] == OLM
            else merge(_OPERATOR_VALUES, operator_values(operator, settings.get("distribution"))),
            [
                *pull_secrets,
                *(name for pool in planned for name in (pool.driver or {}).get("image_pull_secrets") or ()),
            ],
        ),
        nfd=_component(
            "nfd",
            nfd,
            get_nested(variables.declared_cluster, "nfd"),
            nfd_values(nfd, operator, tolerations),
            pull_secrets,
        ),
        policy=PolicyPlan(
            spec=_policy_spec(config, mig, planned),
            tolerations=tolerations,
            mig_by_node=mig.needed,
            mig_strategies=_mig_strategies(planned),
        ),
        config=config,
        mig=mig,
        validation=_validation(settings["validation"], operator),
        pools=planned,
        nodegroups=nodegroups_option(cloud, planned),
        vsphere=vsphere_plan(settings, planned),
        drain_options=DrainOptions.most_careful([pool.rollout.drain_options for pool in planned if pool.nodegroup]),
        provides=Provides(
            namespaces=tuple(dict.fromkeys((nfd["namespace"], operator["namespace"]))),
            kinds=tuple(
                {"api_version": api_version, "kind": kind}
                for api_version, kind in (
                    *releases.NFD_KINDS,
                    *(NFD.kinds if nfd["installer"] == OLM else ()),
                    *releases.operator_kinds(operator["version"]),
                )
            ),
        ),
        autoscaler=autoscaler_plan(cloud, settings.get("autoscaler")),
        on_openshift=None
        if settings.get("distribution")
        else lambda: derive({**(cluster or {}), "distribution": OPENSHIFT}, defaults, pools),
    )


def _with_installers(settings: Object, declared: t.Any) -> Object:
    """The settings with the installer of each component; if it is OLM, also with the package's default namespace and a version in OLM's format."""
    completed = dict(settings)
    for component, package in PACKAGES.items():
        part = {**settings[component], "installer": installer_of(declared, component)}
        if part["installer"] == OLM:
            part["namespace"] = get_nested(declared, component, "namespace") or package.namespace
            if component == "operator":
                part["version"] = f"v{part['version'].removeprefix('v')}"
            elif get_nested(declared, component, "version") is None:
                # NFD's versions follow those of OpenShift, so no default fits every cluster.
                part["version"] = ""
        completed[component] = part
    return completed


def _validation(declared: Object, operator: Object) -> ValidationPlan:
    """The settings of the validation pods, which by default run in the operator's namespace."""
    images = {program.image: _program_images(program, declared, operator.get("registry")) for program in PROGRAMS}
    image_keys = {key for program in PROGRAMS for key in (program.image, program.images)}
    others = {key: value for key, value in declared.items() if key not in image_keys}
    return ValidationPlan(
        images=images,
        image_pull_secrets=tuple(operator["image_pull_secrets"]),
        configmap=names.VALIDATION_CONFIGMAP,
        **{"namespace": operator["namespace"], **others},
    )


def _program_images(program: Program, validation: Object, registry: str | None) -> dict[str, str]:
    """The images of a program by CUDA version: the declared images, otherwise NVIDIA's, from the mirror if one is declared."""
    if validation.get(program.image):
        return {ANY_CUDA_VERSION: validation[program.image]}
    mirrored = {version: mirrored_image(public, registry) for version, public in program.public_images.items()}
    return dict(validation.get(program.images) or mirrored)


def per_node_plan(plan: Plan, layouts: t.Mapping[str, t.Mapping[str, tuple[Layout, int]]]) -> Plan:
    """The plan after MIG allocation; `layouts` contains the layout and the number of GPUs by pool and node, for pools with a demand."""
    pools = tuple(
        replace(pool, by_node=_by_node(pool, layouts[pool.name])) if pool.name in layouts else pool
        for pool in plan.pools
    )
    # Nodes with the same layout share one object.
    variants = {id(one): one for pool in pools for one in (pool, *pool.by_node.values())}.values()
    return replace(
        plan,
        pools=pools,
        config=replace(plan.config, data=_config_entries(variants)),
        mig=replace(plan.mig, entries=_mig_entries(variants)),
    )


def _by_node(pool: PoolPlan, layouts: t.Mapping[str, tuple[Layout, int]]) -> dict[str, PoolPlan]:
    variants: dict[tuple[str, int], PoolPlan] = {}
    for layout, gpus in layouts.values():
        if (repr(layout), gpus) not in variants:
            sharing = replace(pool.sharing, layout=layout)
            variants[repr(layout), gpus] = replace(
                pool, sharing=sharing, **_node_values(pool.name, pool.labels, sharing, gpus)
            )
    return {node: variants[repr(layout), gpus] for node, (layout, gpus) in layouts.items()}


def _pool(pool: Object, nodegroup: NodeGroupPlan | None, extras_named: bool, declares_sharing: bool) -> PoolPlan:
    match = resolve_match(pool.get("match") or {})
    model_name = match.model or pool.get("model")
    model = models.find(model_name) if model_name else None
    # A vGPU has a part of the physical GPU's memory.
    vgpu = get_nested(pool, "vgpu", "profile") or (
        match.product or "" if get_nested(pool, "driver", "type") == VGPU_TYPE else None
    )
    memory_mib = models.vgpu_memory_mib(vgpu) if vgpu is not None else model.memory_mib if model else None
    sharing = sharing_of(pool["sharing"], model.product if model else "", extras_named)
    gpus_differ = bool(sharing.demand) or any(part.devices for part in sharing.layout)
    taints = tuple(plain_taint(taint) for taint in pool.get("taints") or ())
    values = _node_values(pool["name"], pool["labels"], sharing, pool.get("gpus_per_node"))
    unchanged: dict[str, t.Any] = {key: pool.get(key) for key in POOL_KEYS}
    has_startup_taint = pool["startup_taint"] and sharing.definition.partitions_gpus
    return PoolPlan(
        match=match,
        model=model.key if model else None,
        nodegroup=nodegroup,
        taints=taints,
        tolerations=_tolerations(taints),
        sharing=sharing,
        resource=sharing.resources[0],
        resources=sharing.resources,
        quota_keys=tuple(f"{names.QUOTA_PREFIX}{resource}" for resource in sharing.resources),
        accelerator=sharing.definition.accelerator(sharing, model.product) if model else None,
        shares_per_gpu=None if gpus_differ else sum(sharing.offers(1).values()),
        memory_mib_per_share=sharing.definition.memory_per_share(sharing, memory_mib) if memory_mib else None,
        registration=Registration(
            node_labels=dict(values["node_labels"]),
            taints=(*taints, dict(STARTUP_TAINT)) if has_startup_taint else taints,
        ),
        rollout=rollout_plan(pool["rollout"]),
        declares_sharing=declares_sharing,
        **values,
        **unchanged,
    )


def _node_values(pool: str, labels: t.Mapping[str, str], sharing: Sharing, gpus: int | None) -> dict[str, t.Any]:
    """The fields of a PoolPlan that depend on a node's layout and number of GPUs: the names of its configurations, and its labels."""
    mig_entry = mig_parted.entry(sharing.layout, gpus)
    config_key, mig_key = plugin_entry_name(sharing), mig_parted.entry_name(mig_entry) if mig_entry else ""
    node_labels = {**labels, names.POOL_LABEL: pool, names.CONFIG_LABEL: config_key}
    if mig_key:
        node_labels[names.MIG_CONFIG_LABEL] = mig_key
    return {"config_key": config_key, "mig_key": mig_key, "mig_entry": mig_entry, "node_labels": node_labels}


def _tolerations(taints: t.Iterable[PoolTaint]) -> tuple[Toleration, ...]:
    """The toleration for the GPU taint, then the sorted tolerations for these taints, without duplicates and without tolerations that the first one covers."""
    by_key = {(taint["key"], taint["effect"], taint.get("value", "")): toleration_of(taint) for taint in taints}
    return (
        dict(_GPU_TOLERATION),
        *(by_key[key] for key in sorted(by_key) if key[:2] != (names.GPU_TAINT_KEY, "NoSchedule")),
    )


def _config_entries(pools: t.Iterable[PoolPlan]) -> dict[str, str]:
    """The entries of the device plugin's ConfigMap for these pools."""
    contents = {pool.config_key: device_plugin_config(pool.sharing) for pool in pools}
    return {key: yaml_text.render_yaml(contents[key]) for key in sorted(contents)}


def _mig(pools: t.Sequence[PoolPlan], namespace: str) -> MigPlan:
    known = [models.find(pool.model) for pool in pools if pool.model]
    gpus = [(model.pci_ids, geometry) for model in known if model and (geometry := geometries.geometry(model.key))]
    needed = any(pool.sharing.definition.partitions_gpus for pool in pools)
    return MigPlan(
        name=names.MIG_CONFIGMAP,
        namespace=namespace,
        entries=_mig_entries(pools),
        default_entries=mig_parted.default_entries(gpus) if needed else {},
    )


def _mig_strategies(pools: t.Iterable[PoolPlan]) -> frozenset[str]:
    """The MIG strategies that the pools need. MPS needs none, because the device plugin rejects MPS with the strategy mixed."""
    return frozenset(
        pool.sharing.strategy if pool.sharing.definition.partitions_gpus else "none"
        for pool in pools
        if pool.sharing.definition.partitions_gpus or pool.sharing.mode == MPS.name
    )


def _mig_entries(pools: t.Iterable[PoolPlan]) -> Object:
    """The entries of the MIG manager's ConfigMap for these pools."""
    entries = {pool.mig_key: pool.mig_entry for pool in pools if pool.mig_key}
    return {key: entries[key] for key in sorted(entries)}


def _policy_spec(config: ConfigPlan, mig: MigPlan, pools: t.Iterable[PoolPlan]) -> Object:
    """The fields of the ClusterPolicy that refer to the ConfigMaps. They omit a ConfigMap without entries, for which a plugin would wait forever.

    If a pool declares its driver, NVIDIADriver objects replace the ClusterPolicy's own driver.

    The device plugin's default stays empty, so nodes outside all pools keep whole GPUs. Changing the default would restart every plugin.
    """
    spec: Object = {"devicePlugin": {"config": {"name": config.name, "default": ""}}} if config.data else {}
    if mig.needed:
        spec["migManager"] = {"config": {"name": mig.name}}
    if any(pool.driver is not None for pool in pools):
        spec["driver"] = {"useNvidiaDriverCRD": True}
    return spec


def _component(
    component: str, settings: Object, declared: t.Any, values: Object, pull_secrets: t.Iterable[str]
) -> ComponentPlan:
    namespace, olm = settings["namespace"], None
    helm = {key: settings[key] for key in helm_fields(component) if key in settings}
    if not is_bare_chart(helm["chart"]):
        helm["chart_repo"] = ""
    if settings["installer"] == OLM:
        package = settings["olm"]["package"]
        known = next((each for each in PACKAGES.values() if each.package == package), None)
        olm = {key: settings["olm"].get(key) for key in olm_fields(component)}
        olm["resource"] = known.resource if known else ""
    return ComponentPlan(
        name=helm.pop("release"),
        namespace=namespace,
        named=any(not is_empty(get_nested(declared, key)) for key in ("release", "namespace", "olm")),
        namespace_labels={} if namespace in _SYSTEM_NAMESPACES else dict(_PRIVILEGED),
        version=settings["version"],
        values=values,
        image_pull_secrets=tuple(dict.fromkeys(pull_secrets)),
        installer=settings["installer"],
        olm=olm,
        **helm,
    )


# Warns about valid variables: unknown releases and models, and known issues (pure).


def plan_warnings(
    plan: Plan,
    conditions: t.Collection[str] = (),
    *,
    version_known: bool = True,
    autoscaler: AutoscalerRules | None = None,
    openshift_version: str = "",
) -> list[str]:
    """The warnings, one sentence each; empty for a plan without pools, because nothing is installed in that case.

    `conditions` contains the known conditions of the cluster (see catalog/distributions.py): a known issue is reported if the cluster meets all its conditions.
    Without `version_known`, the cluster may have a different operator release than the plan, so nothing about the release is reported.
    `autoscaler` contains the rules of the cluster's OpenShift release, if it is known. `openshift_version` is the version of OpenShift, or empty.
    """
    if not plan.pools:
        return []
    known = releases.operator_release(plan.operator.version)
    all_conditions = {*conditions, *_planned_conditions(plan)}
    issues = [
        f"GPU operator {known.release.version}: {issue.text}"
        for issue in issues_of(known.release.version)
        if version_known and issue.conditions <= all_conditions and issue.affects_openshift(openshift_version)
    ]
    return [
        *([known.warning] if version_known and known.warning else []),
        *issues,
        *_declared_issues(plan, all_conditions, version_known=version_known),
        *_automatic_approval(plan),
        *_toolkit_conflicts(plan),
        *_fabric_manager(plan),
        *_kernel_modules(plan),
        *(text for pool in plan.pools for text in _pool_warnings(pool)),
        *(text for pool in plan.pools for text in _uncounted(pool, plan.cluster.cloud, autoscaler)),
    ]


def needs_pods(plan: Plan) -> bool:
    """Whether an issue of the plan's release, or a declared one, depends on a condition that only pods show."""
    issues = issues_of(releases.operator_release(plan.operator.version).release.version)
    return any(HOST_USERS in issue.conditions for issue in issues) or any(
        HOST_USERS in declared["conditions"] for declared in plan.cluster.known_issues
    )


def _planned_conditions(plan: Plan) -> t.Iterator[str]:
    """The conditions that follow from the variables."""
    for pool in plan.pools:
        yield pool.mode
        if pool.model:
            yield f"{MODEL_CONDITION}{pool.model.partition('-')[0]}"
        if get_nested(pool.driver, "type") == VGPU_TYPE:
            yield "vgpu"
    values = plan.operator.values
    for condition, keys in (("rdma", ("driver", "rdma", "enabled")), ("gds", ("gds", "enabled"))):
        if get_nested(values, *keys) is True:
            yield condition
    if plan.cluster.distribution:
        yield from BY_NAME[plan.cluster.distribution].conditions


def _declared_issues(plan: Plan, conditions: t.Collection[str], *, version_known: bool) -> t.Iterator[str]:
    """The issues in gpu_cluster.known_issues that apply; an issue without releases applies to every release."""
    version = f"v{plan.operator.version.removeprefix('v')}"
    for declared in plan.cluster.known_issues:
        releases_of_it = tuple(f"v{release.removeprefix('v')}" for release in declared["releases"])
        issue = KnownIssue(releases_of_it, frozenset(declared["conditions"]), declared["text"])
        if issue.conditions <= set(conditions) and (not releases_of_it or (version_known and issue.affects(version))):
            yield f"Known issue (gpu_cluster.known_issues): {issue.text}"


def _automatic_approval(plan: Plan) -> t.Iterator[str]:
    """Warnings about automatic approval: OLM installs the version that the channel offers, regardless of the declared version."""
    for component, release, effect in (
        ("operator", plan.operator, "the GPU operator, and with it the driver on every node"),
        ("nfd", plan.nfd, "NFD"),
    ):
        if release.olm is not None and release.olm["approval"] == AUTOMATIC:
            yield (
                f"gpu_cluster.{component}.olm.approval is Automatic: OLM upgrades {effect}, even between runs, as soon as the channel offers a newer version, "
                "and does not keep the declared version. Set it to Manual so that only a run upgrades it."
            )


def _toolkit_conflicts(plan: Plan) -> t.Iterator[str]:
    """Warnings about variables of the container toolkit that the user has set and that do not fit the declared distribution."""
    if plan.cluster.distribution is None:
        return
    distribution = BY_NAME[plan.cluster.distribution]
    needed = {SOCKET: DEFAULT_SOCKET, **distribution.toolkit_variables(plan.operator.version)}
    for entry in get_nested(plan.operator.values, "toolkit", "env") or ():
        name, value = entry["name"], entry.get("value") or ""
        if name in (SOCKET, DROP_IN) and name in needed and value != needed[name]:
            yield (
                f"toolkit.env of gpu_cluster.operator.values sets {name}={value}, which takes precedence; {distribution.title} has its containerd at "
                f"{needed[name]}. Remove the variable unless this cluster differs."
            )


def _fabric_manager(plan: Plan) -> t.Iterator[str]:
    """A warning about Fabric Manager: NVIDIA's driver images contain it, but if the driver is preinstalled, the user must install it."""
    if get_nested(plan.operator.values, "driver", "enabled") is not False:
        return
    switched = [
        pool.name for pool in plan.pools if pool.model and (model := models.find(pool.model)) and model.nvswitch
    ]
    if switched:
        yield (
            f"{join_words(switched)}: NVSwitches connect the GPUs of HGX and DGX boards, and the driver is preinstalled (driver.enabled: false): on "
            "nodes with NVSwitches, the version of nvidia-fabricmanager must exactly match that of the driver, or CUDA fails with error 802 "
            "(system not yet initialized)."
        )


def _kernel_modules(plan: Plan) -> t.Iterator[str]:
    """Warnings about kernel modules of the operator's driver that do not support a pool's GPUs; in a pool's own `driver`, this is an error."""
    if get_nested(plan.operator.values, "driver", "enabled") is False:
        return
    for pool in plan.pools:
        model = models.find(pool.model) if pool.model else None
        if pool.driver is None and (problem := module_type_problem(driver_of_values(plan.operator.values), model)):
            yield (
                f"Pool {pool.name}: gpu_cluster.operator.driver.kernel_module_type: {problem}, or declare `driver` in the pool. Nodes with a "
                "preinstalled driver are not affected."
            )


def _pool_warnings(pool: PoolPlan) -> t.Iterator[str]:
    if pool.match.product and pool.model is None:
        yield (
            f"Pool {pool.name}: the catalog has no model {pool.match.product}; its memory and its MIG profiles are known only once its nodes exist, and "
            "only the MIG manager checks a layout."
        )
    if pool.reason_without_containers:
        yield (
            f"Pool {pool.name}: {pool.reason_without_containers}; its nodes expose no GPU to containers, so its sharing has no effect, and runs "
            "neither wait for them nor validate them."
        )
    elif pool.sharing.definition.partitions_gpus and pool.labels.get(names.MIG_MANAGER_DEPLOY_LABEL) == "false":
        yield f"Pool {pool.name}: label {names.MIG_MANAGER_DEPLOY_LABEL}=false keeps the MIG manager off its nodes, so their GPUs are not partitioned."
    if pool.sharing.shared and (pool.vgpu or get_nested(pool.driver, "type") == VGPU_TYPE):
        yield (
            f"Pool {pool.name}: its pods share vGPUs by time-slicing, which neither divides the frame buffer of a vGPU nor isolates its pods from each other. "
            "A smaller vGPU profile gives each pod a vGPU of its own. The number of licenses does not depend on the shares."
        )
    if pool.vgpu and (pool.driver or {}).get("type") != VGPU_TYPE:
        yield (
            f"Pool {pool.name} has vGPUs, but no driver of type {VGPU_TYPE}. Unless the ClusterPolicy selects one, the operator installs the driver for "
            f"physical GPUs, which does not work with vGPUs. Set driver: {{type: {VGPU_TYPE}}} with its version, repository and licensing_secret."
        )
    geometry = geometries.geometry(pool.model) if pool.model and pool.sharing.definition.partitions_gpus else None
    if geometry and geometry.note:
        status = "may differ from those of its layout" if geometry.verified else "are not verified"
        yield f"Pool {pool.name}: the MIG profiles of a {pool.model} {status}. {geometry.note}"


def _uncounted(pool: PoolPlan, cloud: CloudPlan | None, rules: AutoscalerRules | None) -> t.Iterator[str]:
    """Warnings about resources for which the cluster autoscaler adds no node, because it does not expect them on a new node."""
    if not (pool.nodegroup and pool.nodegroup.autoscaled):
        return
    uncounted = [resource for resource in pool.resources if resource != names.GPU_RESOURCE]
    remedy = "Share without rename, use the MIG strategy single, or set autoscale.min to the number of nodes that is always needed."
    on_openshift = cloud is not None and PROVIDERS[cloud.provider].scaled_by_openshift
    since = ".".join(map(str, min(each.since for each in AUTOSCALER_RULES if each.counts_gpu_type)))
    if rules is not None and rules.counts_gpu_type:
        # Only one resource of a MachineSet is counted; if it has several, the others are not.
        counted = names.GPU_RESOURCE if names.GPU_RESOURCE in pool.resources else pool.resource
        if others := [resource for resource in pool.resources if resource != counted]:
            yield (
                f"Pool {pool.name}: the cluster autoscaler only counts one resource of a MachineSet, {counted}, so it may not add a node for pods that request "
                f"{join_words(others)}. Create a separate pool for these GPUs, or set autoscale.min to the number of nodes that is always needed."
            )
    elif uncounted:
        release = f" before OpenShift {since}" if on_openshift else ""
        later = (
            f" In {since} and later, it counts the resource that the pool offers."
            if on_openshift and rules is None
            else ""
        )
        yield (
            f"Pool {pool.name}: the cluster autoscaler{release} only counts {names.GPU_RESOURCE}, so it may not add a node for pods that request "
            f"{join_words(uncounted)}, and treats nodes that advertise it as unused.{later} {remedy}"
        )
