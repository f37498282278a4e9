# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module that only drains nodes, as the modules of clouds do; `python -m` runs it with arguments as JSON on stdin."""

from __future__ import annotations

import json
import sys

from ansible_collections.accel.gpu.plugins.module_utils.core.module import ArgumentSpec
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.module import KUBERNETES, DrainingModule
from tests.helpers.modules import run_module


def main() -> None:
    """Drain `names`, or the best `count` scale-down candidates among them, or uncordon them."""
    spec: ArgumentSpec = {
        "names": {"type": "list", "elements": "str", "required": True},
        "count": {"type": "int"},
        "uncordon": {"type": "bool", "default": False},
    }
    module = DrainingModule({**KUBERNETES, **spec})

    def work(module: DrainingModule) -> dict[str, object]:
        drainer = module.drainer
        if drainer is None:
            return {"changed": False, "connected": False}
        names = module.params["names"]
        if module.params["uncordon"]:
            return {"changed": False, "nodes": drainer.uncordon(names)}
        if module.params["count"] is not None:
            names = drainer.scale_down_candidates(names, module.params["count"])
        return {"changed": True, "nodes": names, "evicted": drainer.drain(names)}

    module.run(work)


if __name__ == "__main__":
    print(json.dumps(run_module(main, json.load(sys.stdin))))
