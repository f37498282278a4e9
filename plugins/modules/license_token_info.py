#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the claims of a client configuration token of the NVIDIA License System."""

from __future__ import annotations

DOCUMENTATION = r"""
module: license_token_info
short_description: Read the claims of a client configuration token of the NVIDIA License System
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Reads a client configuration token without network access. Returns when the token expires, which license server it names, and whether it was changed.
  - NVIDIA does not document the claims of these tokens. If a claim is missing, its value in the result is null. RV(license_token.warnings) also reports
    important claims that are missing.
  - The module fails if the text is not a token, for example because the file is truncated.
  - An expired token is not an error. Check RV(license_token.valid).
extends_documentation_fragment:
  - accel.gpu.license_token
  - accel.gpu.attributes.info
attributes:
  check_mode:
    description: Changes nothing.
  diff_mode:
    description: There is nothing to compare.
  idempotent:
    description: Returns the same result for the same token, except for the remaining time.
seealso:
  - module: accel.gpu.license
  - module: accel.gpu.license_info
"""

EXAMPLES = r"""
- name: Read a token
  accel.gpu.license_token_info:
    token_path: /srv/nvidia/client_configuration_token_03-01-2026-12-00-00.tok
  register: token

- name: Require a token that is valid for another month
  ansible.builtin.assert:
    that:
      - token.license_token.valid
      - token.license_token.days_left is none or token.license_token.days_left >= 30
"""

RETURN = r"""
license_token:
  description: The values of the token. Values that the token does not contain are null.
  returned: success
  type: dict
  contains:
    fingerprint: {description: The first 16 digits of the SHA-256 digest of the token., type: str, returned: always, sample: 5e9d51ee2b5cd3c0}
    algorithm: {description: Algorithm of the token's signature., type: str, returned: always, sample: RS256}
    expires: {description: Time at which the token expires., type: str, returned: always, sample: '2027-03-01T12:00:00Z'}
    not_before: {description: Start of the token's validity., type: str, returned: always, sample: '2026-03-01T12:00:00Z'}
    issued: {description: Time at which the token was created., type: str, returned: always, sample: '2026-03-01T12:00:00Z'}
    days_left: {description: Whole days until the token expires; negative if it has expired., type: int, returned: always, sample: 364}
    valid: {description: Whether the token is valid now., type: bool, returned: always, sample: true}
    problem: {description: The reason why the token is not valid now; empty if it is valid., type: str, returned: always, sample: ''}
    server_type:
      description: V(cls) for NVIDIA's Cloud License Service, or V(dls) for your own Delegated License Service.
      type: str
      returned: always
      sample: dls
    services:
      description: The services of the license server. Each vGPU guest connects to them.
      type: list
      elements: dict
      returned: always
      contains:
        host: {description: Name or address., type: str, returned: always, sample: dls.example.com}
        port: {description: Port., type: int, returned: always, sample: 443}
        service: {description: Name of the service., type: str, returned: always, sample: lease}
    license_classes: {description: The license classes to which the token is limited., type: list, elements: str, returned: always, sample: []}
    signature:
      description:
        - V(consistent) if the signature matches the public key in the token itself, V(inconsistent) if it does not, and V(unknown) if the token has no usable
          key.
        - This value shows whether the token was changed, but not who signed it.
      type: str
      returned: always
      sample: consistent
    warnings:
      description: Unusual properties of the token, each as a clause such as V(it has no expiry).
      type: list
      elements: str
      returned: always
      sample: [it has no expiry]
code:
  description: The reason for the failure. V(invalid) - no token is set, its file cannot be read, or the text is not a token.
  returned: failure
  type: raw
  sample: invalid
details:
  description: Details of the failure. C(problems) lists all errors.
  returned: failure
  type: dict
  sample: {problems: ["gpu_licensing_token_path (option token_path of the module): the token is empty."]}
"""

import typing as t

from ..module_utils.core.errors import InvalidOptions
from ..module_utils.licensing.module import TOKEN, LicenseTokenModule
from ..module_utils.licensing.token import TOKEN_ENV, utc_now


def work(module: LicenseTokenModule) -> dict[str, t.Any]:
    """Read the token."""
    info = module.license_token_info
    if info is None:
        raise InvalidOptions([f"token: is missing; set token, token_path, or the environment variable {TOKEN_ENV}"])
    now = utc_now()
    problem = info.problem(now)
    return {
        "changed": False,
        "license_token": {**info.as_dict(now), "problem": problem.reason if problem is not None else ""},
    }


def main() -> None:
    """Run the module."""
    LicenseTokenModule(TOKEN).run(work)


if __name__ == "__main__":
    main()
