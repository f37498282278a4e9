# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines the names of the licensing options in messages: the variable of the role, and the option of the module."""

from __future__ import annotations

from ..schema.messages import option_of_role

ALLOW_CONFIGMAP_OPTION = option_of_role("gpu_licensing_allow_configmap", "allow_configmap")
FEATURE_TYPE_OPTION = option_of_role("gpu_licensing_feature_type", "feature_type")
NODE_NAMES_OPTION = option_of_role("gpu_licensing_node_names", "node_names")
REPLACE_OPTION = option_of_role("gpu_licensing_replace", "replace")
RESTART_OPTION = option_of_role("gpu_licensing_restart_drivers", "restart_drivers")
RESTORE_OPTION = option_of_role("gpu_licensing_restore", "restore")
SECRET_NAME_OPTION = option_of_role("gpu_licensing_secret_name", "secret_name")
SOURCE_OPTION = option_of_role("gpu_licensing_report_source", "source")
# The environment variable that contains the token.
TOKEN_ENV = "NLS_CLIENT_TOKEN"
TOKEN_OPTION = option_of_role("gpu_licensing_token", "token")
TOKEN_PATH_OPTION = option_of_role("gpu_licensing_token_path", "token_path")
VGPU_TYPES_OPTION = option_of_role("gpu_licensing_vgpu_types", "vgpu_types")
