"""Rows M-40 to M-53 and B-12 to B-14: what is sent again, when, and what is never."""

from __future__ import annotations

import pytest

import strom
from strom.client.events import StreamContent, StreamErrorReason
from strom.client.evidence import RecoveryOutcome
from strom.client.options import ModelOptions
from strom.client.retry import Admission, Retry, RetryEvent
from strom.client.signals import AdmissionRequest
from strom.core.errors import StromError
from strom.transport.types import TransportFailure
from tests.client.rig import (
    DONE,
    Answer,
    Rig,
    chunk,
    completed,
    content,
    failed,
    finish,
    refused,
    sse,
    text_answer,
    unreachable,
)

FULL = {"jitter": lambda: 1.0}
QUICK = Retry(base_delay_s=1, jitter=lambda: 1.0)


def outcome_of(rig: Rig, retry: Retry) -> RecoveryOutcome:
    metadata = rig.play(retry=retry)[-1].metadata  # type: ignore[union-attr]  # the terminal event
    assert metadata.recovery is not None
    return metadata.recovery.outcome


def test_m40_cancel_gives_a_typed_terminal_with_timing() -> None:
    rig = Rig([Answer((content("a"),), silent=True)])
    rig.open(retry=QUICK)
    rig.step()
    rig.now += 1
    rig.run.cancel(rig.now)
    end = failed(rig.finish())
    assert end.reason == StreamErrorReason.CANCELLED
    assert isinstance(end.error, strom.Cancelled)
    assert "unknown" in end.detail
    assert end.metadata.request_duration_ms == pytest.approx(1100)
    assert end.metadata.recovery is not None
    assert end.metadata.recovery.outcome == "cancelled"
    assert rig.let_go == [False]


def test_m40_cancel_after_the_end_changes_nothing() -> None:
    rig = Rig([text_answer()])
    events = rig.play()
    rig.run.cancel(rig.now)
    assert rig.finish() == []
    completed(events)


def test_m40_cancel_before_the_end_is_read_is_a_cancel_however_the_bytes_came() -> None:
    rig = Rig([text_answer("all in one read")])
    rig.open()
    while rig.step():
        pass
    rig.run.cancel(rig.now)
    events = rig.finish()
    assert [event.type for event in events] == ["content", "error"]
    assert failed(events).reason == StreamErrorReason.CANCELLED
    assert rig.run.reply is None


def test_m40_cancel_does_not_hide_a_failure() -> None:
    rig = Rig([refused(500)])
    rig.open()
    while rig.step():
        pass
    rig.run.cancel(rig.now)
    assert failed(rig.finish()).reason == StreamErrorReason.REQUEST_FAILED


def test_m41_statuses_that_are_retried() -> None:
    for status in (429, 500, 502, 503, 504):
        rig = Rig([refused(status), text_answer()])
        assert outcome_of(rig, QUICK) == "succeeded"
        assert len(rig.sent) == 2


def test_m42_full_jitter_doubles_up_to_the_ceiling() -> None:
    rig = Rig([refused(503)] * 4 + [text_answer()])
    retry = Retry(attempts=5, base_delay_s=1, delay_ceiling_s=3, jitter=lambda: 1.0)
    assert outcome_of(rig, retry) == "succeeded"
    assert rig.pauses == [1, 2, 3, 3]
    assert Rig([refused(503), text_answer()]).play(retry=Retry(jitter=lambda: 0.0))


@pytest.mark.parametrize(
    ("field", "value", "delay"),
    [
        (b"retry-after", b"7", 7),
        (b"retry-after-ms", b"1500", 1.5),
        (b"retry-after", b"Thu, 01 Jan 1970 00:00:09 GMT", 9),
        (b"retry-after", b"soon", 0),
    ],
)
def test_m42_retry_after_is_a_floor(field: bytes, value: bytes, delay: float) -> None:
    rig = Rig([refused(429, headers=[(field, value)]), text_answer()])
    assert outcome_of(rig, Retry(jitter=lambda: 0.0, wall=lambda: 0.0)) == "succeeded"
    assert rig.pauses == [pytest.approx(delay)]


