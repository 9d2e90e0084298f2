"""A TCP connection to a name that has several addresses: they are tried in turn, overlapping, and the first to answer wins.

Invariants: addresses of both families take turns, beginning with the family that the resolver names first; the next attempt
starts when the last one failed or has been silent for `STAGGER_S`; the losers are closed, also when the caller gives up; if
all fail, the error of the first one is raised.

Source: RFC 8305 sections 4 and 5 (Happy Eyeballs). asyncio has this in `create_connection`, uvloop does not.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from itertools import chain, zip_longest
from typing import Any

import msgspec

STAGGER_S = 0.25
"""RFC 8305 section 5 recommends 250 ms."""


class Address(msgspec.Struct, frozen=True):
    family: int
    kind: int
    protocol: int
    place: tuple[Any, ...]
    """Host and port, with more behind in IPv6."""


def is_address(host: str) -> bool:
    """Whether this is an address already, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def resolve(host: str, port: int) -> list[Address]:
    """Raises OSError. At least one."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [Address(family, kind, protocol, place) for family, kind, protocol, _, place in found]
    if not addresses:
        raise OSError(f"no address for {host}")
    return take_turns(addresses)


def take_turns(addresses: list[Address]) -> list[Address]:
    first = [address for address in addresses if address.family == addresses[0].family]
    other = [address for address in addresses if address.family != addresses[0].family]
    turns = chain.from_iterable(zip_longest(first, other))
    return [address for address in turns if address is not None]


async def dial(addresses: list[Address]) -> socket.socket:
    """A connected socket, which is the caller's to close. Raises OSError."""
    race = _Race()
    try:
        return await race.run(addresses)
    finally:
        await race.close()


class _Race:
    def __init__(self) -> None:
        self._attempts: list[asyncio.Task[socket.socket]] = []
        self._winner: asyncio.Task[socket.socket] | None = None

    async def run(self, addresses: list[Address]) -> socket.socket:
        waiting = list(addresses)
        under_way: set[asyncio.Task[socket.socket]] = set()
        while waiting or under_way:
            if waiting:
                attempt = asyncio.create_task(_reach(waiting.pop(0)))
                self._attempts.append(attempt)
                under_way.add(attempt)
            patience_s = STAGGER_S if waiting else None
            done, under_way = await asyncio.wait(under_way, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
            self._winner = next((attempt for attempt in done if attempt.exception() is None), None)
            if self._winner is not None:
                return self._winner.result()
        error = self._attempts[0].exception()
        assert error is not None
        raise error

    async def close(self) -> None:
        """Nothing is left open but what won."""
        losers = [attempt for attempt in self._attempts if attempt is not self._winner]
        for attempt in losers:
            attempt.cancel()
        for outcome in await asyncio.gather(*losers, return_exceptions=True):
            if isinstance(outcome, socket.socket):
                outcome.close()


async def _reach(address: Address) -> socket.socket:
    made = socket.socket(address.family, address.kind, address.protocol)
    try:
        made.setblocking(False)  # noqa: FBT003 - its only parameter
        await asyncio.get_running_loop().sock_connect(made, address.place)
    except BaseException:  # cancellation too: nobody else knows of this socket
        made.close()
        raise
    return made
