# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables gpu_cluster, gpu_defaults and gpu_pools as options of modules and filters."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragment accel.gpu.variables."""

    # For the filters, which take the three variables as one map.
    FILTER_INPUT = r"""
options:
  _input:
    description:
      - The three variables. The role P(accel.gpu.pools#role) describes their keys.
    type: dict
    required: true
    suboptions:
      gpu_cluster:
        description: The settings that all pools of one cluster share, as in C(gpu_cluster).
        type: dict
        required: true
      gpu_defaults:
        description: Defaults of all pools, as in C(gpu_defaults).
        type: dict
        default: {}
      gpu_pools:
        description:
          - The pools, as in C(gpu_pools). Required, and null is rejected. An empty list says that there are no pools.
        type: list
        elements: dict
        required: true
"""

    # Written by `make docs` (tests/pages/variables.py).
    DOCUMENTATION = r"""
options:
  gpu_cluster:
    description:
      - The variable C(gpu_cluster).
      - Its C(kubeconfig) and C(context) are used if none of O(kubeconfig), O(context) and O(host) is given. Its C(impersonate_user)
        and C(impersonate_groups) are used unless O(impersonate_user) or O(impersonate_groups) is given.
      - If C(name) is set, C(name) or C(kube_name) must be the name of the context or of the cluster in the kubeconfig.
      - C(name) must also be the recorded name of the cluster (annotation C(accel.gpu/cluster-name) of the Lease C(kube-system/accel-gpu)).
        The first run that changes the cluster records it. If the names differ, the module fails before it changes anything.
      - If C(uid) is set, it must be the UID of the namespace C(kube-system).
    type: dict
    suboptions:
      name:
        description:
          - The name of this cluster. It must match the name of the context or cluster in the kubeconfig, and the name that
            is recorded in the cluster. Otherwise the run fails before anything is changed.
        type: str
        required: true
      kube_name:
        description:
          - The name of the cluster in the kubeconfig, if it differs from C(name).
        type: str
      uid:
        description:
          - The UID of the namespace C(kube-system), as shown by plan, report and export. The run fails if the cluster has a
            different UID.
        type: str
      renamed_from:
        description:
          - The name that is currently recorded in the cluster. Set this key only for the run that renames the cluster to C(name).
        type: str
      kubeconfig:
        description:
          - Absolute path to a kubeconfig file (or V(~/...)). The content of a kubeconfig is not accepted.
        type: str
      context:
        description:
          - A context of that kubeconfig. By default, the current context is used.
        type: str
      impersonate_user:
        description:
          - The user that all requests impersonate, including those of Helm.
        type: str
      impersonate_groups:
        description:
          - The groups of C(impersonate_user).
        type: list
        elements: str
      distribution:
        description:
          - The Kubernetes distribution. Set it if the distribution ships its own containerd or is OpenShift. With V(openshift),
            OLM installs NFD and the operator in different namespaces; without this key, a run detects OpenShift only if it
            can reach the cluster. On other distributions, the container toolkit is configured for the distribution's containerd;
            variables in C(operator.values.toolkit.env) take precedence. Without this key, a run detects the distribution from
            the nodes, and an installed operator whose container toolkit works keeps its settings.
        type: str
        choices:
          - kubeadm
          - rke2
          - k3s
          - k0s
          - microk8s
          - openshift
      known_issues:
        description:
          - Your own known issues, in addition to those in the catalog. Plan and report show an issue if the cluster meets all
            of its conditions.
        type: list
        elements: dict
        suboptions:
          releases:
            description:
              - Operator releases, or prefixes of releases (V(v26.3)). By default, all releases.
            type: list
            elements: str
          conditions:
            description:
              - Conditions that the cluster must meet, such as V(mig), V(rke2) or V(model H100). docs/catalog.md lists them.
                By default, there are no conditions.
            type: list
            elements: str
          text:
            description:
              - The sentence to show.
            type: str
            required: true
      cloud:
        description:
          - The cloud that creates node groups for this cluster. Set exactly one of its keys. Required if a pool declares C(nodes).
        type: dict
        suboptions:
          magnum:
            description:
              - The cluster is managed by OpenStack Magnum. An empty map (C({})) is sufficient.
            type: dict
            suboptions:
              cloud:
                description:
                  - The name of the cloud in C(clouds.yaml). By default, openstacksdk chooses the cloud from C(OS_CLOUD) and
                    the other C(OS_*) environment variables.
                type: str
              region_name:
                description:
                  - The region of that cloud.
                type: str
              cluster:
                description:
                  - Name or id of the cluster in Magnum. By default C(gpu_cluster.name).
                type: str
              template:
                description:
                  - The cluster template from which a missing cluster is created. Without a template, the run fails if the cluster
                    does not exist.
                type: str
              nodegroup_label:
                description:
                  - The node label that contains the name of the node group. Magnum drivers from other sources may use a different
                    label.
                type: str
                default: magnum.openstack.org/nodegroup
          vks:
            description:
              - The cluster is managed by VNG Cloud's VKS. An empty map (C({})) is sufficient.
            type: dict
            suboptions:
              cluster:
                description:
                  - Name or id of the cluster in VKS. By default C(gpu_cluster.name).
                type: str
              region:
                description:
                  - The region, V(HCM-3) or V(HAN). By default V(HCM-3).
                type: str
              project_id:
                description:
                  - The vServer project, for an account that has several.
                type: str
              iam_url:
                description:
                  - Address of the IAM API, if it differs from the region's default.
                type: str
              vks_url:
                description:
                  - Address of the VKS API, if it differs from the region's default.
                type: str
              vserver_url:
                description:
                  - Address of the vServer API, if it differs from the region's default.
                type: str
          machineset:
            description:
              - The cluster's own Machine API creates the nodes (OpenShift). An empty map (C({})) is sufficient.
            type: dict
            suboptions:
              namespace:
                description:
                  - Namespace of the MachineSets. By default V(openshift-machine-api).
                type: str
                default: openshift-machine-api
      autoscaler:
        description:
          - (MachineSets) Fields of OpenShift's ClusterAutoscaler. A run sets the declared fields, even in a ClusterAutoscaler
            that already exists, and leaves all other fields unchanged. A new ClusterAutoscaler gets delays that are long enough
            for the installation of a driver.
        type: dict
        suboptions:
          max_nodes_total:
            description:
              - The maximum total number of nodes in the cluster.
            type: int
          expanders:
            description:
              - The expanders, in order of precedence. They determine which MachineSet the autoscaler scales up if a pod fits
                on several. Without this field, the autoscaler chooses at random.
            type: list
            elements: str
          pod_priority_threshold:
            description:
              - The autoscaler adds no nodes for pods with a lower priority.
            type: int
          balance_similar_node_groups:
            description:
              - Whether similar MachineSets, such as those of several zones, get equal numbers of nodes.
            type: bool
          max_node_provision_time:
            description:
              - The maximum time until a new node offers its GPUs, such as V(30m). A node that takes longer is replaced. A new
                ClusterAutoscaler gets V(30m).
            type: str
          scale_down:
            description:
              - When the autoscaler removes nodes.
            type: dict
            suboptions:
              enabled:
                description:
                  - Whether the autoscaler removes nodes. A new ClusterAutoscaler gets V(true).
                type: bool
              delay_after_add:
                description:
                  - The time after a node was added during which no node is removed. It must be longer than the installation
                    of a driver. A new ClusterAutoscaler gets V(20m).
                type: str
              delay_after_delete:
                description:
                  - The time after a node was removed during which no other node is removed.
                type: str
              delay_after_failure:
                description:
                  - The time after a failed removal during which no node is removed.
                type: str
              unneeded_time:
                description:
                  - How long a node must be unneeded before it is removed.
                type: str
              utilization_threshold:
                description:
                  - The requested fraction of a node's resources, or of its GPUs, below which the node counts as unneeded, such
                    as V("0.4").
                type: str
          values:
            description:
              - Further fields in C(spec) of the ClusterAutoscaler, such as C(logVerbosity). C(resourceLimits.gpus) is not allowed,
                because it follows from C(autoscale) of the pools.
            type: dict
      operator:
        description:
          - The NVIDIA GPU operator. Its keys become Helm values, or fields of the ClusterPolicy if OLM installs it. Changing
            driver settings restarts the driver on every GPU node, so such a change is held back until you allow it.
        type: dict
        suboptions:
          version:
            description:
              - One exact version. A range is not allowed, because it would permit upgrades without notice.
            type: str
            default: v25.10.1
          namespace:
            description:
              - Namespace of the release, a DNS label. If you set this key (or C(release)), a release with that name is upgraded
                even if another tool installed it. With C(installer) V(olm), by default V(nvidia-gpu-operator).
            type: str
            default: gpu-operator
          release:
            description:
              - Name of the release, a DNS label of at most 53 characters.
            type: str
            default: gpu-operator
          chart:
            description:
              - A chart name in C(chart_repo), C(oci://registry/chart), an C(https://) address, or a path that begins with C(/),
                C(./), C(../) or C(~).
            type: str
            default: gpu-operator
          chart_repo:
            description:
              - Address of a Helm repository. Only with a bare chart name.
            type: str
            default: https://helm.ngc.nvidia.com/nvidia
          values:
            description:
              - Your Helm values, merged over all derived values. With C(installer) V(olm), they are fields in C(spec) of the
                ClusterPolicy that a run creates. C(nfd.enabled), C(devicePlugin.config) and C(operator.cleanupCRD) are not
                allowed, because the collection manages them. Secrets are also not allowed.
            type: dict
          installer:
            description:
              - How the operator is installed. By default V(olm) on OpenShift, otherwise V(helm).
            type: str
            choices:
              - helm
              - olm
          olm:
            description:
              - The package that OLM installs. If you set any of these keys, a run also upgrades a Subscription for this package
                in C(namespace) that another tool created.
            type: dict
            suboptions:
              package:
                description:
                  - Name of the package.
                type: str
                default: gpu-operator-certified
              channel:
                description:
                  - Channel of the package. By default, a channel that contains C(version). The current channel is preferred,
                    then the package's default channel, then any other channel.
                type: str
              source:
                description:
                  - CatalogSources in order of preference. The first one that offers the version is used, so you can put a staging
                    catalog first.
                type: list
                elements: str
                default:
                  - certified-operators
              source_namespace:
                description:
                  - Namespace of the CatalogSources.
                type: str
                default: openshift-marketplace
              approval:
                description:
                  - With V(Manual), a run approves the InstallPlan for C(version) and no other InstallPlan. With V(Automatic),
                    OLM installs every later version in the channel without a run.
                type: str
                choices:
                  - Manual
                  - Automatic
                default: Manual
              catalog_image:
                description:
                  - Index image of a catalog. A run creates the first CatalogSource in C(source) with this image. By default,
                    the CatalogSource must already exist.
                type: str
              additional_csvs:
                description:
                  - Names of ClusterServiceVersions of other packages that the same InstallPlan may install. OLM combines all
                    pending changes in a namespace into one InstallPlan, and a run only approves it if it installs nothing else.
                type: list
                elements: str
              operator_group:
                description:
                  - Name of the OperatorGroup, if a run creates it. By default, the name of the namespace. An existing OperatorGroup
                    is used and not changed.
                type: str
              target_namespaces:
                description:
                  - Namespaces that the operator watches; an empty list means all namespaces. By default, its own namespace
                    if the operator supports this, otherwise all namespaces. If an OperatorGroup with other namespaces exists,
                    a run fails.
                type: list
                elements: str
              subscription_config:
                description:
                  - C(spec.config) of the Subscription. It applies to the pods of the GPU operator itself, not to its operands.
                    The keys are C(tolerations), C(nodeSelector), C(resources), C(env) and all other keys that OLM supports.
                    If not set, the field is not changed. An empty map removes the entries of earlier runs. OLM adds the variables
                    of the cluster's proxy unless C(env) has one of them. Secrets are not allowed.
                type: dict
          registry:
            description:
              - A mirror, C(host[:port][/folder]), for the images of all operands, of NFD and of the validation pods, under
                the same paths as in C(nvcr.io) and C(registry.k8s.io). If the chart is a file, also set C(version).
            type: str
          image_pull_secrets:
            description:
              - Secrets in the operator's namespace for pulling the images of all operands. With C(registry), NFD also uses
                them, so the namespace of NFD must contain these Secrets as well.
            type: list
            elements: str
          driver:
            description:
              - The driver that the operator installs.
            type: dict
            suboptions:
              enabled:
                description:
                  - Set V(false) if the driver is preinstalled on every GPU node. If it is preinstalled only on some nodes,
                    keep V(true); the driver pods avoid these nodes automatically.
                type: bool
                default: true
              version:
                description:
                  - The bare version, such as V(580.105.08), or C(sha256:) and a digest. By default, the chart sets it. The
                    operator appends the operating system of the node, so a version that already ends with an operating system
                    is rejected.
                type: str
              kernel_module_type:
                description:
                  - The kind of kernel modules to build. By default, the operator chooses. Needs operator v25.3 or later.
                type: str
                choices:
                  - auto
                  - open
                  - proprietary
              precompiled:
                description:
                  - Whether images with a precompiled driver are used. If true, C(version) is the driver branch, such as V("580").
                type: bool
                default: false
              secret_env:
                description:
                  - A Secret whose keys become environment variables of the driver container, for example a proxy with its password.
                    Needs operator v25.10 or later.
                type: str
              rdma:
                description:
                  - GPUDirect RDMA with the kernel module nvidia-peermem. For DMA-BUF, which NVIDIA recommends, neither key
                    is required if the Network Operator installs the network drivers.
                type: dict
                suboptions:
                  enabled:
                    description:
                      - Whether the driver pods load nvidia-peermem. They wait for the drivers of the network adapters.
                    type: bool
                    default: false
                  use_host_mofed:
                    description:
                      - Whether MLNX_OFED or DOCA-OFED is installed on the nodes. By default, the Network Operator installs
                        it.
                    type: bool
                    default: false
              fabric_manager:
                description:
                  - Fabric Manager. On nodes with NVSwitches, the driver pods run it in the same version as the driver.
                type: dict
                suboptions:
                  mode:
                    description:
                      - V(shared-nvswitch) divides the NVSwitch fabric into partitions, which the DRA driver activates for virtual
                        machines. By default, the mode of the driver image is used, which is V(full-passthrough). Needs operator
                        v26.7 or later.
                    type: str
                    choices:
                      - full-passthrough
                      - shared-nvswitch
          proxy:
            description:
              - The proxy through which the driver container downloads packages.
            type: dict
            suboptions:
              http:
                description:
                  - C(http://host:port), without a password, because every user who can read the ClusterPolicy could see it.
                type: str
              https:
                description:
                  - The proxy for HTTPS, in the same form.
                type: str
              no_proxy:
                description:
                  - Hosts, domains and networks that are reached without the proxy.
                type: list
                elements: str
          repo_config:
            description:
              - A ConfigMap with the package sources of the driver container.
            type: str
          cert_config:
            description:
              - A ConfigMap with the CA certificates that the driver container trusts.
            type: str
          gds:
            description:
              - GPUDirect Storage. Needs the open kernel modules, which GPUs before Turing do not support, and a driver that
                the operator compiles.
            type: dict
            suboptions:
              enabled:
                description:
                  - Whether the driver pods load nvidia-fs.
                type: bool
                default: false
              version:
                description:
                  - The bare version of nvidia-fs, such as V(2.26.6). By default, the version in the chart.
                type: str
          gdrcopy:
            description:
              - GDRCopy. Needs a driver that the operator compiles.
            type: dict
            suboptions:
              enabled:
                description:
                  - Whether the driver pods load gdrdrv.
                type: bool
                default: false
              version:
                description:
                  - The bare version of gdrdrv, such as V(v2.5.1). By default, the version in the chart.
                type: str
      nfd:
        description:
          - Node Feature Discovery.
        type: dict
        suboptions:
          version:
            description:
              - One exact version. With C(installer) V(olm), the default is the version that the channel offers when the operator
                is installed.
            type: str
            default: 0.19.0
          namespace:
            description:
              - Namespace of the release, a DNS label. It has the same effect as C(operator.namespace). With C(installer) V(olm),
                by default V(openshift-nfd).
            type: str
            default: node-feature-discovery
          release:
            description:
              - Name of the release, a DNS label of at most 53 characters.
            type: str
            default: nfd
          chart:
            description:
              - The chart, in the forms of C(operator.chart).
            type: str
            default: oci://registry.k8s.io/nfd/charts/node-feature-discovery
          chart_repo:
            description:
              - Address of a Helm repository. Only with a bare chart name.
            type: str
          values:
            description:
              - Your Helm values, merged over the derived values. With C(installer) V(olm), they are fields in C(spec) of the
                NodeFeatureDiscovery that a run creates. Your C(worker.tolerations) are added to the tolerations of the pools.
                Secrets are not allowed.
            type: dict
          installer:
            description:
              - How NFD is installed. By default V(olm) on OpenShift, otherwise V(helm).
            type: str
            choices:
              - helm
              - olm
          olm:
            description:
              - The package that OLM installs. If you set any of these keys, a run also upgrades a Subscription for this package
                in C(namespace) that another tool created.
            type: dict
            suboptions:
              package:
                description:
                  - Name of the package.
                type: str
                default: nfd
              channel:
                description:
                  - Channel of the package. By default, a channel that contains C(version). The current channel is preferred,
                    then the package's default channel, then any other channel.
                type: str
              source:
                description:
                  - CatalogSources in order of preference. The first one that offers the version is used, so you can put a staging
                    catalog first.
                type: list
                elements: str
                default:
                  - redhat-operators
              source_namespace:
                description:
                  - Namespace of the CatalogSources.
                type: str
                default: openshift-marketplace
              approval:
                description:
                  - With V(Manual), a run approves the InstallPlan for C(version) and no other InstallPlan. With V(Automatic),
                    OLM installs every later version in the channel without a run.
                type: str
                choices:
                  - Manual
                  - Automatic
                default: Manual
              catalog_image:
                description:
                  - Index image of a catalog. A run creates the first CatalogSource in C(source) with this image. By default,
                    the CatalogSource must already exist.
                type: str
              additional_csvs:
                description:
                  - Names of ClusterServiceVersions of other packages that the same InstallPlan may install. OLM combines all
                    pending changes in a namespace into one InstallPlan, and a run only approves it if it installs nothing else.
                type: list
                elements: str
              operator_group:
                description:
                  - Name of the OperatorGroup, if a run creates it. By default, the name of the namespace. An existing OperatorGroup
                    is used and not changed.
                type: str
              target_namespaces:
                description:
                  - Namespaces that the operator watches; an empty list means all namespaces. By default, its own namespace
                    if the operator supports this, otherwise all namespaces. If an OperatorGroup with other namespaces exists,
                    a run fails.
                type: list
                elements: str
              subscription_config:
                description:
                  - C(spec.config) of the Subscription. It applies to the pods of NFD's operator itself, not to its operands.
                    The keys are C(tolerations), C(nodeSelector), C(resources), C(env) and all other keys that OLM supports.
                    If not set, the field is not changed. An empty map removes the entries of earlier runs. OLM adds the variables
                    of the cluster's proxy unless C(env) has one of them. Secrets are not allowed.
                type: dict
      validation:
        description:
          - The pods that validate a pool. Images have a tag or digest; the default images come from C(operator.registry) if
            that is set.
        type: dict
        suboptions:
          image:
            description:
              - Image of the CUDA kernel for all nodes. It must contain C(vectorAdd), C(sh) and C(timeout) in its PATH or in
                C(/cuda-samples). By default, the image in C(images) that matches the driver of the node.
            type: str
          images:
            description:
              - Images of the CUDA kernel by CUDA version, such as V("12.5"). The newest one that a node's driver and GPUs support
                is used. By default, V(nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda11.2.1), V(nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda11.7.1),
                V(nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0).
            type: dict
          load_image:
            description:
              - 'Image of the load test (C(gpu_validation_load_seconds)) for all nodes. It must contain C(nbody) in its PATH.
                By default, the newest of these images that the driver supports: V(nvcr.io/nvidia/k8s/cuda-sample:nbody-cuda11.7.1),
                V(nvcr.io/nvidia/k8s/cuda-sample:nbody-cuda12.5.0).'
            type: str
          nccl_image:
            description:
              - Image of the all-reduce test. It must contain C(mpirun), C(torchrun), and C(all_reduce_perf_mpi) from nccl-tests.
                By default, V(nvcr.io/nvidia/pytorch:26.01-py3).
            type: str
          namespace:
            description:
              - Namespace of the pods, a DNS label. By default, the namespace of the operator.
            type: str
  gpu_defaults:
    description:
      - Defaults of all pools. They are merged into each pool. Maps are merged at every depth, and lists are replaced.
      - All keys of C(gpu_pools) are allowed, except C(name), C(nodes.name), C(sharing.layout) and C(sharing.demand).
    type: dict
    suboptions:
      match:
        description:
          - As C(gpu_pools[].match).
        type: dict
      model:
        description:
          - As C(gpu_pools[].model).
        type: str
      nodes:
        description:
          - As C(gpu_pools[].nodes).
        type: dict
      autoscale:
        description:
          - As C(gpu_pools[].autoscale).
        type: dict
      gpus_per_node:
        description:
          - As C(gpu_pools[].gpus_per_node).
        type: int
      labels:
        description:
          - As C(gpu_pools[].labels).
        type: dict
      taints:
        description:
          - As C(gpu_pools[].taints).
        type: list
        elements: dict
      sharing:
        description:
          - As C(gpu_pools[].sharing).
        type: dict
      rollout:
        description:
          - As C(gpu_pools[].rollout).
        type: dict
      driver:
        description:
          - As C(gpu_pools[].driver).
        type: dict
      startup_taint:
        description:
          - As C(gpu_pools[].startup_taint).
        type: bool
  gpu_pools:
    description:
      - The pools of this cluster. They are required, except for M(accel.gpu.gpu_info), which returns only the actual state
        if they are missing.
      - Null is not allowed. An explicit empty list means that there are no pools.
      - All errors of the three variables are reported together, each with its path.
    type: list
    elements: dict
    suboptions:
      name:
        description:
          - Name of the pool, a DNS label, unique in the list. The node label C(accel.gpu/pool) pins a node to the pool with
            that name.
        type: str
        required: true
      match:
        description:
          - The nodes that belong to the pool. Without C(match), only the nodes of the pool's node group (C(nodes)) and pinned
            nodes belong to it.
        type: dict
        suboptions:
          model:
            description:
              - A GPU model, either as published by gpu-feature-discovery (V(Tesla-T4), V(NVIDIA-A100-SXM4-80GB)) or in short
                form (V(T4)).
            type: str
          labels:
            description:
              - Labels that a node must have, in addition to C(model). All of them must match. To match a model that is not
                in the catalog, use the label C(nvidia.com/gpu.product).
            type: dict
      model:
        description:
          - Declares the GPU model of C(nodes.flavor), so that it is known before the first node exists. Only allowed with C(nodes),
            and not with C(match.model). Without a model, a MIG layout is only checked when the first node has been discovered.
        type: str
      nodes:
        description:
          - The node group that a run creates for the pool. Its nodes belong to the pool without C(match). Without C(nodes),
            the nodes must already exist.
        type: dict
        suboptions:
          name:
            description:
              - Name of the node group. By default, the name of the pool. With VKS, it must consist of 5 to 15 characters from
                C(a-z), C(0-9) and C(-). Not allowed in C(gpu_defaults).
            type: str
          flavor:
            description:
              - Flavor of the nodes, which determines their GPUs. Required. With MachineSets, it is the machine type on AWS,
                Azure and Google Cloud; on vSphere, set C(nodes.template) instead.
            type: str
          count:
            description:
              - Number of nodes. Required without C(autoscale). With C(autoscale), it is the initial number.
            type: int
          recreate:
            description:
              - Whether the group is replaced with a new one if the cloud cannot make a change in place. The old nodes are drained
                first. By default V(false); such a change is then rejected.
            type: bool
          image:
            description:
              - (Magnum) Image of the nodes. By default, the image of the cluster.
            type: str
          role:
            description:
              - (Magnum) Role of the group. By default V(worker).
            type: str
          labels:
            description:
              - (Magnum) Labels that Magnum uses to configure the group. These are not node labels.
            type: dict
          merge_labels:
            description:
              - (Magnum) Whether C(labels) are merged over the labels of the cluster instead of replacing them. By default V(true).
            type: bool
          docker_volume_size:
            description:
              - (Magnum) Size in GiB of a volume for containers.
            type: int
          os:
            description:
              - (VKS) Operating system of the nodes. By default V(ubuntu).
            type: str
          disk_size:
            description:
              - (VKS) Size of the disk in GiB, 20 to 5000. By default V(100).
            type: int
          disk_type:
            description:
              - (VKS) Type of the disk. Required for a new group.
            type: str
          ssh_key:
            description:
              - (VKS) SSH key of the nodes. Required for a new group.
            type: str
          subnet:
            description:
              - (VKS) Subnet of the nodes. By default, the subnet of the cluster. Its zone determines the available flavors
                and disks.
            type: str
          secondary_subnets:
            description:
              - (VKS) Additional subnets.
            type: list
            elements: str
          security_groups:
            description:
              - (VKS) Security groups of the nodes.
            type: list
            elements: str
          private_nodes:
            description:
              - (VKS) Whether the nodes have no public addresses. By default V(false).
            type: bool
          encrypted_volume:
            description:
              - (VKS) Whether the disk is encrypted. By default V(false).
            type: bool
          tags:
            description:
              - (VKS) Tags of the servers.
            type: dict
          upgrade_strategy:
            description:
              - (VKS) How nodes are replaced during an upgrade.
            type: dict
            suboptions:
              max_surge:
                description:
                  - Number of additional nodes during an upgrade. By default V(1).
                type: int
              max_unavailable:
                description:
                  - Number of nodes that may be unavailable during an upgrade. By default V(0).
                type: int
          kubernetes_version:
            description:
              - (VKS) Kubernetes version of the nodes. By default, the version of the cluster.
            type: str
          like:
            description:
              - (MachineSets) The MachineSet from which a new one is copied. By default, the first worker MachineSet by name
                that this collection does not manage.
            type: str
          template:
            description:
              - (MachineSets) The virtual machine to clone on vSphere, instead of C(flavor). Its GPU or vGPU profile determines
                the GPUs of the nodes.
            type: str
          zones:
            description:
              - (MachineSets) Zones of the nodes; on vSphere, failure domains. The pool has one MachineSet in each zone. The
                name of the MachineSet ends with the zone, and C(count) and C(autoscale) are divided among the zones. By default,
                there is one MachineSet, in the zone of C(like).
            type: list
            elements: str
          accelerators:
            description:
              - (MachineSets) GPUs to attach to the machines on Google Cloud, for machine types without built-in GPUs.
            type: dict
            suboptions:
              type:
                description:
                  - Kind of GPU, such as C(nvidia-tesla-t4).
                type: str
                required: true
              count:
                description:
                  - Number of GPUs of each machine.
                type: int
          provider_spec:
            description:
              - (MachineSets) Additional fields of the machines' C(providerSpec.value), such as C(numCPUs) and C(memoryMiB)
                on vSphere. All other fields keep the values of the MachineSet. Null removes a field.
            type: dict
          adopt:
            description:
              - (MachineSets) Whether the collection takes over an existing MachineSet with the group's name that it did not
                create. Otherwise, the run fails. By default V(false).
            type: bool
      autoscale:
        description:
          - The range within which the cloud's autoscaler chooses the number of nodes. Only with C(nodes). The autoscaler counts
            the resource C(nvidia.com/gpu), which nodes with C(sharing.strategy) V(mixed) do not have.
        type: dict
        suboptions:
          min:
            description:
              - The lowest number of nodes. V(0) is allowed.
            type: int
            required: true
          max:
            description:
              - The highest number of nodes.
            type: int
            required: true
          priority:
            description:
              - (MachineSets) Priority of the pool for the expander V(Priority). The autoscaler adds nodes to the pool with
                the highest priority among the pools that fit. Needs C(gpu_cluster.autoscaler.expanders) with V(Priority), or
                an existing ClusterAutoscaler with this expander.
            type: int
      gpus_per_node:
        description:
          - Number of GPUs of each node, 1 to 64. A node with a different number is reported as drift. By default, the number
            is not checked.
        type: int
      labels:
        description:
          - Labels for the nodes. Labels with a prefix that other components use (C(accel.gpu/), C(nvidia.com/), C(feature.node.kubernetes.io/))
            are not allowed. The only exceptions are the labels with which users choose the operator's workloads that run on
            a node.
        type: dict
      taints:
        description:
          - Taints for the nodes, one for each key and effect.
        type: list
        elements: dict
        suboptions:
          key:
            description:
              - Key of the taint. Keys with the prefix C(accel.gpu/), C(node.kubernetes.io/), C(node.cloudprovider.kubernetes.io/)
                or C(startup-taint.cluster-autoscaler.kubernetes.io/) are not allowed. C(nvidia.com/gpu) is allowed.
            type: str
            required: true
          value:
            description:
              - Value of the taint. Quote V("yes") and V("no").
            type: str
          effect:
            description:
              - Effect of the taint.
            type: str
            choices:
              - NoSchedule
              - PreferNoSchedule
              - NoExecute
            required: true
      sharing:
        description:
          - How GPUs are exposed to containers.
        type: dict
        suboptions:
          mode:
            description:
              - V(none) exposes whole GPUs. V(time-slicing) and V(mps) advertise each GPU C(replicas) times. V(mig) partitions
                each GPU into MIG devices. If nodes already share GPUs, a run does not stop the sharing unless the mode is set
                explicitly.
            type: str
            choices:
              - none
              - time-slicing
              - mps
              - mig
            default: none
          replicas:
            description:
              - Number of shares of each GPU, 2 to 250. Required with V(time-slicing) and V(mps). With V(mps), at most 48 (16
                before Turing). With V(mig), the number of shares of each MIG device. Not allowed with V(none).
            type: int
          layout:
            description:
              - 'The MIG devices of each GPU (V(mig) needs this key or C(demand)), as a map of counts (C({3g.20gb: 1, 2g.10gb:
                2})) or a list of profiles. To partition the GPUs of a node differently, set a map or list for each GPU index
                (C({0: {7g.40gb: 1}, 1: {3g.20gb: 2}})); a GPU whose index is missing is not partitioned. Not allowed in C(gpu_defaults).'
            type: raw
          demand:
            description:
              - The number of MIG devices of each profile that all nodes of the pool provide together (V(mig) needs this key
                or C(layout)). Not allowed in C(gpu_defaults).
            type: dict
          strategy:
            description:
              - With V(single), MIG devices are advertised as C(nvidia.com/gpu), and with V(mixed) as C(nvidia.com/mig-<profile>).
                By default V(single) if all GPUs have the same devices of one profile, otherwise V(mixed).
            type: str
            choices:
              - single
              - mixed
          rename:
            description:
              - Whether the names of shared resources get the suffix C(.shared), as in C(nvidia.com/gpu.shared).
            type: bool
            default: false
          fail_requests_greater_than_one:
            description:
              - Whether a container that requests more than one share is rejected, because it would still get the compute time
                of only one GPU.
            type: bool
            default: true
      rollout:
        description:
          - How changes to the sharing settings are rolled out to the nodes of the pool.
        type: dict
        suboptions:
          max_unavailable:
            description:
              - Number of nodes that are changed at the same time, or a percentage such as V("25%"), rounded up. Nodes that
                are new to the pool and have no pods to evict do not count.
            type: raw
            default: 1
          drain:
            description:
              - The pods that are evicted. V(gpu-pods) evicts GPU pods that cannot keep running during the change. V(all) evicts
                all pods except static pods and pods of DaemonSets. V(none) evicts no pods; the node stays cordoned until the
                pods have terminated.
            type: str
            choices:
              - none
              - gpu-pods
              - all
            default: gpu-pods
          force:
            description:
              - Whether pods without a controller are also evicted. Otherwise, such a pod blocks the change to its node.
            type: bool
            default: false
          grace_period:
            description:
              - Number of seconds that an evicted pod has to terminate. By default, each pod's own grace period.
            type: int
          drain_timeout:
            description:
              - Timeout in seconds for draining one node, including the time spent waiting for PodDisruptionBudgets.
            type: int
            default: 600
          order:
            description:
              - With V(idle-first), the nodes with the fewest pods to evict are changed first. With V(name), the nodes are changed
                in order of their names.
            type: str
            choices:
              - idle-first
              - name
            default: idle-first
          limit:
            description:
              - Maximum number of nodes that one run changes, or a percentage. The next run continues. By default, all nodes
                are changed.
            type: raw
          pause_on_failure:
            description:
              - Whether the rollout of the pool stops after a node has failed. Changes to nodes that are already in progress
                are completed.
            type: bool
            default: true
          on_failure:
            description:
              - V(rollback) rolls the node back to its last working configuration. V(leave) keeps the node cordoned and adds
                a taint that contains the reason.
            type: str
            choices:
              - rollback
              - leave
            default: rollback
          reboot:
            description:
              - How a node is rebooted if its GPUs cannot be reset. Without this setting, no node is rebooted.
            type: dict
            suboptions:
              command:
                description:
                  - Command and arguments, with C({node}) as the placeholder for the node's name, such as C([ssh, "core@{node}",
                    sudo, systemctl, reboot]). The command runs without a shell, on the machine or in the execution environment
                    where the playbook runs.
                type: list
                elements: str
                required: true
              timeout:
                description:
                  - Timeout in seconds for the node to become ready with a new boot ID.
                type: int
                default: 900
      driver:
        description:
          - The driver of the nodes, if it differs between pools. If at least one pool declares it, the driver is described
            by an NVIDIADriver object for each pool instead of by the ClusterPolicy. Pools without C(driver), and keys that
            a pool does not declare, use the values of the ClusterPolicy. An empty map uses them for all keys. A change restarts
            the driver only on the nodes of its pool, and is held back until you allow it.
        type: dict
        suboptions:
          type:
            description:
              - The kind of driver. V(vgpu) is the guest driver of virtual machines with a vGPU. By default V(gpu). Cannot be
                changed later.
            type: str
            choices:
              - gpu
              - vgpu
          version:
            description:
              - The bare version, such as V(580.105.08), or C(sha256:) and a digest. The operator appends the operating system
                of the node.
            type: str
          repository:
            description:
              - The registry and path of the driver image, such as V(nvcr.io/nvidia). Required with C(type) V(vgpu).
            type: str
          image:
            description:
              - The name of the image in the repository. By default V(driver).
            type: str
          kernel_module_type:
            description:
              - The kind of kernel modules to build, which must support the GPU model that the pool declares. Needs operator
                v25.3 or later.
            type: str
            choices:
              - auto
              - open
              - proprietary
          precompiled:
            description:
              - Whether an image with a precompiled driver is used. C(version) is then the driver branch, such as V("580").
                Cannot be changed later.
            type: bool
          image_pull_secrets:
            description:
              - Secrets in the operator's namespace for pulling the image.
            type: list
            elements: str
          secret_env:
            description:
              - A Secret whose keys become environment variables of the driver container. Needs operator v25.10 or later.
            type: str
          repo_config:
            description:
              - A ConfigMap with the package sources of the driver container.
            type: str
          cert_config:
            description:
              - A ConfigMap with the CA certificates that the driver container trusts.
            type: str
          kernel_module_config:
            description:
              - A ConfigMap with parameters of the kernel modules.
            type: str
          licensing_secret:
            description:
              - A Secret with the configuration and the token of the NVIDIA License System. Only with C(type) V(vgpu). Needs
                operator v25.10 or later.
            type: str
          upgrade:
            description:
              - How the operator replaces the driver on the nodes of the pool. Needs operator v26.7 or later; in earlier releases,
                C(driver.upgradePolicy) of the ClusterPolicy applies to all nodes together.
            type: dict
            suboptions:
              automatic:
                description:
                  - Whether the operator upgrades the driver node by node. With V(false), each node keeps its driver until its
                    driver pod is deleted. By default V(true).
                type: bool
              max_parallel:
                description:
                  - Number of nodes that are upgraded at the same time. V(0) sets no limit. By default V(1).
                type: int
              max_unavailable:
                description:
                  - Number of nodes, or a percentage, that may be unavailable during the upgrade. By default V("25%").
                type: raw
      startup_taint:
        description:
          - Whether new nodes get a taint that keeps workloads away until the partitioning of their GPUs is verified. Only allowed
            with C(sharing.mode) V(mig). The role C(accel.gpu.new_nodes) removes the taint after the verification. With C(autoscale),
            install the CronJob of that role; otherwise an added node keeps the taint until the next run.
        type: bool
        default: false
"""
