"""Changes members of a JSON object without touching the bytes of the others.

`split` keeps every value as the bytes it came in; `join` puts an object together from such values. So a model name can
be replaced, or a null removed, while messages, signatures and cache markers stay byte for byte what the client wrote.
Of repeated names the last one counts, as in every JSON parser our upstreams use, and only that one is sent on.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODE = msgspec.json.encode


def split(data: bytes) -> dict[str, bytes]:
    """The members of a JSON object: name → bytes of its value. Raises ValueError when `data` is no JSON object."""
    return {name: bytes(value) for name, value in raw_members(data).items()}


def raw_members(data: bytes) -> dict[str, msgspec.Raw]:
    """The same without a copy of the values, for whoever looks at few of them."""
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(str(error) or "nested too deeply") from None


def join(members: Mapping[str, bytes]) -> bytes:
    """A JSON object with these members, in this order."""
    return _ENCODE({name: msgspec.Raw(value) for name, value in members.items()})


def append_member(data: bytes, name: str, value: bytes) -> bytes:
    """A JSON object with one more member at its end; one of that name that it had (a gateway behind this one) is replaced.

    `data` must be an object; `value` is JSON.
    """
    quoted = _ENCODE(name)
    # `find`, since `in` first tries to take what is sought for a number, and catches the error.
    if data.find(quoted) >= 0 or data.find(b"\\u") >= 0:  # an escape may hide the name
        members = split(data)
        if name in members:
            return join({**{known: kept for known, kept in members.items() if known != name}, name: value})
    head = data.rstrip()[:-1].rstrip()
    comma = b"" if head.endswith(b"{") else b","
    return head + comma + quoted + b":" + value + b"}"
