"""Guessing keys is made slow: after some failures from one address its further failures are answered late.

A key that is right is never delayed, whatever else came from its address. The table is bounded, and so is the number of
answers that are held back: beyond it an answer is not delayed but cut off. IPv6 addresses count by their network of 64 bits,
which one machine has at its disposal.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable

FREE_FAILURES = 10
WINDOW_S = 60.0
FIRST_DELAY_S = 0.25
LONGEST_DELAY_S = 8.0
MAX_PEERS = 10_000
MAX_HELD = 1000


class Slowdown:
    """`time`: monotonic seconds. `held` is the number of answers that wait; who holds one says so."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._failures: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """By address: when the window began, and how many there were since."""
        self.held = 0

    def delay_s(self, peer: str) -> float:
        """How long to hold back the answer to a failure from there; this one is counted."""
        place = network_of(peer)
        now = self._time()
        began, count = self._failures.pop(place, (now, 0))
        if now - began >= WINDOW_S:
            began, count = now, count // 2 if count > FREE_FAILURES and now - began < 2 * WINDOW_S else 0
        count += 1
        self._failures[place] = (began, count)
        if len(self._failures) > MAX_PEERS:
            self._failures.popitem(last=False)
        over = count - FREE_FAILURES
        return min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(over - 1, 10)) if over > 0 else 0.0


def network_of(peer: str) -> str:
    """The address, or its /64."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return str(address)
