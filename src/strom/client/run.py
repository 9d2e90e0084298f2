"""The state machine of one stream: requests, tool rounds, structured answers, in public events and actions. Does no I/O.

    Send, Listen … ──answer──▶ success ─▶ StreamCompleted
       ▲            │  calls ─▶ RunTools ─┐
       └────────────┴─────────────────────┘   anything else ─▶ StreamError

A shell asks `action()` and carries it out, gives back what came of it (`take`, `tick`, `admitted`, `ran`), and hands
`events` to the reader as they appear. Invariants: exactly one terminal event, and none after `close`; nothing after it;
each request that follows tools has a clock of its own. Source: streams.md sections 1, 4, 7, 8.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from strom.client import verdicts
from strom.client.events import StreamCompleted, StreamError, StreamErrorReason, StreamEvent, StreamToolResult
from strom.client.evidence import AttemptReport, CompletionMetadata, StreamMetrics, ToolCall, add_usage
from strom.client.journal import Journal
from strom.client.messages import results_message
from strom.client.publisher import Publisher
from strom.client.reply import Reply
from strom.client.requests import Wish
from strom.client.resuming import Resuming
from strom.client.retry import Admission, Retry
from strom.client.schemas import ShapeError, read_json
from strom.client.signals import Action, Over, RunTools, Sent, Signal, ToolOutcome
from strom.client.tracer import Tracer
from strom.client.turn import Candidate, Turn
from strom.core.errors import Cancelled, StromError
from strom.core.messages import Message, TextPart
from strom.core.record import Cost
from strom.core.usage import Usage

Build = Callable[[Wish], tuple[Candidate, ...]]
PriceOf = Callable[[str, Usage], Cost | None]


class Job(msgspec.Struct, frozen=True):
    """What a run is to do. `build` gives the model's request and those of its fallbacks; it raises what cannot be asked for."""

    wish: Wish
    build: Build
    correlation_id: str
    retry: Retry | None = None
    run_tools: bool = True
    max_rounds: int | None = 10
    final_round: bool = True
    parallel_tools: int = 1
    repair: bool = False
    whole: bool = False
    """The caller wants the whole reply: an upstream that cannot stream will do."""
    tracer: Tracer | None = None
    price_of: PriceOf = lambda _model, _usage: None
    on_metrics: Callable[[StreamMetrics], None] = lambda _metrics: None
    earlier_text: str = ""
    continued: bool = False
    resuming: Resuming | None = None


