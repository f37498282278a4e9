# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Provides the clusters of OpenStack projects and VNG Cloud accounts as hosts."""

from __future__ import annotations

DOCUMENTATION = r"""
name: clusters
short_description: Kubernetes clusters on OpenStack Magnum and VNG Cloud VKS as hosts
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Each cluster in the listed clouds becomes a host of the group C(gpu_clusters). The host has the variable C(gpu_cluster), which this collection's roles read.
    Set the other variables in C(group_vars).
  - The variable C(gpu_discovered) contains the data that the cloud returns about the cluster and its node groups, with their flavors and GPUs.
  - Hosts are grouped by provider (C(magnum), C(vks)), cloud (C(cloud_NAME)) and region (C(region_NAME)). They are also grouped by the GPU models of their node
    groups (C(model_T4), C(model_H100)) if the flavors name the models.
  - If several clusters share a name, the plugin adds the region, the cloud, or a part of the ID to the name of each host to make it unique. The host name is
    the value of C(gpu_cluster.name), and the first run that changes the cluster records this name in the cluster. If a host gets a longer name because a second
    cluster with the same name has appeared, rename the cluster with C(gpu_renamed_from).
  - The name of the inventory file must end with C(clusters.yml) or C(clusters.yaml).
options:
  plugin:
    description: Name of this plugin.
    type: str
    required: true
    choices: [accel.gpu.clusters]
  clouds:
    description:
      - The clouds to query. Each entry has one key, C(magnum) or C(vks), which contains the settings of the cloud.
      - The settings of C(magnum) are C(cloud), C(region_names) and C(gpu_aliases). C(cloud) is the name of the cloud in C(clouds.yaml), which provides the
        credentials. C(region_names) is a list of regions. By default, all regions of the cloud in C(clouds.yaml) are queried. C(gpu_aliases) is a map from the
        cloud operator's names for GPUs to models in the catalog.
      - The settings of C(vks) are C(region), C(project_id), C(iam_url), C(iam_version), C(vks_url), C(vserver_url), C(ca_cert) and C(validate_certs), as in
        M(accel.gpu.vks_nodegroup). In addition, C(client_id_env) and C(client_secret_env) are the names of the environment variables that contain the
        account's credentials. By default, the plugin reads the same environment variables as the modules.
    type: list
    elements: dict
    required: true
  names:
    description: Shell patterns for cluster names. A cluster is included if one of the patterns matches.
    type: list
    elements: str
    default: ['*']
  kubeconfig_folder:
    description:
      - Directory of the kubeconfigs. Each file is named C(HOST.kubeconfig). A relative path is relative to the directory of the inventory file.
    type: str
    default: kubeconfigs
  write_kubeconfigs:
    description:
      - Whether to fetch a kubeconfig if it is missing, belongs to a server other than the cluster's API server, or is about to expire. Only the owner of the
        file can read it.
      - For Magnum, the plugin requests a new client certificate. For VKS, it fetches the existing kubeconfig, or requests a new one if the existing one is
        about to expire. Both kinds of kubeconfig grant administrator permissions in the cluster.
      - With V(false), a kubeconfig for a different server is an error. With O(fail_on_errors=false), the inventory then omits the host of this cluster.
    type: bool
    default: true
  renew_before:
    description: Number of days. A kubeconfig is replaced if it expires within this time.
    type: int
    default: 3
  expiration_days:
    description: Validity of a new kubeconfig from VKS in days.
    type: int
    default: 30
  fail_on_errors:
    description: Whether the inventory fails if a cloud cannot be queried. With V(false), the cloud is omitted and a warning is shown.
    type: bool
    default: true
extends_documentation_fragment:
  - constructed
  - inventory_cache
requirements:
  - openstacksdk for clouds with Magnum
  - urllib3 for VKS
  - cryptography and PyYAML
notes:
  - Changes to O(clouds) or O(names) take effect immediately, because the cache has an entry for each query.
  - The cache contains no secrets. A missing kubeconfig is fetched even if the other data comes from the cache.
seealso:
  - module: accel.gpu.magnum_kubeconfig
  - module: accel.gpu.vks_kubeconfig
"""

EXAMPLES = r"""
# fleet.clusters.yml - two OpenStack clouds and a VNG Cloud account
plugin: accel.gpu.clusters
clouds:
  - magnum: {cloud: cern}
  - magnum:
      cloud: mycloud
      region_names: [RegionOne, RegionTwo]
      gpu_aliases: {bigcard: A100-SXM4-80GB}
  - vks: {region: HCM-3}
  - vks: {region: HAN, client_id_env: HAN_CLIENT_ID, client_secret_env: HAN_CLIENT_SECRET}
names: ["prod-*"]

# Groups that depend on the data from the cloud
groups:
  has_gpus: gpu_discovered.gpus > 0
keyed_groups:
  - {key: gpu_discovered.version, prefix: version}
compose:
  gpu_pools_file: "'pools/' ~ gpu_discovered.provider ~ '.yml'"

# Query the clouds at most once an hour
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: ~/.cache/accel-gpu-clusters
cache_timeout: 3600
"""

