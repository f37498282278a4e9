# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the options of the modules for vSphere."""

from __future__ import annotations


class ModuleDocFragment:
    """Provides the documentation fragment accel.gpu.vsphere. It must precede accel.gpu.attributes, which has a different action group."""

    DOCUMENTATION = r"""
options:
  hostname:
    description:
      - Host name or address of vCenter. Modules with the option C(kubernetes) use the vCenter of that cluster by default.
      - If this option is not set, the environment variable E(VMWARE_HOST) is used. With the option C(kubernetes), it must name a vCenter of that cluster.
    type: str
  username:
    description:
      - User name, such as C(automation@vsphere.local).
      - If this option is not set, the environment variable E(VMWARE_USER) is used.
    type: str
    aliases: [admin, user]
  password:
    description:
      - Password of the user. A rejected login is not retried, because failed logins lock the account.
      - If this option is not set, the environment variable E(VMWARE_PASSWORD) is used.
    type: str
    aliases: [pass, pwd]
  port:
    description:
      - Port of vCenter. The default is V(443).
      - If this option is not set, the environment variable E(VMWARE_PORT) is used.
    type: int
  validate_certs:
    description:
      - Whether the certificates of vCenter, of the ESXi hosts, and of the server of an OVA are verified.
      - If this option is not set, the environment variable E(VMWARE_VALIDATE_CERTS) is used.
    type: bool
    default: true
  ca_cert:
    description:
      - Path to the CA certificates that are used to verify the certificates. The root certificate of vCenter's own CA, which also signs the certificates of the
        hosts, can be downloaded from C(https://VCENTER/certs/download.zip). Without this option, vCenter is verified with the system's CA certificates, and
        each host must have the certificate that vCenter reports for it. The server of an OVA may also have a certificate of a CA of the system.
      - If this option is not set, the environment variable E(VMWARE_CA_CERT) is used.
    type: path
  proxy_host:
    description:
      - Host name of an HTTP proxy.
      - If this option is not set, the environment variable E(VMWARE_PROXY_HOST) is used.
    type: str
  proxy_port:
    description:
      - Port of the HTTP proxy. The default is V(80).
      - If this option is not set, the environment variable E(VMWARE_PROXY_PORT) is used.
    type: int
  request_timeout:
    description: Seconds to wait for the response to a request, and for each block of an upload.
    type: int
    default: 60
requirements:
  - python >= 3.11
  - pyvmomi >= 8.0.3.0.1; 9.0.0.0 with O(proxy_host)
  - urllib3
notes:
  - The modules were tested with a simulated vCenter (API 7.0.3, 8.0.3 and 9.0) and OpenShift's real machine controller, not with a real vCenter.
attributes:
  action_group:
    description: Use C(group/accel.gpu.vsphere) in C(module_defaults) to set the connection options once.
    support: full
    membership:
      - accel.gpu.vsphere
"""

    # The option of modules that only ask why a virtual machine does not start.
    VCENTER = r"""
options:
  vcenter:
    description:
      - The connection to vCenter, on vSphere. It is used only if a Machine has a virtual machine that is not started. OpenShift's machine controller does not
        report the reason, such as that no GPU is left. The module reads it in the events of vCenter, and adds it to the message.
    type: dict
    suboptions:
      hostname: {description: Host name or address of vCenter. The default is E(VMWARE_HOST)., type: str}
      username: {description: User name. The default is E(VMWARE_USER)., type: str, aliases: [admin, user]}
      password: {description: Password. The default is E(VMWARE_PASSWORD)., type: str, aliases: [pass, pwd]}
      port: {description: 'Port. The default is E(VMWARE_PORT), or V(443).', type: int}
      validate_certs: {description: Whether the certificate of vCenter is verified., type: bool, default: true}
      ca_cert: {description: Path to the CA certificates. The default is E(VMWARE_CA_CERT)., type: path}
      proxy_host: {description: Host name of an HTTP proxy. The default is E(VMWARE_PROXY_HOST)., type: str}
      proxy_port: {description: Port of the HTTP proxy. The default is E(VMWARE_PROXY_PORT)., type: int}
      request_timeout: {description: Seconds to wait for the response to a request., type: int, default: 60}
"""

    # The templates that a module builds or compares.
    TEMPLATE = r"""
options:
  name:
    description:
      - Name of the template in the options. The name in vCenter also contains the release and a checksum of the configuration.
      - Exactly one of O(name) and O(templates) is required.
    type: str
  profile: &profile
    description: The vGPU profile, in any case. M(accel.gpu.vgpu_profile_info) lists the profiles that the hosts offer.
    type: str
  count: &count
    description: Number of vGPUs of each clone.
    type: int
    default: 1
  failure_domain: &failure_domain
    description:
      - Name or zone of a failure domain in the Infrastructure object of the cluster in O(kubernetes), from which O(datacenter), O(cluster), O(datastore),
        O(network) and O(resource_pool) are read unless they are set. The default is the only one.
    type: str
  datacenter: &datacenter
    description: Name or inventory path of the data center.
    type: str
  cluster: &cluster
    description: Name or inventory path of the compute cluster.
    type: str
  datastore: &datastore
    description: Name or inventory path of the datastore.
    type: str
  network: &network
    description: Name or inventory path of the network. The machine controller replaces it in each clone.
    type: str
  resource_pool: &resource_pool
    description: Name or inventory path of the resource pool. The default is the root pool of the cluster.
    type: str
  folder: &folder
    description:
      - Folder of the templates, as a name below the folder C(vm) of the data center or as an inventory path. It is created if it does not exist.
      - It must not be the folder of the cluster's machines, in which OpenShift replaces templates.
    type: str
    default: accel-gpu
  mmio_gib: &mmio_gib
    description:
      - Size of the 64-bit MMIO space in GiB, a power of two. The default is twice the memory of the physical GPU, rounded up to a power of two, for each vGPU.
    type: int
  machines: &machines
    description:
      - Number of machines that are cloned from the template. The module fails if those that do not run yet do not fit on the hosts beside what runs there.
        If it is not set, this is not checked.
    type: int
  max_machines: &max_machines
    description:
      - Largest number of machines, which an autoscaler may reach. The module fails if idle hosts cannot run as many, and warns if they cannot run those of all
        templates at the same time.
    type: int
  recreate: &recreate
    description: Whether existing machines are replaced if the template changes. The new ones are created first, so that they must fit beside the old ones.
    type: bool
    default: false
  driver_version: &driver_version
    description:
      - Version of the vGPU driver in the machines. The module fails if a host's vGPU manager does not support it. This needs one request for each host, and the
        privilege C(Host.Config.Image).
    type: str
  url: &url
    description: URL of the OVA. Without O(url) and O(path), the OVA of the release of the cluster in O(kubernetes) is used. Requires O(checksum).
    type: str
  path: &path
    description: Path to an OVA on the machine that runs the module.
    type: path
  checksum: &checksum
    description: The SHA-256 of the OVA, such as C(sha256:9b1d...). It is verified before the import is completed.
    type: str
  namespace:
    description: Namespace of the MachineSets and Machines.
    type: str
    default: openshift-machine-api
  templates:
    description: Several templates, each of which has the same options as a single one. They are validated together and built in parallel.
    type: list
    elements: dict
    suboptions:
      name:
        description: See O(name).
        type: str
        required: true
      profile: *profile
      count: *count
      failure_domain: *failure_domain
      datacenter: *datacenter
      cluster: *cluster
      datastore: *datastore
      network: *network
      resource_pool: *resource_pool
      folder: *folder
      mmio_gib: *mmio_gib
      machines: *machines
      max_machines: *max_machines
      recreate: *recreate
      driver_version: *driver_version
      url: *url
      path: *path
      checksum: *checksum
"""
