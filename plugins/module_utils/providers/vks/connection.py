# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The transport of an account, from the options of a module or of the inventory plugin."""

from __future__ import annotations

import typing as t

from ...common.errors import ConnectionProblem, InvalidOptions
from ...common.http import URLLIB3_IMPORT_ERROR
from .endpoints import Endpoints, endpoints
from .iam import Login, tokens_of
from .transport import HttpClient, TlsOptions, VksTransport

# The variables for options that are not set, as the vendor's command line (GRN_ACCESS_KEY_ID ...) and MCP server (GRN_CLIENT_ID ...) call them.
ENVIRONMENT: dict[str, tuple[str, ...]] = {
    "client_id": ("GRN_CLIENT_ID", "GRN_ACCESS_KEY_ID"),
    "client_secret": ("GRN_CLIENT_SECRET", "GRN_SECRET_ACCESS_KEY"),
    "region": ("GRN_DEFAULT_REGION",),
    "iam_url": ("VKS_IAM_URL",),
    "vks_url": ("VKS_URL",),
    "vserver_url": ("VKS_VSERVER_URL",),
    "project_id": ("GRN_PROJECT_ID", "GRN_DEFAULT_PROJECT_ID"),
}


def connect(params: t.Mapping[str, t.Any], user_agent: str, services: Endpoints | None = None) -> VksTransport:
    """The transport; sends nothing yet. Raises InvalidOptions, and ConnectionProblem where urllib3 is missing."""
    if URLLIB3_IMPORT_ERROR is not None:
        raise ConnectionProblem(
            "urllib3, which is needed for VKS, is not installed for this Python: pip install urllib3."
        )
    missing = [option for option in ("client_id", "client_secret") if not params.get(option)]
    if missing:
        raise InvalidOptions(
            [
                f"{' and '.join(missing)}: missing. Set them as options or in the environment (GRN_CLIENT_ID, GRN_CLIENT_SECRET): "
                "those of a service account in VNG Cloud's IAM."
            ]
        )
    services = services or endpoints(params)
    login = Login(services.iam, services.iam_version, params["client_id"], params["client_secret"])
    timeout = float(params.get("request_timeout") or 30)
    tls = TlsOptions(params.get("validate_certs") is not False, params.get("ca_cert"), timeout)
    return VksTransport(services, HttpClient(tls, user_agent), tokens_of(login), limit=2 * timeout)
