# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An account's client, made of options that a module has, or somebody else."""

from __future__ import annotations

import typing as t

from ...common.errors import ConnectionProblem, InvalidOptions
from .endpoints import Endpoints, endpoints
from .http import URLLIB3_IMPORT_ERROR, Http, TlsOptions
from .iam import Login, tokens_of
from .transport import VksTransport

# Where an option is read that is not given: the names of the vendor's command line (GRN_ACCESS_KEY_ID ...) and MCP server (GRN_CLIENT_ID ...).
ENVIRONMENT: dict[str, tuple[str, ...]] = {
    "client_id": ("GRN_CLIENT_ID", "GRN_ACCESS_KEY_ID"),
    "client_secret": ("GRN_CLIENT_SECRET", "GRN_SECRET_ACCESS_KEY"),
    "region": ("GRN_DEFAULT_REGION",),
    "iam_url": ("VKS_IAM_URL",),
    "vks_url": ("VKS_URL",),
    "vserver_url": ("VKS_VSERVER_URL",),
    "project_id": ("GRN_PROJECT_ID", "GRN_DEFAULT_PROJECT_ID"),
}


def connected(params: t.Mapping[str, t.Any], user_agent: str, where: Endpoints | None = None) -> VksTransport:
    """The account; nothing is asked yet. Raises InvalidOptions, and ConnectionProblem where urllib3 is missing."""
    if URLLIB3_IMPORT_ERROR is not None:
        raise ConnectionProblem("VKS is asked through urllib3, which this Python does not have: pip install urllib3.")
    missing = [option for option in ("client_id", "client_secret") if not params.get(option)]
    if missing:
        raise InvalidOptions(
            [
                f"{' and '.join(missing)}: missing. Give them as options or in the environment (GRN_CLIENT_ID, GRN_CLIENT_SECRET): "
                "those of a service account in VNG Cloud's IAM."
            ]
        )
    where = where or endpoints(params)
    login = Login(where.iam, where.iam_version, params["client_id"], params["client_secret"])
    timeout = float(params.get("request_timeout") or 30)
    verified = params.get("validate_certs")
    http = Http(TlsOptions(verified is not False, params.get("ca_cert"), timeout), user_agent)
    return VksTransport(where, http, tokens_of(login), patience=2 * timeout)
