# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module as those of clouds are, that empties nodes and does nothing else; `python -m` runs it with arguments as JSON on stdin."""

from __future__ import annotations

import json
import sys

from ansible_collections.accel.gpu.plugins.module_utils.common.module import ArgumentSpec
from ansible_collections.accel.gpu.plugins.module_utils.drain.module import KUBERNETES, DrainingModule
from tests.helpers.modules import run_module


def main() -> None:
    """Empty `names`, or the `count` of them that cost least, or open them again."""
    spec: ArgumentSpec = {
        "names": {"type": "list", "elements": "str", "required": True},
        "count": {"type": "int"},
        "reopen": {"type": "bool", "default": False},
    }
    module = DrainingModule({**KUBERNETES, **spec})

    def work(module: DrainingModule) -> dict[str, object]:
        emptier = module.emptier
        if emptier is None:
            return {"changed": False, "asked": False}
        names = module.params["names"]
        if module.params["reopen"]:
            return {"changed": False, "nodes": emptier.reopen(names)}
        if module.params["count"] is not None:
            names = emptier.victims(names, module.params["count"])
        return {"changed": True, "nodes": names, "evicted": emptier.empty(names)}

    module.run(work)


if __name__ == "__main__":
    print(json.dumps(run_module(main, json.load(sys.stdin))))
