"""Ways to break an answer: small functions from a request and its good reply to a worse reply."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from strom.transport.types import OutgoingRequest
from tests.conformance.good import JSON, answer
from tests.conformance.stage import Ending, Handler, Reply

Breakage = Callable[[OutgoingRequest, Reply], Reply]
Where = Callable[[OutgoingRequest, Reply], bool]


def broken(breakage: Breakage) -> Handler:
    return lambda request: breakage(request, answer(request))


def streams(request: OutgoingRequest, reply: Reply) -> bool:
    return reply.status == 200 and not reply.headers[0][1].startswith(b"application/json")


def wholes(request: OutgoingRequest, reply: Reply) -> bool:
    return reply.status == 200 and reply.headers == JSON and request.method == "POST"


def refusals(request: OutgoingRequest, reply: Reply) -> bool:
    return reply.status >= 400


def at(path: str) -> Where:
    return lambda request, _: request.target == path


def asking(text: str) -> Where:
    """Requests with that text in their body."""
    return lambda request, _: text.encode() in request.body


def both(*wheres: Where) -> Where:
    return lambda request, reply: all(where(request, reply) for where in wheres)


def frames(where: Where, change: Callable[[tuple[bytes, ...]], tuple[bytes, ...]]) -> Breakage:
    def breakage(request: OutgoingRequest, reply: Reply) -> Reply:
        return msgspec.structs.replace(reply, frames=change(reply.frames)) if where(request, reply) else reply

    return breakage


def swap(old: str, new: str, where: Where = streams) -> Breakage:
    return frames(where, lambda found: tuple(frame.replace(old.encode(), new.encode()) for frame in found))


def swap_once(old: str, new: str, where: Where = streams) -> Breakage:
    """In the first frame that has it only."""

    def change(found: tuple[bytes, ...]) -> tuple[bytes, ...]:
        first = next((at for at, frame in enumerate(found) if old.encode() in frame), None)
        return tuple(
            frame.replace(old.encode(), new.encode()) if at == first else frame for at, frame in enumerate(found)
        )

    return frames(where, change)


def without(text: str, where: Where = streams) -> Breakage:
    return frames(where, lambda found: tuple(frame for frame in found if text.encode() not in frame))


def doubled(text: str, where: Where = streams) -> Breakage:
    return frames(
        where, lambda found: tuple(frame for one in found for frame in ([one, one] if text.encode() in one else [one]))
    )


def appended(text: str, where: Where = streams) -> Breakage:
    return frames(where, lambda found: (*found, text.encode()))


def edited(where: Where, **fields: Any) -> Breakage:
    """Fields of a JSON body set, or taken out with None."""

    def change(found: tuple[bytes, ...]) -> tuple[bytes, ...]:
        body = {**json.loads(found[0]), **fields}
        return (json.dumps({name: value for name, value in body.items() if value is not None}).encode(),)

    return frames(where, change)


def told(where: Where, status: int, body: object) -> Breakage:
    """Another status and JSON body."""

    def breakage(request: OutgoingRequest, reply: Reply) -> Reply:
        return Reply(status, JSON, (json.dumps(body).encode(),)) if where(request, reply) else reply

    return breakage


def headed(where: Where, name: str, value: str | None) -> Breakage:
    """One header field set, or taken out with None."""

    def breakage(request: OutgoingRequest, reply: Reply) -> Reply:
        kept = [field for field in reply.headers if field[0] != name.encode()]
        more = [] if value is None else [(name.encode(), value.encode())]
        return msgspec.structs.replace(reply, headers=kept + more) if where(request, reply) else reply

    return breakage


def ended(where: Where, end: Ending) -> Breakage:
    def breakage(request: OutgoingRequest, reply: Reply) -> Reply:
        return msgspec.structs.replace(reply, end=end) if where(request, reply) else reply

    return breakage


def delayed(where: Where, wait_s: float, gap_s: float) -> Breakage:
    def breakage(request: OutgoingRequest, reply: Reply) -> Reply:
        return msgspec.structs.replace(reply, wait_s=wait_s, gap_s=gap_s) if where(request, reply) else reply

    return breakage
