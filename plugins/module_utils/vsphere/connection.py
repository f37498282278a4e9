# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of a connection to vCenter. Modules that rarely ask vCenter import only this file, because the import of pyvmomi takes time."""

from __future__ import annotations

import typing as t

from ansible.module_utils.basic import env_fallback

if t.TYPE_CHECKING:
    from ..core.module import ArgumentSpec

# The variables for options that are not set, with the names that vmware.vmware uses (`ca_cert` is this collection's own).
VARIABLES = {
    "hostname": "VMWARE_HOST",
    "username": "VMWARE_USER",
    "password": "VMWARE_PASSWORD",
    "port": "VMWARE_PORT",
    "validate_certs": "VMWARE_VALIDATE_CERTS",
    "ca_cert": "VMWARE_CA_CERT",
    "proxy_host": "VMWARE_PROXY_HOST",
    "proxy_port": "VMWARE_PROXY_PORT",
}
# The options have the names and the variables of vmware.vmware; `ca_cert` and `request_timeout` are this collection's.
_TYPES: ArgumentSpec = {
    "hostname": {"type": "str"},
    "username": {"type": "str", "aliases": ["admin", "user"]},
    "password": {"type": "str", "aliases": ["pass", "pwd"], "no_log": True},
    "port": {"type": "int"},
    "validate_certs": {"type": "bool", "default": True},
    "ca_cert": {"type": "path"},
    "proxy_host": {"type": "str"},
    "proxy_port": {"type": "int"},
}
CONNECTION: ArgumentSpec = {
    **{name: {**option, "fallback": (env_fallback, [VARIABLES[name]])} for name, option in _TYPES.items()},
    "request_timeout": {"type": "int", "default": 60},
}
# The option of modules that ask vCenter only why a virtual machine does not start.
VCENTER: ArgumentSpec = {"vcenter": {"type": "dict", "options": CONNECTION, "apply_defaults": True}}