class Run:
    """`events`: what the reader has not been given yet. `over`: nothing will be added to it."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.events: deque[StreamEvent] = deque()
        self.over = False
        self.reply: Reply | None = None
        self.failure: StreamError | None = None
        self.on_delivered: Callable[[Reply], None] | None = None
        self._journal = Journal(job.tracer, job.correlation_id)
        self._wish = job.wish
        self._added: list[Message] = []
        self._usage: Usage | None = None
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._attempts: list[AttemptReport] = []
        self._dropped: dict[str, None] = {}
        self._rounds = self._requests = 0
        self._repaired = False
        self._due: RunTools | None = None
        self._kept: Turn | None = None
        self._told = self._delivered = False
        self._turn: Turn
        self._set_turn(job.build(self._wish))
        if not self._turn.candidate.streams and not job.whole:
            name = self._turn.candidate.upstream.name
            self._fail(StreamErrorReason.STREAM_EVENTS_UNSUPPORTED, f"{name} cannot stream; ask for a whole reply.")

    # -- for the shell

    def action(self) -> Action:
        if self._turn.has_actions and (self._turn.clock.dispatched_at is not None or not self.over):
            return self._turn.next_action()
        if self.over:
            return Over()
        return self._due if self._due is not None else self._turn.next_action()

    def take(self, signal: Signal) -> None:
        if self.over or self._due is not None:
            return
        if type(signal) is Sent and not self._told:
            self._told = True
            self._journal.call(self._turn.candidate, self._wish)
        if events := self._turn.take(signal):
            self._advance(events, signal.at)

    def tick(self, now: float) -> None:
        if not self.over and self._due is None:
            self._advance(self._turn.tick(now), now)

    def resumed(self, now: float) -> None:
        """See Turn.resumed."""
        self._turn.resumed(now)

    def admitted(self, answer: Admission, now: float) -> None:
        if not self.over:
            self._advance(self._turn.admitted(answer), now)

    def ran(self, outcomes: Sequence[ToolOutcome]) -> None:
        """The outcomes of RunTools, in call order."""
        if self.over or self._due is None:
            return
        wanted, self._due = self._due, None
        self._journal.tools(wanted, outcomes)
        for outcome in outcomes:
            self.events.append(StreamToolResult(outcome.call.id, outcome.data, outcome.call.name, outcome.error))
        self._added.append(results_message(outcomes))
        exits = [outcome for outcome in outcomes if outcome.exits and outcome.error is None]
        if exits:
            self._complete(exits[0].data)
        else:
            self._next_round()

    def cancel(self, at: float) -> None:
        """A typed terminal event, unless the reader has been given one. What the remote side does now is unknown.

        A success that the reader has not been given yet gives way: who cancels is told the same however the bytes came."""
        message = "The stream was cancelled; whether the remote side stopped is unknown."
        if not self.over:
            self._turn.stop(at)
            self._fail(StreamErrorReason.CANCELLED, message, Cancelled(message))
            return
        try:
            last = self.events.pop()
        except IndexError:
            return
        if isinstance(last, StreamCompleted):
            self.reply = None
            last = StreamError(StreamErrorReason.CANCELLED, message, last.metadata, Cancelled(message))
            self.failure = last
        self.events.append(last)

    def close(self, at: float) -> None:
        """No terminal event; what is known is kept."""
        self.events.clear()
        if self.over:
            return
        self._turn.stop(at)
        self.over = True
        if self._told:
            self._told = False
            self._journal.left(self.metrics)
        self.job.on_metrics(self.metrics)

    def abandon(self, at: float) -> Tracer | None:
        """Nobody holds the stream any more. The tracer, if it is to be flushed."""
        if self.over or not self._told:
            return None
        self._told = False
        self._turn.clock.end(at)
        return self._journal.left_behind(self.metrics)

    def delivered(self) -> None:
        """The reader has been given the last event."""
        if self.reply is not None and not self._delivered:
            self._delivered = True
            if self.on_delivered is not None:
                self.on_delivered(self.reply)

    @property
    def pace_s(self) -> float:
        """How long the next read may take after one that gave events; 0 before the first token and after the end."""
        turn = self._turn
        if self.over or self._due is not None or turn.over or turn.has_actions or turn.clock.first_kind is None:
            return 0.0
        timeouts = turn.candidate.upstream.timeouts
        if timeouts.total_s is not None or timeouts.min_chars_per_s:
            return 0.0  # there are more clocks to look at than one read has
        return timeouts.idle_s

    @property
    def metrics(self) -> StreamMetrics:
        return self._turn.clock.metrics()

    # -- requests

    def _set_turn(self, candidates: tuple[Candidate, ...]) -> None:
        before = self._turn.take_actions() if self._requests else []
        self._turn = Turn(candidates, self.job.retry, self.job.correlation_id, before)
        self._requests += 1
        self._told = False
        offers = bool(self._wish.tools) and not self._wish.last_round
        self._publisher = Publisher(self.events, shape=self._wish.shape, offers_tools=offers)

    def _ask_again(self, wish: Wish) -> bool:
        """The next request. False: it cannot be asked for, and the run is over."""
        self._keep()
        self._wish = wish
        try:
            candidates = self.job.build(wish)
        except StromError as error:
            self._fail(StreamErrorReason.REQUEST_FAILED, error.message, error)
            return False
        self._set_turn(candidates)
        return True

    def _keep(self) -> None:
        """What this request showed stays evidence of the run. Once per request."""
        if self._kept is self._turn:
            return
        self._kept = self._turn
        fold, publisher, turn = self._turn.fold, self._publisher, self._turn
        self._usage = add_usage(self._usage, fold.usage)
        self._texts.append(publisher.text)
        self._thoughts.append(publisher.thinking)
        self._attempts += turn.attempts
        notes = self.job.resuming.notes if self.job.resuming is not None else ()
        for what in (*turn.candidate.dropped, *fold.notes, *notes):
            self._dropped[what] = None

    def _advance(self, events: list[Any], at: float) -> None:
        if events:
            self._publisher.publish(events)
        if self._publisher.surprise is not None:
            self._surprised(at)
        elif self._turn.over:
            self._end_turn()

    def _surprised(self, at: float) -> None:
        reason = StreamErrorReason(self._publisher.surprise or "")
        self._turn.stop(at, reason.value)
        self._fail(reason, verdicts.SURPRISES[reason])

    def _end_turn(self) -> None:
        turn = self._turn
        error = turn.error
        if error is None:
            self._judge_answer()
        elif self._may_put_schema_into_prompt(error):
            self._note_response(StreamErrorReason.REQUEST_FAILED.value, error.message)
            clock = turn.clock
            if self._ask_again(msgspec.structs.replace(self._wish, schema_in_prompt=True)):
                self._turn.go_on_from(clock)
        else:
            self._fail(verdicts.reason_of(error, refused=turn.refused), error.message, error)

    def _may_put_schema_into_prompt(self, error: StromError) -> bool:
        """The upstream refused a request that has a schema: maybe because of it."""
        refused = self._turn.reader.status == 400 and self._turn.refused
        return (
            refused
            and self._wish.shape is not None
            and not self._wish.schema_in_prompt
            and error.code != "context_length_exceeded"
        )

    # -- answers

    def _judge_answer(self) -> None:
        finished = self._turn.fold.finished
        reason = finished.reason if finished is not None else ""
        calls = self._publisher.calls_in_order()
        verdict = verdicts.judge(reason, self._turn.fold.parts(), calls)
        if verdict is not None:
            self._fail(StreamErrorReason.INCOMPLETE_COMPLETION, verdict.detail, verdict.error)
            return
        self._added.append(Message("assistant", self._turn.fold.parts()))
        if not calls:
            self._judge_text()
        elif self._can_run(calls):
            self._note_response("tool_calls")
            self._due = RunTools(calls, self.job.parallel_tools)
        else:
            self._complete(None, calls)

    def _can_run(self, calls: tuple[ToolCall, ...]) -> bool:
        """Calls of a tool that is only declared are left to the caller, with all others of that turn."""
        declared = {tool.name for tool in self._wish.tools if tool.function is None}
        return self.job.run_tools and not any(call.name in declared for call in calls)

    def _next_round(self) -> None:
        self._rounds += 1
        last = self.job.max_rounds is not None and self._rounds >= self.job.max_rounds
        if last and not self.job.final_round:
            detail = f"The model still called tools after {self._rounds} rounds."
            self._fail(StreamErrorReason.UNEXPECTED_TOOL_CALLS, detail)
            return
        config = self._wish.config
        if config.tool_choice not in (None, "auto", "none"):  # else the model could never answer
            config = msgspec.structs.replace(config, tool_choice=None)
        messages = (*self.job.wish.messages, *self._added)
        self._ask_again(msgspec.structs.replace(self._wish, messages=messages, config=config, last_round=last))

    def _judge_text(self) -> None:
        shape = self._wish.shape
        if shape is None:
            self._complete(None)
            return
        try:
            partial = self._publisher.partial
            if not partial.complete:
                raise ShapeError("there is no complete JSON object in the answer")
            value = shape.convert(read_json(partial.text))
        except ShapeError as error:
            self._reject(str(error))
            return
        self._complete(value)

    def _reject(self, problem: str) -> None:
        """The answer is not the object that was asked for: one more try if wanted, else the end."""
        detail = f"The answer is not the object that was asked for: {problem}"
        if not self.job.repair or self._repaired:
            self._fail(StreamErrorReason.INCOMPLETE_COMPLETION, detail)
            return
        self._repaired = True
        self._note_response("invalid_answer", detail)
        self._added.append(Message("user", (TextPart(verdicts.repair_request(problem)),)))
        messages = (*self.job.wish.messages, *self._added)
        self._ask_again(msgspec.structs.replace(self._wish, messages=messages))

    # -- the end

    def _complete(self, value: Any, calls: tuple[ToolCall, ...] = ()) -> None:
        metadata = self._metadata(calls)
        publisher = self._publisher
        self.reply = Reply(
            text=publisher.text,
            metadata=metadata,
            thinking=publisher.thinking,
            tool_calls=calls,
            value=value,
            messages=tuple(self._added),
            earlier_text=self.job.earlier_text,
        )
        self._finish(StreamCompleted(metadata, value))

    def _fail(self, reason: StreamErrorReason, detail: str, error: StromError | None = None) -> None:
        metadata = self._metadata(self._publisher.calls_in_order())
        self.failure = StreamError(reason, detail, metadata, error)
        self._finish(self.failure)

    def _finish(self, event: StreamCompleted | StreamError) -> None:
        self._due = None
        self.over = True
        self.events.append(event)
        if isinstance(event, StreamError):
            self._note_response(event.reason.value, event.detail)
        else:
            self._note_response("completed")
        self.job.on_metrics(event.metadata.timing)

    def _note_response(self, status: str, detail: str | None = None) -> None:
        """Every request that went out and ended is told to the tracer, the last one and those before it."""
        if self._told:
            self._told = False
            metadata = self._turn_metadata(self._publisher.calls_in_order())
            self._journal.response(self._turn.candidate, status, metadata, detail)

    def _metadata(self, calls: tuple[ToolCall, ...]) -> CompletionMetadata:
        """The evidence of the whole run: all requests together, timing of the last one."""
        self._keep()
        usage, turn = self._usage, self._turn
        return msgspec.structs.replace(
            self._turn_metadata(calls),
            usage=usage,
            text="".join(self._texts),
            thinking="".join(self._thoughts),
            requests=self._requests if turn.clock.dispatched_at is not None or self._requests > 1 else 0,
            attempts=tuple(self._attempts),
            cost=None if usage is None else self.job.price_of(turn.candidate.model, usage),
            dropped=tuple(self._dropped),
        )

    def _turn_metadata(self, calls: tuple[ToolCall, ...]) -> CompletionMetadata:
        """The evidence of the request under way alone."""
        turn, job, publisher = self._turn, self.job, self._publisher
        fold, finished, candidate = turn.fold, turn.fold.finished, turn.candidate
        usage = fold.usage
        return CompletionMetadata(
            finish_reason=finished.reason if finished is not None else None,
            finish_reason_raw=finished.raw or None if finished is not None else None,
            usage=usage,
            provider_model=fold.started.model or None,
            provider=candidate.upstream.name,
            response_id=fold.started.response_id or None,
            metadata=verdicts.provider_metadata(turn.reader.headers, usage),
            timing=turn.clock.metrics(),
            text=publisher.text,
            thinking=publisher.thinking,
            tool_calls=calls,
            requests=int(turn.clock.dispatched_at is not None),
            attempts=tuple(turn.attempts),
            recovery=turn.recovery,
            cost=None if usage is None else job.price_of(candidate.model, usage),
            dropped=(*candidate.dropped, *fold.notes),
            correlation_id=job.correlation_id,
            continued=job.continued,
            resumed=job.resuming.told if job.resuming is not None else None,
        )
