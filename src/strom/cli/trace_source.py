"""Where `strom traces` and `strom usage` read from: a store's file, or the platform API of a running gateway.

Both give records as JSON objects, in the words of `/platform/v1/traces`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

import msgspec

from strom.cli.http import Api
from strom.core.errors import NotFound, ProviderError
from strom.stores.query import MAX_LIMIT, Query, encode_query
from strom.stores.records import RecordFilter, RecordReader, record_fields
from strom.stores.table import open_reader
from strom.stores.usage import UsagePage, UsageQuery

if TYPE_CHECKING:
    from strom.cli.place import Place

Trace = dict[str, Any]


class TraceSource(Protocol):
    def page(self, query: Query) -> tuple[list[Trace], str | None]:
        """Newest first, and the cursor of what is older. Raises StromError."""
        ...

    def get(self, trace_id: str) -> Trace | None: ...

    def usage(self, query: UsageQuery) -> UsagePage: ...


class StoreSource:
    def __init__(self, reader: RecordReader) -> None:
        self._reader = reader

    def page(self, query: Query) -> tuple[list[Trace], str | None]:
        page = self._reader.list(query.wanted, query.limit, query.cursor)
        return [record_fields(record) for record in page.records], page.next_cursor

    def get(self, trace_id: str) -> Trace | None:
        record = self._reader.get(trace_id)
        return record_fields(record) if record else None

    def usage(self, query: UsageQuery) -> UsagePage:
        return self._reader.usage(query)


class GatewaySource:
    def __init__(self, api: Api) -> None:
        self._api = api

    def page(self, query: Query) -> tuple[list[Trace], str | None]:
        answer = self._api.get("/platform/v1/traces", encode_query(query))
        if not isinstance(answer, dict) or not isinstance(answer.get("data"), list):
            raise ProviderError("the answer is no list of traces: is --url the address of a Strom gateway?")
        return answer["data"], answer.get("next_cursor")

    def get(self, trace_id: str) -> Trace | None:
        try:
            answer = self._api.get(f"/platform/v1/traces/{quote(trace_id, safe='')}")
        except NotFound:
            return None
        return answer if isinstance(answer, dict) else None

    def usage(self, query: UsageQuery) -> UsagePage:
        params = encode_query(Query(query.wanted, query.limit, query.cursor)) | {"by": ",".join(query.by)}
        try:
            return msgspec.convert(self._api.get("/platform/v1/usage", params), UsagePage)
        except msgspec.ValidationError:
            raise ProviderError("the answer is no usage: is --url the address of a Strom gateway?") from None


def pages(source: TraceSource, wanted: RecordFilter) -> Iterator[list[Trace]]:
    """Everything that fits, a page at a time."""
    query = Query(wanted, MAX_LIMIT)
    while True:
        found, following = source.page(query)
        yield found
        if following is None:
            return
        query = Query(wanted, MAX_LIMIT, following)


def open_source(place: Place) -> TraceSource:
    """Raises StromError."""
    api = place.api()
    return GatewaySource(api) if api is not None else StoreSource(open_reader(place.store_url()))
