# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A client of the look-ups of the lab's part nls."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class NlsClient:
    """A client with the variables that `lab/lab env` exports."""

    env: dict[str, str]

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        """Return the status and the JSON of a response."""
        context = ssl.create_default_context(cafile=self.env["LAB_NLS_CA"])
        key = Path(self.env["LAB_NLS_API_KEY_FILE"]).read_text()
        request = urllib.request.Request(self.env["LAB_NLS"] + path, headers={"X-API-KEY": key} | headers)
        try:
            with urllib.request.urlopen(request, context=context, timeout=20) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    @property
    def org(self) -> str:
        """The path of the organization's virtual groups."""
        return f"/v1/org/{self.env['LAB_NLS_ORG']}/virtual-groups"

    def leases(self) -> list[str]:
        """Return the feature of each lease."""
        status, actual = self.get(f"{self.org}/1/leases")
        assert status == 200
        return [lease["featureName"] for client in actual["clients"] for lease in client["leases"]]
