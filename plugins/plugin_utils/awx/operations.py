# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operations that AWX offers: one for each playbook of the collection, in one table.

A new playbook needs an entry in OPERATIONS; a test fails without it.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

# Credential types (credential_types.py) that give access to clusters and clouds. Every operation uses them.
ACCESS = ("kubeconfig", "kubernetes", "openstack", "clouds", "vks")

READS: t.Final = "reads"
CHANGES: t.Final = "changes"
REMOVES: t.Final = "removes"


@dataclass(frozen=True)
class Operation:
    """A playbook as a job template.

    effect: READS changes no cluster. REMOVES deletes node groups or what the collection has installed, so it is offered only if the settings name it.
    questions: the variables of the survey. Their types, defaults and descriptions come from the argument specifications of the roles.
    required: the variables among them that must be answered.
    credentials: the credential types that the operation uses in addition to ACCESS.
    slices: whether the job may be cut into slices of the inventory. A report of all clusters in one table must not be.
    tags: whether the playbook has tags by which a launch may select steps.
    scheduled: whether a schedule may run it, because it changes nothing or only nodes that have no workload yet.
    """

    playbook: str
    purpose: str
    effect: str = CHANGES
    questions: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    credentials: tuple[str, ...] = ()
    tags: bool = False
    slices: bool = True
    scheduled: bool = False

    @property
    def title(self) -> str:
        """The last words of the job template's name."""
        return self.playbook.replace("_", " ")

    @property
    def prompts(self) -> tuple[str, ...]:
        """What a launch may set, in AWX's words (ask_PROMPT_on_launch)."""
        of_changes = () if self.effect == READS else ("job_type", "diff_mode")
        # AWX fails a slice in which a limit leaves no cluster, so a launch with a limit may need fewer slices.
        of_slices = ("job_slice_count",) if self.slices else ()
        # No skip_tags: they could skip the comparison with the approved plan.
        return ("limit", "verbosity", *of_changes, *of_slices, *(("tags",) if self.tags else ()))

    @property
    def credential_types(self) -> tuple[str, ...]:
        """All credential types that the job template may have."""
        return ACCESS + self.credentials


