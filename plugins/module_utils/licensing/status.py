# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines the license state of a node's vGPUs from the output of `nvidia-smi -q` (pure).

Source: NVIDIA Virtual GPU Client Licensing User Guide, "Verifying the License Status of a Licensed Client". The numbers in the expiry have no leading zeros.
"""

from __future__ import annotations

import datetime
import re
import typing as t
from dataclasses import dataclass

LICENSED, UNLICENSED, NOT_APPLICABLE, UNKNOWN = "licensed", "unlicensed", "not_applicable", "unknown"
# A node has the worst state of its vGPUs.
_WORST_FIRST = (UNLICENSED, UNKNOWN, LICENSED, NOT_APPLICABLE)

_SECTION, _NAME = "vGPU Software Licensed Product", "Product Name"
_EXPIRY = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2}) (\d{1,2}):(\d{1,2}):(\d{1,2}) GMT", re.ASCII)
_MAX_TEXT = 100


@dataclass(frozen=True)
class LicenseStatus:
    """The license state of a node, with the reported text, the licensed product, the expiry (None if unknown or permanent), and the vGPU type, such as
    NVIDIA A100-10C.
    """

    state: str
    text: str = ""
    product: str = ""
    expires: datetime.datetime | None = None
    vgpu_type: str = ""

    @property
    def is_licensed(self) -> bool:
        """Whether every vGPU has a license."""
        return self.state == LICENSED


def parse_status(output: str) -> LicenseStatus:
    """The state of the node; a node with several vGPUs has the worst of their states."""
    statuses = [_status(fields) for fields in _sections(output)]
    return worst(statuses) or LicenseStatus(NOT_APPLICABLE if "NVSMI LOG" in output else UNKNOWN)


def worst(statuses: t.Iterable[LicenseStatus]) -> LicenseStatus | None:
    """The worst state among a node's vGPUs; None if there are none."""
    return min(statuses, key=lambda status: (_WORST_FIRST.index(status.state), status.expires or _NEVER), default=None)


def printable(text: str) -> str:
    """The printable characters of a string, up to a maximum length."""
    return "".join(character for character in text.strip() if character.isprintable())[:_MAX_TEXT]


_NEVER = datetime.datetime.max.replace(tzinfo=datetime.UTC)


def _sections(output: str) -> t.Iterator[dict[str, str]]:
    """The fields of each section about the licensed product, which are the more deeply indented lines below the section's name. The name of the GPU is
    added under the section's name.
    """
    lines = output.splitlines()
    gpu = ""
    for number, line in enumerate(lines):
        name, value = line.partition(":")[::2]
        if name.strip() == _NAME:
            gpu = printable(value)
        if line.strip() != _SECTION:
            continue
        indentation = _indentation(line)
        fields: dict[str, str] = {_SECTION: gpu}
        for below in lines[number + 1 :]:
            if _indentation(below) <= indentation:
                break
            name, value = below.partition(":")[::2]
            fields[name.strip()] = printable(value)
        yield fields


def _status(fields: t.Mapping[str, str]) -> LicenseStatus:
    text, product, gpu = fields.get("License Status", ""), fields.get(_NAME, ""), fields[_SECTION]
    product = "" if product == "N/A" else product
    if text.startswith("Licensed"):
        return LicenseStatus(LICENSED, text, product, _expiry(text), gpu)
    if text.startswith("Unlicensed"):
        return LicenseStatus(UNLICENSED, text, product, vgpu_type=gpu)
    return LicenseStatus(NOT_APPLICABLE if text == "N/A" else UNKNOWN, text, product, vgpu_type=gpu)


def _expiry(text: str) -> datetime.datetime | None:
    match = _EXPIRY.search(text)
    if match is None:
        return None
    try:
        return datetime.datetime(*map(int, match.groups()), tzinfo=datetime.UTC)  # type: ignore[arg-type,misc]
    except ValueError:
        return None


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip()) if line.strip() else 0
