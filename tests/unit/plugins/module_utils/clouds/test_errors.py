# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Error bodies of the services in all their forms, and the message that is made of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds.magnum_client import (
    OpenStackError,
    explain,
    openstack_error_text,
)


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (
            json.dumps({"errors": [{"status": 409, "title": "t", "detail": "Multiple clusters exist."}]}),
            "Multiple clusters exist.",
        ),
        (
            json.dumps({"errors": [{"detail": "", "title": "Requested microversion is unsupported"}]}),
            "Requested microversion is unsupported",
        ),
        (json.dumps({"errors": [{"detail": "", "title": ""}]}), ""),
        (
            json.dumps({"itemNotFound": {"code": 404, "message": "Flavor x could not be found."}}),
            "Flavor x could not be found.",
        ),
        (
            json.dumps({"error": {"code": 401, "message": "requires authentication", "title": "Unauthorized"}}),
            "requires authentication",
        ),
        ("<html><title>404 Not Found</title>No image found<br /></html>", "404 Not Found No image found"),
        ("", ""),
    ],
)
def test_texts(body: str, part: str) -> None:
    assert openstack_error_text(body.encode()) == part


CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"status": 401, "service": "Keystone"}, "no", "Check user, password and project"),
    ({"status": 403}, "Policy doesn't allow nodegroup:create", "member to make changes"),
    ({"status": 403}, "Resource limit exceeded: 20 clusters", "larger quota"),
    ({"status": 406}, "", "does not have the API version"),
    ({"status": 503}, "", "Try again when the service is available"),
    ({"status": 400}, "Invalid input", "rejected POST /x with 400 (cloud x, project p): Invalid input."),
    ({"reason": "Refused"}, "connection refused", "Nothing listens there"),
    ({"reason": "TLS"}, "self-signed", "ca_cert"),
]


@pytest.mark.parametrize(("more", "text", "part"), CASES)
def test_sentences(more: dict[str, Any], text: str, part: str) -> None:
    error = OpenStackError(text, method="POST", path="/x", url="https://there", **{"service": "Magnum", **more})
    explanation = explain(error, "cloud x, project p")
    assert part in explanation
    assert "cloud x" in explanation


def test_what_an_error_means() -> None:
    halfway = "Invalid input for field/attribute master_count. Value: '0'."
    assert OpenStackError(halfway, status=400).without_groups
    assert not OpenStackError(halfway, status=409).without_groups
    assert OpenStackError("Cluster API address is not available yet", status=409).no_address_yet
    assert OpenStackError("Nodegroup g already has an operation in progress.", status=400).in_progress
