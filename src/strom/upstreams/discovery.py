"""Which model servers run on this machine: asks the usual ports of the provider table, on 127.0.0.1 only.

Every port is asked for its models first. Who answered is told by what only that kind says (`_SIGNS`), where needed after one
more round of questions. All of it ends within `BUDGET_S`, whatever the servers do: one that is too busy to list its models
is not found. No key is ever sent, and Strom itself is never found: all its answers carry its trace header.

Source: recordings models, props, version, health of llama.cpp, vLLM, mlx_lm.server, transformers serve; Ollama's API
reference (/api/version); LM Studio's REST API v0 (/api/v0/models); oMLX's model list (owned_by).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from strom.transport.types import Headers, Origin, OutgoingRequest, TransportFailure, UpstreamClient
from strom.upstreams.rows import UPSTREAMS, UpstreamRow

BUDGET_S = 0.5
"""For all ports together, from the first question to the last answer."""

_MODELS = "/v1/models"
_MAX_ANSWER_BYTES = 1 << 20
_FALLBACK = "generic"


class Found(msgspec.Struct, frozen=True):
    """A model server. `models`: the names it lists, in its order. `needs_key`: it told who it is, and nothing else."""

    kind: str
    port: int
    models: tuple[str, ...] = ()
    needs_key: bool = False

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class Answer(msgspec.Struct, frozen=True):
    """A whole HTTP answer to one question."""

    status: int
    headers: Headers
    body: bytes

    def header(self, name: bytes) -> str:
        return next((value.decode("latin-1") for key, value in self.headers if key == name), "")


class _Model(msgspec.Struct):
    id: str
    owned_by: str | None = None
    status: object = None
    compatibility_type: str | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


class _Version(msgspec.Struct):
    version: str


Test = Callable[[Answer], bool]


def _says_version(answer: Answer) -> bool:
    try:
        msgspec.json.decode(answer.body, type=_Version)
    except msgspec.MsgspecError:
        return False
    return answer.status == 200


def _owned_by(owner: str) -> Test:
    return lambda answer: any(model.owned_by == owner for model in _listed(answer))


def _has_load_status(answer: Answer) -> bool:
    """transformers tells of each model whether it is loaded: "status": {"value": "loaded"}."""
    return any(model.status is not None for model in _listed(answer))


def _is_plain_python_server(answer: Answer) -> bool:
    """mlx_lm.server is the only one on Python's own http.server; it names no owner, and lists nothing without a hub cache."""
    plain = answer.status == 200 and answer.header(b"server").startswith("BaseHTTP/")
    return plain and all(model.owned_by is None for model in _listed(answer))


_SIGNS: tuple[tuple[str, str, Test], ...] = (
    ("llama-cpp", _MODELS, lambda answer: answer.header(b"server") == "llama.cpp"),
    ("vllm", _MODELS, _owned_by("vllm")),
    ("omlx", _MODELS, _owned_by("omlx")),
    ("transformers", _MODELS, _has_load_status),
    ("mlx-lm", _MODELS, _is_plain_python_server),
    ("ollama", "/api/version", _says_version),
    ("lm-studio", "/api/v0/models", lambda answer: any(model.compatibility_type for model in _listed(answer))),
    ("llama-cpp", "/props", lambda answer: answer.status == 200 and b'"default_generation_settings"' in answer.body),
    ("vllm", "/version", _says_version),
)
"""Kind, question, and what its answer shows; the first that holds decides. Those of the model list need no more questions."""


async def discover(client: UpstreamClient, rows: Mapping[str, UpstreamRow] = UPSTREAMS) -> list[Found]:
    """The local model servers, by port. `client` must reach loopback without a proxy."""
    deadline = asyncio.get_running_loop().time() + BUDGET_S
    ports = sorted({port for row in rows.values() for port in row.ports})
    answers = await asyncio.gather(*(_examine(client, port, deadline) for port in ports))
    return [found for found in answers if found is not None and found.kind in rows]


async def _examine(client: UpstreamClient, port: int, deadline: float) -> Found | None:
    models = await _ask(client, port, _MODELS, deadline)
    if models is None or _is_strom(models):
        return None
    answers = {_MODELS: models}
    kind = identify(answers)
    if kind is None:
        further = list(dict.fromkeys(path for _, path, _ in _SIGNS if path != _MODELS))
        said = await asyncio.gather(*(_ask(client, port, path, deadline) for path in further))
        answers |= {path: answer for path, answer in zip(further, said, strict=True) if answer is not None}
        kind = identify(answers)
    if models.status in {401, 403}:
        return None if kind is None else Found(kind, port, needs_key=True)
    names = tuple(model.id for model in _listed(models))
    if kind is None and not names:
        return None  # some web server, but none that serves models
    return Found(kind or _FALLBACK, port, names)


def identify(answers: Mapping[str, Answer]) -> str | None:
    """The kind of the server that gave these answers (by path), or None when nothing gives it away."""
    for kind, path, holds in _SIGNS:
        answer = answers.get(path)
        if answer is not None and holds(answer):
            return kind
    return None


def _is_strom(answer: Answer) -> bool:
    return bool(answer.header(b"x-strom-trace-id"))


def _listed(answer: Answer) -> list[_Model]:
    """The models of a list in OpenAI's shape; empty for anything else."""
    if answer.status != 200:
        return []
    try:
        return msgspec.json.decode(answer.body, type=_Models).data
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []


async def _ask(client: UpstreamClient, port: int, path: str, deadline: float) -> Answer | None:
    """One GET. None: nobody listens, it is no HTTP, it did not end in time, or it was too long."""
    loop = asyncio.get_running_loop()
    collector = _Collector(loop.create_future())
    request = OutgoingRequest("GET", path, [(b"accept", b"application/json")])
    remaining_s = max(deadline - loop.time(), 0.001)
    exchange = client.send(Origin("http", "127.0.0.1", port), request, collector, connect_timeout_s=remaining_s)
    try:
        async with asyncio.timeout_at(deadline):
            return await collector.answer
    except TimeoutError:
        return None
    finally:
        # Not after a whole answer: its connection may serve the next question.
        if not collector.ended:
            exchange.abort()


class _Collector:
    """Receives one response whole. Implements ResponseReceiver."""

    def __init__(self, answer: asyncio.Future[Answer | None]) -> None:
        self.answer, self.ended = answer, False
        self._status, self._headers, self._body = 0, list[tuple[bytes, bytes]](), bytearray()

    def on_response(self, status: int, headers: Headers) -> None:
        self._status, self._headers = status, headers

    def on_body(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > _MAX_ANSWER_BYTES:
            self._settle(None)

    def on_read_end(self) -> None:
        pass

    def on_end(self, *, delimited_by_close: bool) -> None:
        self.ended = True
        self._settle(Answer(self._status, self._headers, bytes(self._body)))

    def on_failure(self, failure: TransportFailure) -> None:
        self.ended = True
        self._settle(None)

    def _settle(self, answer: Answer | None) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)