def test_m42_retry_after_above_the_ceiling_is_refused_not_shortened() -> None:
    rig = Rig([refused(429, headers=[(b"retry-after", b"31")])])
    assert outcome_of(rig, Retry()) == "delay_ceiling"
    assert len(rig.sent) == 1


LOCAL: ModelOptions = {}


def test_m43_a_local_server_is_asked_again_only_if_the_connection_failed() -> None:
    rig = Rig([unreachable(), Answer((chunk({"content": "a"}), finish("stop"), DONE))], name="vllm/m")
    assert outcome_of(rig, QUICK) == "succeeded"
    rig = Rig([refused(503)], name="vllm/m")
    assert outcome_of(rig, QUICK) == "admission_required"


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("allow", "succeeded"),
        (True, "succeeded"),
        ("reject", "admission_rejected"),
        (False, "admission_rejected"),
        (None, "admission_undecided"),
    ],
)
def test_m43_admission(answer: Admission, outcome: str) -> None:
    asked: list[AdmissionRequest] = []

    def admission(request: AdmissionRequest) -> Admission:
        asked.append(request)
        return answer

    rig = Rig([refused(503), text_answer()], name="vllm/m")
    assert outcome_of(rig, Retry(admission=admission)) == outcome
    assert (asked[0].attempt, asked[0].provider, asked[0].delivered) == (1, "vllm", True)
    assert len(rig.sent) == (2 if outcome == "succeeded" else 1)


@pytest.mark.parametrize("first", [content("a"), chunk({"reasoning": "hm"})])
def test_m44_nothing_is_replayed_after_output(first: bytes) -> None:
    rig = Rig([Answer((first,)), text_answer()])
    assert outcome_of(rig, QUICK) == "interrupted"
    assert len(rig.sent) == 1


def test_m44_keepalives_do_not_block_a_retry() -> None:
    rig = Rig([Answer((b": ping\n\n", chunk({"role": "assistant"}))), text_answer()])
    assert outcome_of(rig, QUICK) == "succeeded"


@pytest.mark.parametrize(
    "answer",
    [
        refused(400),
        refused(401),
        refused(403),
        refused(404),
        Answer((sse({"error": {"message": "x"}}),)),
        Answer((b"data: {\n\n",)),
    ],
)
def test_m45_never_retried(answer: Answer) -> None:
    rig = Rig([answer, text_answer()])
    assert outcome_of(rig, QUICK) == "ineligible"
    assert len(rig.sent) == 1


def test_m46_identical_bytes() -> None:
    rig = Rig([unreachable(), refused(503), text_answer()])
    rig.play(retry=QUICK)
    assert len({send.request.body for send in rig.sent}) == 1
    assert rig.sent[0].request is rig.sent[2].request


def test_m48_attempts_exhausted() -> None:
    rig = Rig([refused(503)] * 3)
    assert outcome_of(rig, QUICK) == "attempts_exhausted"
    assert len(rig.sent) == 3


def test_m48_budget_runs_from_the_first_failure() -> None:
    rig = Rig([refused(503), refused(503)])
    assert outcome_of(rig, Retry(attempts=9, base_delay_s=1, budget_s=2, jitter=lambda: 1.0)) == "budget_exhausted"
    assert len(rig.sent) == 2


def test_m48_deadline_is_a_time_on_the_clock() -> None:
    rig = Rig([refused(503)])
    assert outcome_of(rig, Retry(base_delay_s=1, deadline=1001, jitter=lambda: 1.0)) == "budget_exhausted"


def test_m49_the_whole_proof_is_needed_also_in_recovery() -> None:
    rig = Rig([Answer((content("a"), finish("stop")))])
    assert outcome_of(rig, QUICK) == "interrupted"


def test_m50_transitions() -> None:
    seen: list[RetryEvent] = []
    rig = Rig([refused(503), text_answer()])
    rig.play(retry=Retry(observer=seen.append, base_delay_s=0))
    assert [event.transition for event in seen] == [
        "attempt_failed",
        "delay_scheduled",
        "retry_started",
        "attempt_succeeded",
    ]
    assert seen[0].code == "overloaded"


