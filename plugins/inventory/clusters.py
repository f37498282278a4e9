# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters of OpenStack projects and VNG Cloud accounts as hosts."""

from __future__ import annotations

DOCUMENTATION = r"""
name: clusters
short_description: Kubernetes clusters on OpenStack Magnum and VNG Cloud VKS as hosts
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Each cluster of the named clouds becomes a host of the group C(gpu_clusters), with the variable C(gpu_cluster) that the roles of this collection
    read, so that a fleet needs no hosts written by hand. What is to be on the clusters stands in C(group_vars) as ever.
  - The variable C(gpu_discovered) tells what the cloud says of the cluster, and of its node groups with their flavors and GPUs.
  - Hosts are grouped by provider (C(magnum), C(vks)), cloud (C(cloud_NAME)), region (C(region_NAME)) and by the GPU models of their node groups, as
    far as the flavors tell them (C(model_T4), C(model_H100)).
  - Clusters that share a name get the region, the cloud, or a part of their id behind it, whichever tells them apart. The name of the host is
    C(gpu_cluster.name), which the cluster remembers from its first change on. A cluster that gets a longer name since another one of its name has
    appeared is renamed with C(gpu_cluster.renamed_from).
  - The file's name has to end with C(clusters.yml) or C(clusters.yaml).
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [accel.gpu.clusters]
  clouds:
    description:
      - The clouds to ask. Each entry has one key, C(magnum) or C(vks), with settings below it.
      - C(magnum) has C(cloud) (its name in C(clouds.yaml), whose credentials are used), C(region_names) (a list; all regions that C(clouds.yaml) has
        for the cloud if left out) and C(gpu_aliases) (what the operator's names of cards mean, as models of the catalog).
      - C(vks) has C(region) (V(HCM-3) if left out), C(project_id), C(iam_url), C(iam_version), C(vks_url), C(vserver_url), C(ca_cert),
        C(validate_certs), which mean what they mean for M(accel.gpu.vks_nodegroup), and C(client_id_env) and C(client_secret_env), the names of the
        environment variables that hold the account's credentials; those that the modules read if left out.
    type: list
    elements: dict
    required: true
  names:
    description: Patterns (as of a shell) of the names of clusters; one of them has to fit.
    type: list
    elements: str
    default: ['*']
  kubeconfig_folder:
    description:
      - Where the kubeconfigs are, as C(HOST.kubeconfig). Relative to the folder of the inventory's file.
    type: str
    default: kubeconfigs
  write_kubeconfigs:
    description:
      - Whether a kubeconfig is fetched, and written for its owner alone, where it is missing, leads elsewhere or ends soon.
      - On Magnum a new client certificate is signed, on VKS the service's kubeconfig is taken, and another one made where it ends soon. Both
        make their holder an administrator of the cluster.
      - With V(false) a kubeconfig that leads to another server than the cloud says is an error; with O(fail_on_errors=false) its host is left out.
    type: bool
    default: true
  renew_before:
    description: Days before its end at which a kubeconfig counts as ended.
    type: int
    default: 3
  expiration_days:
    description: How many days a kubeconfig of VKS lasts that has to be made.
    type: int
    default: 30
  fail_on_errors:
    description: Whether a cloud that cannot be asked fails the inventory. With V(false) it is left out, with a warning.
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
  - What is cached has no secrets in it. A kubeconfig that is missing is fetched also when the rest comes from the cache.
seealso:
  - module: accel.gpu.magnum_kubeconfig
  - module: accel.gpu.vks_kubeconfig
"""

EXAMPLES = r"""
# fleet.clusters.yml: two OpenStack clouds and a VNG Cloud account
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

# groups, by what the cloud tells
groups:
  has_gpus: gpu_discovered.gpus > 0
keyed_groups:
  - {key: gpu_discovered.version, prefix: version}
compose:
  gpu_pools_file: "'pools/' ~ gpu_discovered.provider ~ '.yml'"

# asked at most once an hour
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: ~/.cache/accel-gpu-clusters
cache_timeout: 3600
"""

import fnmatch
import os
import typing as t

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable

from ..module_utils.common.errors import ConnectionProblem
from ..plugin_utils.clusters import entries
from ..plugin_utils.clusters.asking import Asking, CloudFailed, sources_of
from ..plugin_utils.clusters.found import ALL, Found, Life, groups_of, host_names, host_vars
from ..plugin_utils.clusters.kubeconfigs import Folder

_ENDINGS = ("clusters.yml", "clusters.yaml")


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    """The plugin accel.gpu.clusters."""

    NAME = "accel.gpu.clusters"

    def verify_file(self, path: str) -> bool:
        """Whether the file is one of this plugin's, by its name."""
        return bool(super().verify_file(path)) and path.endswith(_ENDINGS)

    def parse(self, inventory: t.Any, loader: t.Any, path: str, cache: bool = True) -> None:
        """Fill the inventory from the clouds, or from the cache."""
        super().parse(inventory, loader, path, cache=cache)
        self._read_config_data(path)
        clouds = self.get_option("clouds")
        if wrong := entries.problems(clouds):
            raise AnsibleParserError("\n".join([f"{path} cannot be used:", *wrong]))
        try:
            asking = Asking(
                sources_of(clouds, os.environ), self.display.warning, fail=self.get_option("fail_on_errors")
            )
            found = self._found(asking, path, cache)
            hosts = dict(sorted(zip(host_names(found), found, strict=True)))
            folder = self._folder(path)
            if self.get_option("write_kubeconfigs"):
                life = Life(self.get_option("expiration_days"), self.get_option("renew_before"))
                asking.give_kubeconfigs(hosts, folder, life)
            else:
                hosts = asking.without_foreign_kubeconfigs(hosts, folder)
            self._populate(hosts, folder)
        except (CloudFailed, ConnectionProblem) as error:
            raise AnsibleParserError(f"{path}: {error}") from None

    def _found(self, asking: Asking, path: str, cache: bool) -> list[Found]:
        """As the cache has it, where that is wanted and there; else as the clouds tell it, which the cache then keeps."""
        self.load_cache_plugin()
        key = self.get_cache_key(path)
        cached = self.get_option("cache")
        if cached and cache:
            try:
                return [Found.of_cache(kept) for kept in self._cache[key]]
            except KeyError:
                pass
        patterns = self.get_option("names")
        found = asking.discover(lambda name: any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns))
        if cached:
            self._cache[key] = [one.to_cache() for one in found]
        return found

    def _folder(self, path: str) -> Folder:
        given = os.path.expanduser(self.get_option("kubeconfig_folder"))
        return Folder(os.path.join(os.path.dirname(os.path.abspath(path)), given), self.get_option("renew_before"))

    def _populate(self, hosts: t.Mapping[str, Found], folder: Folder) -> None:
        strict = self.get_option("strict")
        self.inventory.add_group(ALL)
        for host, found in hosts.items():
            self.inventory.add_host(host, group=ALL)
            told = host_vars(found, folder.path(host), folder.kube_name(host), host)
            for name, value in told.items():
                self.inventory.set_variable(host, name, value)
            for group in groups_of(found):
                self.inventory.add_host(host, group=self.inventory.add_group(self._sanitize_group_name(group)))
            self._set_composite_vars(self.get_option("compose"), told, host, strict=strict)
            known = self.inventory.get_host(host).get_vars()
            self._add_host_to_composed_groups(self.get_option("groups"), known, host, strict=strict)
            self._add_host_to_keyed_groups(self.get_option("keyed_groups"), known, host, strict=strict)