_OPERATIONS = (
    Operation(
        "plan",
        "Shows the changes that site would make, and their impact. Changes nothing.",
        READS,
        ("gpu_nodegroups_pool_names", "gpu_operator_allow_driver_rollout"),
        credentials=("vcenter",),
        scheduled=True,
    ),
    Operation(
        "site",
        "Makes the clusters match their declared pools.",
        questions=(
            "gpu_nodegroups_pool_names",
            "gpu_sharing_pool_names",
            "gpu_operator_allow_driver_rollout",
            "gpu_validation_force",
            "gpu_confirm",
        ),
        credentials=("vcenter", "nls", "registries"),
        tags=True,
    ),
    Operation(
        "report",
        "Reports the state of every pool and its drift. Changes nothing.",
        READS,
        ("gpu_report_fail_on_drift", "gpu_report_include_workloads", "gpu_report_artifacts"),
        credentials=("vcenter",),
        scheduled=True,
    ),
    Operation(
        "share",
        "Applies the sharing, labels and taints of the pools in a rolling update.",
        questions=(
            "gpu_sharing_pool_names",
            "gpu_sharing_label_selectors",
            "gpu_sharing_wait",
            "gpu_sharing_wait_timeout",
        ),
        credentials=("vcenter",),
    ),
    Operation(
        "scale",
        "Changes the number of nodes of one pool.",
        questions=("gpu_pool", "gpu_node_count", "gpu_nodegroups_wait_timeout", "gpu_confirm"),
        required=("gpu_pool", "gpu_node_count"),
        credentials=("vcenter",),
    ),
    Operation(
        "nodegroups",
        "Creates and changes the node groups of the pools.",
        questions=("gpu_nodegroups_pool_names", "gpu_nodegroups_wait_timeout", "gpu_confirm"),
        credentials=("vcenter",),
    ),
    Operation(
        "new_nodes",
        "Configures nodes that were added after the last run.",
        questions=("gpu_new_nodes_wait_timeout",),
        scheduled=True,
    ),
    Operation(
        "repair",
        "Repairs nodes whose change is stuck.",
        questions=("gpu_sharing_pool_names", "gpu_sharing_wait_timeout"),
        credentials=("vcenter",),
    ),
    Operation(
        "upgrade",
        "Upgrades NFD and the GPU operator to the declared versions.",
        questions=("gpu_operator_allow_driver_rollout",),
        credentials=("vcenter", "registries"),
    ),
    Operation(
        "autoscaling",
        "Configures OpenShift's cluster autoscaler for the pools.",
        questions=("gpu_autoscaling_pool_names", "gpu_autoscaling_adopt", "gpu_autoscaling_force"),
        credentials=("vcenter",),
    ),
    Operation(
        "templates",
        "Builds the vSphere templates of the pools.",
        questions=("gpu_vsphere_templates_pool_names", "gpu_vsphere_templates_wait_timeout"),
        credentials=("vcenter",),
    ),
    Operation(
        "vsphere_hosts",
        "Checks whether the ESXi hosts are prepared for the pools, and sets their graphics type if asked to.",
        questions=(
            "gpu_vsphere_hosts_apply",
            "gpu_vsphere_hosts_names",
            "gpu_vsphere_hosts_restart",
            "gpu_vsphere_hosts_wait_timeout",
        ),
        credentials=("vcenter",),
    ),
    Operation(
        "driver_image",
        "Builds or copies the vGPU driver images of the pools.",
        questions=("gpu_driver_image_force",),
        credentials=("registries",),
    ),
    Operation(
        "mirror",
        "Copies the images of the pools to a mirror registry.",
        questions=("gpu_mirror_operating_systems", "gpu_mirror_operator_versions"),
        credentials=("registries",),
    ),
    Operation(
        "verify_mirror",
        "Verifies that a mirror registry contains the images of the pools. Changes nothing.",
        READS,
        ("gpu_mirror_operating_systems", "gpu_mirror_operator_versions"),
        credentials=("registries",),
        scheduled=True,
    ),
    Operation(
        "license",
        "Writes the licensing token, and verifies the license of every vGPU node.",
        questions=("gpu_licensing_replace", "gpu_licensing_min_days", "gpu_licensing_wait_timeout"),
        credentials=("nls",),
    ),
    Operation(
        "license_rotate",
        "Loads a new licensing token into running vGPU drivers.",
        questions=(
            "gpu_licensing_node_names",
            "gpu_licensing_preflight",
            "gpu_licensing_restart_drivers",
            "gpu_licensing_restore",
            "gpu_licensing_wait_timeout",
        ),
        credentials=("nls",),
    ),
    Operation(
        "license_report",
        "Reports the licenses of all clusters in one table. Changes nothing.",
        READS,
        ("gpu_licensing_min_days",),
        credentials=("nls",),
        slices=False,
        scheduled=True,
    ),
    Operation("export", "Shows the variables that describe a live cluster. Changes nothing.", READS),
    Operation(
        "reset",
        "Resets pools to whole GPUs without sharing.",
        REMOVES,
        ("gpu_sharing_pool_names", "gpu_sharing_wait_timeout", "gpu_confirm"),
        credentials=("vcenter",),
    ),
    Operation(
        "templates_refresh",
        "Replaces the vSphere templates of pools, and then their machines, one after another.",
        REMOVES,
        ("gpu_pool", "gpu_confirm"),
        required=("gpu_pool",),
        credentials=("vcenter",),
    ),
    Operation(
        "delete_nodegroups",
        "Drains the nodes of pools and deletes the node groups.",
        REMOVES,
        ("gpu_pool", "gpu_nodegroups_drain_options", "gpu_confirm"),
        required=("gpu_pool",),
        credentials=("vcenter",),
    ),
    Operation(
        "uninstall",
        "Removes everything that the collection has created on a cluster.",
        REMOVES,
        ("gpu_uninstall_reset_mig", "gpu_uninstall_allow_driver_rollout", "gpu_uninstall_wait_timeout", "gpu_confirm"),
        credentials=("vcenter",),
    ),
)
OPERATIONS: t.Final[dict[str, Operation]] = {operation.playbook: operation for operation in _OPERATIONS}
# What the settings select if they name no operation.
DEFAULT: t.Final = tuple(name for name, operation in OPERATIONS.items() if operation.effect != REMOVES)
# The steps of the workflow, one after another: operations, and the approval by a person. What follows the approval does not run without it.
APPROVAL: t.Final = "approval"
WORKFLOW: t.Final = ("plan", APPROVAL, "site", "report")
STEPS: t.Final = tuple(OPERATIONS[name] for name in WORKFLOW if name != APPROVAL)
WORKFLOW_TITLE: t.Final = "rollout"
