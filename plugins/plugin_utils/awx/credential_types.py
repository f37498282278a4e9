# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The credential types of AWX that the operations use: AWX's own, and those that the playbook awx creates.

AWX writes each `file` with mode 0600 into the job's container and puts its path where `tower.filename` stands. The environment variables are those that
the modules read; a test compares them with the modules.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CredentialType:
    """A credential type.

    name: its name in AWX. inputs, injectors: of a custom type; empty for AWX's own types, which exist in every AWX.
    required: the inputs that must be set.
    """

    name: str
    purpose: str
    inputs: tuple[dict[str, t.Any], ...] = ()
    required: tuple[str, ...] = ()
    injectors: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def is_custom(self) -> bool:
        """Whether the playbook creates it."""
        return bool(self.inputs)


def _text(name: str, label: str, help_text: str = "") -> dict[str, t.Any]:
    return {"id": name, "type": "string", "label": label, **({"help_text": help_text} if help_text else {})}


def _secret(name: str, label: str, help_text: str = "", *, multiline: bool = False) -> dict[str, t.Any]:
    return {**_text(name, label, help_text), "secret": True, **({"multiline": True} if multiline else {})}


CREDENTIAL_TYPES: t.Final[dict[str, CredentialType]] = {
    "kubeconfig": CredentialType(
        "accel.gpu kubeconfig",
        "A kubeconfig with a context for each cluster. gpu_cluster.context selects the context.",
        (_secret("kubeconfig", "Kubeconfig", "The content of the file.", multiline=True),),
        ("kubeconfig",),
        {"file": {"template": "{{ kubeconfig }}"}, "env": {"KUBECONFIG": "{{ tower.filename }}"}},
    ),
    "kubernetes": CredentialType("OpenShift or Kubernetes API Bearer Token", "One cluster."),
    "openstack": CredentialType("OpenStack", "One OpenStack project, which clouds.yaml calls devstack."),
    "clouds": CredentialType(
        "accel.gpu clouds.yaml",
        "Several OpenStack projects.",
        (_secret("clouds_yaml_secret", "clouds.yaml", "The content of the file.", multiline=True),),
        ("clouds_yaml_secret",),
        {"file": {"template": "{{ clouds_yaml_secret }}"}, "env": {"OS_CLIENT_CONFIG_FILE": "{{ tower.filename }}"}},
    ),
    "vks": CredentialType(
        "accel.gpu VNG Cloud",
        "A service account of VNG Cloud for VKS.",
        (
            _text("client_id", "Client ID"),
            _secret("client_secret", "Client secret"),
            _text("region", "Region", "Such as HCM-3."),
            _text("project_id", "Project ID"),
        ),
        ("client_id", "client_secret"),
        {
            "env": {
                "GRN_CLIENT_ID": "{{ client_id }}",
                "GRN_CLIENT_SECRET": "{{ client_secret }}",
                "GRN_DEFAULT_REGION": "{{ region }}",
                "GRN_PROJECT_ID": "{{ project_id }}",
            }
        },
    ),
    "vcenter": CredentialType("VMware vCenter", "The vCenter in which vGPU templates are built."),
    "registries": CredentialType(
        "accel.gpu registries",
        "Logins of registries, in the format that podman login writes, and an API key of NGC.",
        (
            _secret("auth_file_secret", "Auth file", 'The content of the file: {"auths": {...}}.', multiline=True),
            _secret("ngc_api_key", "NGC API key"),
        ),
        (),
        {
            "file": {"template": "{{ auth_file_secret or '{}' }}"},
            "env": {"REGISTRY_AUTH_FILE": "{{ tower.filename }}", "NGC_API_KEY": "{{ ngc_api_key }}"},
        },
    ),
    "nls": CredentialType(
        "accel.gpu NVIDIA License System",
        "The client configuration token of vGPU nodes, and an API key for the report of licenses.",
        (
            _secret("client_token", "Client configuration token", multiline=True),
            _secret("api_key", "API key", "With the access type Licensing State."),
        ),
        (),
        {"env": {"NLS_CLIENT_TOKEN": "{{ client_token }}", "NLS_API_KEY": "{{ api_key }}"}},
    ),
}
# Pairs of types of which a job reads only one: which cluster it reaches, and which clouds.yaml. The second type of a pair provides several of them.
ALTERNATIVES: t.Final = (("kubernetes", "kubeconfig"), ("openstack", "clouds"))
