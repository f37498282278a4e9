# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A collection, page by page; the server makes the next page while this one is read."""

from __future__ import annotations

import json
import re
import typing as t
from concurrent.futures import Future, ThreadPoolExecutor

from .errors import ApiError

if t.TYPE_CHECKING:
    from .transport import ApiResponse, Transport

Object = dict[str, t.Any]
# API servers write a list's own metadata before its objects. Where another one does not, pages come one after the other.
_HEAD = 2048
_TOKEN = re.compile(rb'"metadata":\{[^{}\[\]]*"continue":"([^"\\]+)"')
_ITEMS = b'"items":['
_END = b"}]"


class Listing(t.Iterator[Object]):
    """Iterates over a collection; holds one page and the text of the next. `resource_version` is known with the first page."""

    def __init__(
        self,
        transport: Transport,
        path: str,
        query: t.Mapping[str, t.Any],
        accept: str,
        without: t.Sequence[str] = (),
    ) -> None:
        """Nothing is asked before the first object is taken; `without` as in page_of()."""
        self._transport = transport
        self._path = path
        self._query = dict(query)
        self._accept = accept
        self._without = without
        self._objects = self._pages()
        self.resource_version = ""

    def __iter__(self) -> Listing:
        """Iterate over itself."""
        return self

    def __next__(self) -> Object:
        """The next object."""
        return next(self._objects)

    def _pages(self) -> t.Iterator[Object]:
        token: str | None = None
        taken: set[tuple[str, str]] = set()
        ahead: tuple[str, Future[ApiResponse]] | None = None
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="list") as pool:
            while True:
                try:
                    asked = ahead[1].result() if ahead is not None and ahead[0] == token else self._ask(token)
                    following = _following(asked.data)
                    ahead = (following, pool.submit(self._ask, following)) if following else None
                    page = page_of(asked.data, self._without)
                    del asked
                except ApiError as error:
                    if not error.gone or not taken:
                        raise
                    # The server has compacted the version this list began at: go on where it says, or from the start.
                    token, ahead = error.details.get("continue") or None, None
                    continue
                metadata = page.get("metadata") or {}
                self.resource_version = self.resource_version or metadata.get("resourceVersion", "")
                token = metadata.get("continue") or None
                objects = page.get("items") or []
                del page
                # From the end of a list that is turned round, so that an object is gone once it was taken.
                objects.reverse()
                while objects:
                    found = objects.pop()
                    key = (found["metadata"].get("namespace", ""), found["metadata"]["name"])
                    if key not in taken:
                        taken.add(key)
                        yield found
                if not token:
                    return

    def _ask(self, token: str | None) -> ApiResponse:
        return self._transport.send("GET", self._path, query={**self._query, "continue": token}, accept=self._accept)


def page_of(data: bytes, without: t.Sequence[str] = ()) -> Object:
    """The page as a dictionary, its objects without the lists of objects that have these names.

    What nobody looks at (a node's images, everybody's managedFields) is more than half of a page, and to find its end costs
    a twentieth of reading it. Whatever is cut out wrongly, where a text holds what looks like an end, is no JSON any more, as
    its brackets or quotes are odd; then the page is read whole.
    """
    if without:
        try:
            return t.cast("Object", json.loads(_cut(data, without)))
        except ValueError:
            pass
    return t.cast("Object", json.loads(data))


def _cut(data: bytes, names: t.Sequence[str]) -> bytes:
    # A quote within a text is escaped, so that these are names of fields. Servers write no white space.
    for name in names:
        begin = f',"{name}":[{{'.encode()
        first, *rest = data.split(begin)
        data = b"".join([first, *(part[part.find(_END) + len(_END) :] for part in rest)])
    return data


def _following(data: bytes) -> str | None:
    """Where the next page begins, as far as the head of this one says so before it is read whole."""
    head = data[:_HEAD].partition(_ITEMS)
    found = _TOKEN.search(head[0]) if head[1] else None
    return found[1].decode() if found else None