def test_m51_keys_and_payloads_stay_out_of_reports() -> None:
    seen: list[RetryEvent] = []
    rig = Rig([refused(500, "key sk-secret-1 broke")], model={"api_key": "sk-secret-1"})
    end = failed(rig.play("private", retry=Retry(observer=seen.append, attempts=1)))
    assert "sk-secret-1" not in repr((end, seen, rig.model, end.error and end.error.detail))
    assert "private" not in repr((end, seen))


def test_b13_each_attempt_is_reported() -> None:
    rig = Rig([unreachable(), refused(503), text_answer()])
    attempts = completed(rig.play(retry=QUICK)).metadata.attempts
    assert [(item.outcome, item.status) for item in attempts] == [
        ("upstream_unreachable", None),
        ("overloaded", 503),
        ("ok", 200),
    ]


def test_without_a_policy_nothing_is_retried() -> None:
    rig = Rig([refused(503)])
    assert failed(rig.play()).metadata.recovery is None
    assert len(rig.sent) == 1


OTHER = strom.AsyncModel("other", base_url="http://other:1")


def test_b14_fallback_before_the_first_token() -> None:
    rig = Rig([refused(503), text_answer()])
    events = rig.play(fallbacks=[OTHER])
    assert isinstance(events[0], StreamContent)
    assert [body["model"] for body in rig.bodies()] == ["m", "other"]
    assert [send.origin.host for send in rig.sent] == ["upstream", "other"]
    assert [item.model for item in completed(events).metadata.attempts] == ["m", "other"]


def test_b14_no_fallback_after_output_nor_for_a_bad_request() -> None:
    for answer in (Answer((content("a"),)), refused(400)):
        rig = Rig([answer])
        failed(rig.play(fallbacks=[OTHER]))
        assert len(rig.sent) == 1


def test_b14_fallback_comes_after_the_retries() -> None:
    rig = Rig([refused(503), refused(503), text_answer()], model={"fallbacks": [OTHER]})
    completed(rig.play(retry=Retry(attempts=2, base_delay_s=0)))
    assert [body["model"] for body in rig.bodies()] == ["m", "m", "other"]


def test_n16_continue_from_an_incomplete_answer() -> None:
    rig = Rig([Answer((content("Once upon"), finish("length"), DONE))])
    cut = failed(rig.play("A story"))
    rig.answers = [text_answer(" a time.")]
    end = completed(rig.play("A story", continue_from=cut))
    assert end.metadata.continued
    assert rig.run.reply is not None
    assert rig.run.reply.full_text == "Once upon a time."
    roles = [(message["role"], message["content"]) for message in rig.bodies()[1]["messages"]]
    assert roles[:2] == [("user", "A story"), ("assistant", "Once upon")]
    assert roles[2][0] == "user"


def test_a_cut_before_any_token_may_be_retried() -> None:
    cut = TransportFailure("cut", "reset", sent=True)
    rig = Rig([Answer((chunk({"role": "assistant"}),), cut=cut), text_answer()])
    assert outcome_of(rig, QUICK) == "succeeded"


def test_quota_that_is_used_up_is_not_waited_for() -> None:
    body = b'{"error": {"message": "quota", "type": "insufficient_quota", "code": "insufficient_quota"}}'
    rig = Rig([Answer((body,), 429, [(b"content-type", b"application/json")])])
    assert outcome_of(rig, QUICK) == "ineligible"


def test_an_error_is_an_error_of_the_tree() -> None:
    end = failed(Rig([refused(500)]).play())
    assert isinstance(end.error, StromError)


def test_m43_nothing_is_sent_again_without_a_clear_yes() -> None:
    rig = Rig([refused(503)])
    error = failed(rig.play(retry=Retry(admission=lambda _: "perhaps")))  # type: ignore[arg-type, return-value]
    assert error.metadata.recovery is not None
    assert error.metadata.recovery.outcome == "admission_undecided"
    assert len(rig.sent) == 1
