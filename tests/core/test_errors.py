"""An error that has become an answer holds nothing of its call, however many errors stand behind it."""

from __future__ import annotations

from strom.core.errors import StromError, let_go


def raised(error: Exception, *, behind: Exception | None = None) -> Exception:
    try:
        raise error
    except type(error):
        error.__context__ = behind
        return error


def test_the_frames_of_all_errors_behind_it_are_let_go() -> None:
    cause, context = raised(ValueError()), raised(KeyError())
    never_raised = ValueError()
    never_raised.__cause__ = cause
    error = raised(StromError("no"), behind=context)
    error.__cause__ = never_raised
    let_go(error)
    assert [each.__traceback__ for each in (error, context, cause)] == [None] * 3


def test_a_row_longer_than_the_stack() -> None:
    first = last = raised(ValueError())
    for _ in range(20_000):
        last = raised(ValueError(), behind=last)
    let_go(last)
    assert first.__traceback__ is None
    while last.__context__ is not None:  # else taking it apart would be as deep as the row is long
        last.__context__, last = None, last.__context__  # type: ignore[assignment]


def test_a_circle() -> None:
    one, other = raised(ValueError()), raised(KeyError())
    one.__context__, other.__context__ = other, one
    let_go(one)
    assert one.__traceback__ is None
    assert other.__traceback__ is None
