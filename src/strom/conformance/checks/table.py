"""Every check, in the order in which it runs and is printed. A new one is a function, a row here, and its rule in `rules`.

A row's name is what `--json` shows: it stays. A check runs for the protocols that its rules name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from strom.conformance.checks import endpoints, errors, rules, streams, thinking, timing, tools, wholes
from strom.conformance.report import Finding, Rule
from strom.conformance.session import Session
from strom.upstreams.settings import ProtocolName


class Check(msgspec.Struct, frozen=True):
    name: str
    run: Callable[[Session], Awaitable[Finding]]
    rules: Mapping[ProtocolName, Rule]


CHECKS: tuple[Check, ...] = (
    Check("stream.status", streams.status, rules.STATUS),
    Check("stream.headers", streams.headers, rules.HEADERS),
    Check("stream.compression", streams.compression, rules.COMPRESSION),
    Check("stream.framing", streams.framing, rules.FRAMING),
    Check("stream.shape", streams.shape, rules.SHAPE),
    Check("stream.order", streams.order, rules.ORDER),
    Check("stream.role", streams.role, rules.ROLE),
    Check("stream.constants", streams.constants, rules.CONSTANTS),
    Check("stream.finish", streams.finish, rules.FINISH),
    Check("stream.terminator", streams.terminator, rules.TERMINATOR),
    Check("stream.end", streams.end, rules.END),
    Check("stream.usage", streams.usage, rules.USAGE),
    Check("stream.usage_asked", streams.usage_asked, rules.USAGE_ASKED),
    Check("stream.flow", timing.flow, rules.FLOW),
    Check("generate.stream", streams.generate, rules.GENERATE),
    Check("whole.status", wholes.status, rules.WHOLE_STATUS),
    Check("whole.shape", wholes.shape, rules.WHOLE_SHAPE),
    Check("whole.usage", wholes.usage, rules.WHOLE_USAGE),
    Check("whole.agrees", wholes.agrees, rules.AGREES),
    Check("length.stream", wholes.length, rules.LENGTH),
    Check("length.whole", wholes.whole_length, rules.LENGTH),
    Check("stop.sequence", wholes.stop, rules.STOP),
    Check("tools.accepted", tools.accepted, rules.TOOLS),
    Check("tools.choice", tools.choice, rules.TOOL_CHOICE),
    Check("tools.stream", tools.call, rules.TOOL_CALL),
    Check("tools.whole", tools.whole, rules.TOOL_CALL),
    Check("tools.result", tools.result, rules.TOOL_RESULT),
    Check("thinking", thinking.thinking, rules.THINKING),
    Check("error.malformed", errors.malformed, rules.ERRORS),
    Check("error.missing_field", errors.fields, rules.ERRORS),
    Check("error.wrong_type", errors.types, rules.ERRORS),
    Check("error.unknown_model", errors.model, rules.UNKNOWN_MODEL),
    Check("models.list", endpoints.models, rules.MODELS),
    Check("tokens.count", endpoints.count, rules.COUNT),
    Check("ollama.version", endpoints.version, rules.VERSION),
    Check("ollama.show", endpoints.show, rules.SHOW),
    Check("cancel.stream", timing.cancelled_stream, rules.CANCEL),
    Check("cancel.whole", timing.cancelled_whole, rules.CANCEL),
)
