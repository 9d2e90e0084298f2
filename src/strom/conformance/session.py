"""One protocol of one endpoint under examination: every question is asked once, however many checks look at its answer."""

from __future__ import annotations

import json

from strom.conformance.asking import Capture, Endpoint, Leave
from strom.conformance.dialects.dialect import Ask, Dialect
from strom.conformance.framing import split_events, split_lines
from strom.conformance.reading import Object, Reading, message_in, parse_body
from strom.core.errors import StromError
from strom.transport.types import Headers, OutgoingRequest
from strom.upstreams.settings import AuthStyle
from strom.upstreams.upstream import auth_headers

PLAIN = Ask()
ANTHROPIC_VERSION = (b"anthropic-version", b"2023-06-01")


class NotJudged(StromError):
    """A check cannot say anything; the message says why."""

    code = "not_judged"


class Answer:
    """A captured answer and what it says. `reading` is empty where there was no success to read."""

    def __init__(self, capture: Capture, reading: Reading, *, streamed: bool) -> None:
        self.capture = capture
        self.reading = reading
        self.streamed = streamed

    @property
    def refusal(self) -> str:
        """Status and words of an answer that is no success; or how it broke off."""
        return refusal_of(self.capture)


class Session:
    def __init__(self, endpoint: Endpoint, dialect: Dialect, model: str) -> None:
        self.endpoint = endpoint
        self.dialect = dialect
        self.model = model
        self._dropped: set[str] = set()
        """Fields that this endpoint refuses by name."""
        self._streams: dict[Ask, Answer] = {}
        self._wholes: dict[Ask, Answer] = {}

    async def settle_in(self) -> Answer:
        """The first question. Fields that newer hosted models refuse by name are left out or renamed from here on.

        Source: OpenAI API reference, max_tokens ("deprecated … not compatible with o-series models") and temperature.
        """
        answer = await self.stream(PLAIN)
        for _ in ("max_tokens", "temperature"):
            refused = self._refused_field(answer)
            if refused is None:
                break
            self._dropped.add(refused)
            self._streams.clear()
            answer = await self.stream(PLAIN)
        return answer

    async def stream(self, ask: Ask) -> Answer:
        if ask not in self._streams:
            self._streams[ask] = await self._stream(ask)
        return self._streams[ask]

    async def whole(self, ask: Ask) -> Answer:
        if ask not in self._wholes:
            capture = await self.post(self.dialect.path, self.body(ask, stream=False))
            body = parse_body(capture.body) if capture.answered else None
            reading = Reading() if body is None else self.dialect.judge_reply(body)
            self._wholes[ask] = Answer(capture, reading, streamed=False)
        return self._wholes[ask]

    async def good_stream(self, ask: Ask) -> Answer:
        """Raises NotJudged unless the answer is a 200."""
        answer = await self.stream(ask)
        if answer.capture.status != 200:
            raise NotJudged(f"there is no stream to look at: {answer.refusal}")
        return answer

    async def good_whole(self, ask: Ask) -> Answer:
        """Raises NotJudged unless the answer is a 200 with a JSON object."""
        answer = await self.whole(ask)
        if answer.capture.status != 200 or parse_body(answer.capture.body) is None:
            raise NotJudged(f"there is no whole reply to look at: {answer.refusal}")
        return answer

    def streams(self) -> list[Answer]:
        """Every stream seen so far."""
        return [answer for answer in self._streams.values() if answer.capture.status == 200]

    def wholes(self) -> list[Answer]:
        return [answer for answer in self._wholes.values() if answer.capture.status == 200]

    def body(self, ask: Ask, *, stream: bool) -> Object:
        body = self.dialect.body(self.model, ask, stream=stream)
        if "max_tokens" in self._dropped:
            body["max_completion_tokens"] = body.pop("max_tokens")
        if "temperature" in self._dropped:
            body.pop("temperature", None)
        return body

    async def post(self, path: str, body: Object | bytes, *, leave: Leave | None = None) -> Capture:
        return await self.endpoint.ask(self.request("POST", path, body), leave=leave)

    async def get(self, path: str) -> Capture:
        return await self.endpoint.ask(self.request("GET", path, b""))

    def request(self, method: str, path: str, body: Object | bytes) -> OutgoingRequest:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return OutgoingRequest(method, path, self.headers(), data)

    def headers(self) -> Headers:
        style: AuthStyle = "x-api-key" if self.dialect.name == "anthropic" else "bearer"
        headers = [(b"accept", b"application/json, text/event-stream"), (b"accept-encoding", b"identity")]
        headers += [(b"content-type", b"application/json"), *auth_headers(style, self.endpoint.key)]
        return [*headers, ANTHROPIC_VERSION] if self.dialect.name == "anthropic" else headers

    async def _stream(self, ask: Ask) -> Answer:
        capture = await self.post(self.dialect.path, self.body(ask, stream=True))
        if capture.status != 200:
            return Answer(capture, Reading(), streamed=True)
        split = split_events if self.dialect.media_type == "text/event-stream" else split_lines
        return Answer(capture, self.dialect.judge_stream(split(capture), ask), streamed=True)

    def _refused_field(self, answer: Answer) -> str | None:
        if answer.capture.status != 400:
            return None
        said = answer.refusal
        if "max_completion_tokens" in said and self.dialect.name == "openai-chat":
            return None if "max_tokens" in self._dropped else "max_tokens"
        return "temperature" if "temperature" in said and "temperature" not in self._dropped else None


def refusal_of(capture: Capture) -> str:
    match capture.end:
        case "none":
            return f"the connection ended without an answer ({capture.failure})"
        case "timeout":
            return "no whole answer in time" if capture.status else "no answer in time"
        case _:
            body = parse_body(capture.body)
            said = message_in(body) if body is not None else capture.body[:120].decode(errors="replace")
            return f"{capture.status}: {' '.join(said.split())}" if said else str(capture.status)
