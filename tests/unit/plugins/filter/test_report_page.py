# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter gives plain text, and refuses what gpu_info never returns."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError
from ansible.parsing.dataloader import DataLoader

from ansible_collections.accel.gpu.plugins.filter.report_page import FilterModule, report_page
from tests.helpers import infos


def test_the_page_is_plain_text() -> None:
    assert FilterModule().filters() == {"report_page": report_page}
    text = report_page(infos.fleet(20))
    assert text.__class__ is str
    assert text.startswith('<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">')


def test_what_ansible_has_read_gives_plain_text_too() -> None:
    read = DataLoader().load('{"cluster": "lab", "reachable": false, "pools": {"a": {"mode": "none"}}}', "/fleet.json")
    assert report_page(read).__class__ is str


@pytest.mark.parametrize("info", [None, [], "x", 1, {"gpu_info": {"pools": {}}}])
def test_another_input_is_refused(info: t.Any) -> None:
    with pytest.raises(AnsibleFilterError, match="needs the value gpu_info"):
        report_page(info)
