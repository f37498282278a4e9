# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster that must not be reached: an API server that records requests and returns only its recorded name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.faults.api_proxy import Answer, Proxy, Request

_RECORD = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/accel-gpu"


@dataclass
class OtherCluster:
    """Its address, and its requests."""

    url: str
    name: str
    requests: list[str] = field(default_factory=list)

    def kubeconfig(self, path: Path, context: str = "default") -> Path:
        """Write a kubeconfig for it, with common names for context and cluster."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": context,
            "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
            "clusters": [{"name": context, "cluster": {"server": self.url}}],
            "users": [{"name": context, "user": {"token": "token-of-the-other-cluster"}}],
        }
        path.write_text(yaml.safe_dump(document))
        return path


@contextmanager
def other_cluster(name: str = "other") -> Iterator[OtherCluster]:
    """Serve until the block ends."""
    proxy = Proxy("http://127.0.0.1:9")
    with proxy.running():
        actual = OtherCluster(proxy.url, name)

        def answer(request: Request) -> Answer:
            actual.requests.append(f"{request.method} {request.path}")
            body = {"metadata": {"annotations": {"accel.gpu/cluster-name": name}, "resourceVersion": "1"}, "spec": {}}
            is_record = request.method == "GET" and request.path == _RECORD
            return Answer(200, json.dumps(body).encode()) if is_record else Answer(403)

        proxy.before = answer
        yield actual
