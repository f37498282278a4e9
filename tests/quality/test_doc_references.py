# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tests that docs/openshift.md names exist, the complete pool of the role pools is valid, and Helm is required as in docs/install.md."""

from __future__ import annotations

import re

import yaml

from ansible_collections.accel.gpu.plugins.filter.plan_problems import FilterModule
from tests.programs import REPO


def test_the_tests_that_the_page_about_openshift_names_exist() -> None:
    text = (REPO / "docs" / "openshift.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:integration|unit)/[^`]*)`", text)
    assert len(named) > 10
    missing = [name for name in named if not list((REPO / "tests").glob(name.replace("/.../", "/**/")))]
    assert missing == []


def test_the_complete_pool_of_ansible_doc_has_no_problem() -> None:
    spec = yaml.safe_load((REPO / "roles/pools/meta/argument_specs.yml").read_text(encoding="utf-8"))
    (text,) = [
        item for item in spec["argument_specs"]["main"]["options"]["gpu_pools"]["description"] if "{name:" in item
    ]
    pool = text.partition("C(")[2].partition("})")[0] + "}"
    variables = f"{{gpu_cluster: {{name: c, cloud: {{magnum: {{}}}}}}, gpu_pools: [{pool}]}}"
    assert FilterModule().filters()["plan_problems"](yaml.safe_load(variables)) == []
    assert set(yaml.safe_load(pool)) > {"nodes", "autoscale", "sharing", "startup_taint"}


def test_the_releases_of_helm_are_those_of_the_requirements() -> None:
    page = (REPO / "docs" / "install.md").read_text(encoding="utf-8")
    match = re.search(r"^\| Helm \| [^|]+ \| (?P<oldest>\S+) and later \| (?P<unsupported>\S+) \|$", page, re.MULTILINE)
    assert match
    module = (REPO / "plugins" / "modules" / "helm_release.py").read_text(encoding="utf-8")
    assert f"\n  - helm >= {match['oldest']}, < {match['unsupported']}\n" in module