import contextlib
import dataclasses
import json
import os
import typing as t

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable
from ansible.utils.unsafe_proxy import wrap_var

from ..module_utils.catalog.names import VERSION
from ..module_utils.clouds.kubeconfig_file import ClusterFilter, DiscoveredCluster, KubeconfigLifetime
from ..module_utils.core.errors import ConnectionProblem, InvalidOptions
from ..module_utils.core.messages import printable
from ..plugin_utils.clusters.model import ALL, groups_of, host_names, host_vars
from ..plugin_utils.clusters.query import CloudQuery, KubeconfigFolder, cloud_entries, sources_of

_ENDINGS = ("clusters.yml", "clusters.yaml")


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    """The plugin accel.gpu.clusters."""

    NAME = "accel.gpu.clusters"

    def verify_file(self, path: str) -> bool:
        """Return whether this plugin accepts the ending of the file name."""
        return bool(super().verify_file(path)) and path.endswith(_ENDINGS)

    def parse(self, inventory: t.Any, loader: t.Any, path: str, cache: bool = True) -> None:
        """Fill the inventory from the clouds, or from the cache."""
        super().parse(inventory, loader, path, cache=cache)
        self._read_config_data(path)
        try:
            sources = sources_of(cloud_entries(self.get_option("clouds")), os.environ)
            query = CloudQuery(sources, self.display.warning, fail=self.get_option("fail_on_errors"))
            clusters = self._clusters(query, path, cache)
            hosts = dict(sorted(zip(host_names(clusters), clusters, strict=True)))
            folder = self._folder(path)
            if self.get_option("write_kubeconfigs"):
                query.write_kubeconfigs(hosts, folder)
            else:
                hosts = query.without_foreign_kubeconfigs(hosts, folder)
            self._populate(hosts, folder)
        except (ConnectionProblem, InvalidOptions) as error:
            raise AnsibleParserError(printable(f"{path}: {error}")) from None

    def _clusters(self, query: CloudQuery, path: str, cache: bool) -> list[DiscoveredCluster]:
        """Return the clusters from the cache, or query the clouds and store the result in the cache, if it is enabled."""
        self.load_cache_plugin()
        selection = ClusterFilter(self.get_option("names"))
        # Different clouds, regions in clouds.yaml, or filters require a new query. Another release may store other fields.
        identity = [VERSION, path, self.get_option("clouds"), query.places, dataclasses.asdict(selection)]
        key = self.get_cache_key(json.dumps(identity, default=str))
        enabled = self.get_option("cache")
        if enabled and cache:
            # The entry is missing or expired.
            with contextlib.suppress(KeyError):
                return [DiscoveredCluster.from_cache(cached) for cached in self._cache[key]]
        clusters = query.discover(selection)
        if enabled:
            self._cache[key] = [cluster.to_cache() for cluster in clusters]
        return clusters

    def _folder(self, path: str) -> KubeconfigFolder:
        folder = os.path.expanduser(self.get_option("kubeconfig_folder"))
        lifetime = KubeconfigLifetime(self.get_option("expiration_days"), self.get_option("renew_before"))
        return KubeconfigFolder(os.path.join(os.path.dirname(os.path.abspath(path)), folder), lifetime)

    def _populate(self, hosts: t.Mapping[str, DiscoveredCluster], folder: KubeconfigFolder) -> None:
        strict = self.get_option("strict")
        self.inventory.add_group(ALL)
        for host, cluster in hosts.items():
            self.inventory.add_host(host, group=ALL)
            current = folder.existing(host)
            # Text from a cloud is data, never a template.
            variables = wrap_var(
                host_vars(cluster, host, folder.path(host), current.context if current else cluster.name)
            )
            for name, value in variables.items():
                self.inventory.set_variable(host, name, value)
            for group in groups_of(cluster):
                self.inventory.add_host(host, group=self.inventory.add_group(self._sanitize_group_name(group)))
            self._set_composite_vars(self.get_option("compose"), variables, host, strict=strict)
            all_variables = self.inventory.get_host(host).get_vars()
            self._add_host_to_composed_groups(self.get_option("groups"), all_variables, host, strict=strict)
            self._add_host_to_keyed_groups(self.get_option("keyed_groups"), all_variables, host, strict=strict)
