# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP server: authentication, routes, and the requests that were sent."""

from __future__ import annotations

import base64
import json
import re
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from .injectors import MANAGED
from .runs import Runs
from .store import KINDS, Refused, Row, Store, page_of

USER, PASSWORD = "admin", "lab-password"
_ROUTE = re.compile(r"/api/v2/(?P<kind>\w+)/(?:(?P<number>\d+)/(?:(?P<part>\w+)/)?)?")


class Awx:
    """AWX with an administrator, its own credential types, and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store(self._playbooks)
        self.runs = Runs(folder, self.store)
        # Method, path and body of each request that changes something.
        self.changes: list[tuple[str, str, Any]] = []
        self._tokens: dict[str, int] = {}
        self.store.create("users", {"username": USER, "password": PASSWORD})
        for kind in MANAGED.values():
            number = self.store.next_id()
            managed = {
                "name": kind.name,
                "description": "",
                "kind": kind.kind,
                "inputs": kind.inputs,
                "injectors": {},
                "managed": True,
            }
            self.store.tables["credential_types"][number] = {"id": number, "type": "credential_type", **managed}

    def answer(self, method: str, target: str, headers: Any, content: bytes) -> tuple[int, Any]:
        """Return the status and the body for a request."""
        parts = urlsplit(target)
        try:
            body = json.loads(content) if content else {}
            if parts.path == "/api/v2/tokens/" and method == "POST":
                self._require_password(headers)
                return self._new_token()
            self._require_user(headers)
            # A login creates a token and deletes it.
            if method != "GET" and not parts.path.startswith("/api/v2/tokens/"):
                self.changes.append((method, parts.path, body))
            return self._dispatch(method, parts.path, dict(parse_qsl(parts.query, keep_blank_values=True)), body)
        except Refused as refused:
            return refused.status, refused.body

    def _require_password(self, headers: Any) -> None:
        expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if headers.get("Authorization") != expected:
            raise Refused(401, {"detail": "Authentication credentials were not provided."})

    def _require_user(self, headers: Any) -> None:
        token = (headers.get("Authorization") or "").removeprefix("Bearer ")
        if token not in self._tokens:
            self._require_password(headers)

    def _new_token(self) -> tuple[int, Row]:
        token, number = secrets.token_urlsafe(20), self.store.next_id()
        self._tokens[token] = number
        return 201, {"id": number, "token": token}

    def _dispatch(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        route = _ROUTE.fullmatch(path)
        if not route:
            raise Refused(404, {"detail": "The requested resource could not be found."})
        kind, number, part = route["kind"], int(route["number"] or 0), route["part"] or ""
        if kind == "tokens" and method == "DELETE":
            self._tokens = {token: each for token, each in self._tokens.items() if each != number}
            return 204, None
        if kind == "roles":
            return self._members(method, number, part, body)
        if (run := self.runs.answer(method, kind, number, part, query, body)) is not None:
            return run
        if kind not in KINDS and kind != "unified_job_templates":
            raise Refused(404, {"detail": "The requested resource could not be found."})
        if part:
            return self._part(method, kind, number, part, query, body)
        return self._object(method, kind, number, path, query, body)

    def _object(
        self, method: str, kind: str, number: int, path: str, query: dict[str, str], body: Any
    ) -> tuple[int, Any]:
        store = self.store
        if not number and method == "GET":
            return 200, page_of([self._shown(row) for row in store.listed(kind, query)], path, query)
        if not number and method == "POST":
            row = store.create(kind, body)
            if kind == "projects":
                self.runs.update_project(row)
            return 201, self._shown(row)
        if method == "GET":
            return 200, self._shown(store.row(kind, number))
        if method == "PATCH":
            return 200, self._shown(store.change(kind, number, body))
        if method == "DELETE":
            store.delete(kind, number)
            return 204, None
        raise Refused(405, {"detail": f'Method "{method}" not allowed.'})

    def _shown(self, row: Row) -> Row:
        shown = self.store.shown(row)
        if row["type"] == "workflow_job_template_node":
            shown |= {
                name: list(self.store.linked("workflow_job_template_nodes", row["id"], name))
                for name in ("success_nodes", "failure_nodes", "always_nodes")
            }
        if row["type"] == "project":
            shown |= {"scm_revision": self.runs.revision(row), "status": self.runs.project_status(row)}
        return shown

    def _part(
        self, method: str, kind: str, number: int, part: str, query: dict[str, str], body: Any
    ) -> tuple[int, Any]:
        store = self.store
        row = store.row(kind, number)
        if part in KINDS.get(kind, KINDS["users"]).links:
            if method == "POST":
                store.link(kind, number, part, body)
                return 204, None
            others = [
                store.shown(store.row(KINDS[kind].links[part], each)) for each in store.linked(kind, number, part)
            ]
            return 200, page_of(others, f"/api/v2/{kind}/{number}/{part}/", query)
        if part == "survey_spec" and kind in ("job_templates", "workflow_job_templates"):
            if method == "POST":
                store.set_survey(number, body)
            elif method == "DELETE":
                store.surveys.pop(number, None)
            return 200, store.survey(number) if method == "GET" else {}
        if part == "create_approval_template" and kind == "workflow_job_template_nodes" and method == "POST":
            approval = store.create("workflow_approval_templates", body)
            store.tables[kind][number] = {**row, "unified_job_template": approval["id"]}
            return 201, store.shown(approval)
        raise Refused(404, {"detail": "Not found."})

    def _members(self, method: str, number: int, part: str, body: Any) -> tuple[int, Any]:
        members = self.store.members.get(number, {}).get(part)
        if members is None:
            raise Refused(404, {"detail": "Not found."})
        if method == "POST":
            self.store.row(part, body["id"])
            members[:] = [each for each in members if each != body["id"]] + (
                [] if body.get("disassociate") else [body["id"]]
            )
            return 204, None
        return 200, page_of(
            [self.store.shown(self.store.row(part, each)) for each in members], f"/api/v2/roles/{number}/{part}/", {}
        )

    def _playbooks(self, project: Row) -> list[str]:
        return self.runs.playbooks(project)


def serve(awx: Awx, port: int = 0) -> ThreadingHTTPServer:
    """Start the server on loopback in a thread."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, body = awx.answer(self.command, self.path, self.headers, content)
            data = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("X-API-Product-Name", "AWX")
            self.send_header("X-API-Product-Version", "24.6.1")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815

        def log_message(self, format: str, *arguments: Any) -> None:
            """Write no log to the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
