"""`strom traces list`, `show` and `tail`: the records of calls."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from strom.cli.options import config_option
from strom.cli.output import plain, print_json, print_table

if TYPE_CHECKING:
    from strom.cli.trace_source import Place, Trace, TraceSource
    from strom.stores.records import RecordFilter

Function = Callable[..., Any]
STATUSES = ("started", "completed", "incomplete", "failed", "cancelled", "rejected")
"""`strom.core.record.Status`, which is not imported for the sake of a fast --help."""
_AGE = re.compile(r"(\d+)([smhd])")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_OVERLAP_S = 10.0
"""How late a record may arrive in the store after its call has ended, and still be seen by `tail`."""
_COLUMNS = ("STARTED", "STATUS", "MODEL", "PROVIDER", "KEY", "IN", "OUT", "TTFT ms", "TOTAL ms", "TRACE")


@click.group()
def traces() -> None:
    """Look at the records of calls."""


def _place_options(command: Function) -> Function:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        config_option("Use the store of this configuration."),
        click.option("--store", metavar="URL", help="The store [sqlite:///strom.db]."),
        click.option("--key-env", metavar="NAME", help="Variable that holds an admin key for that gateway."),
        click.option("--url", metavar="URL", help="Ask a running gateway."),
    ):
        command = option(command)
    return command


def _filter_options(command: Function) -> Function:
    for option in (
        click.option("--until", metavar="TIME", help="Started before: a time, or an age like 10m, 2h, 1d."),
        click.option("--since", metavar="TIME", help="Started then or later."),
        click.option("--protocol", "protocol_in", metavar="P", help="The client's protocol."),
        click.option("--key", "key_name", metavar="NAME", help="The client's key."),
        click.option("--provider", metavar="NAME"),
        click.option("--model", metavar="NAME", help="Asked for, or used."),
        click.option("--status", type=click.Choice(STATUSES)),
    ):
        command = option(command)
    return command


@traces.command("list")
@_place_options
@_filter_options
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True)
@click.option("--cursor", metavar="CURSOR", help="Go on where another list ended.")
def list_(limit: int, cursor: str | None, **options: Any) -> int:
    """List calls, the newest first."""
    from strom.stores.query import Query

    place, query = _place(options), Query(_filter(options), limit, cursor)
    found, following = place.open().page(query)
    if options["as_json"]:
        print_json({"data": found, "next_cursor": following})
        return 0
    print_table(_COLUMNS, [_row(trace) for trace in found])
    if following:
        click.echo(f"There is more: --cursor {following}", err=True)
    return 0


@traces.command()
@click.argument("trace_id")
@_place_options
def show(trace_id: str, **options: Any) -> int:
    """Show one call."""
    trace = _place(options).open().get(trace_id)
    if trace is None:
        click.echo(f"strom: there is no trace {plain(trace_id)}", err=True)
        return 1
    if options["as_json"]:
        print_json(trace)
        return 0
    lines = list(_lines(trace))
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        click.echo(f"{name.ljust(width)}  {plain(value)}")
    return 0


@traces.command()
@_place_options
@_filter_options
@click.option("--interval", "interval_s", type=click.FloatRange(0.1, 60), default=0.5, show_default=True, metavar="S")
def tail(interval_s: float, **options: Any) -> int:
    """Print calls as they end, until Ctrl-C."""
    place, wanted = _place(options), _filter(options)
    source = place.open()
    if not options["as_json"]:
        print_table(_COLUMNS, [])
    try:
        for trace in follow(source, wanted, interval_s):
            if options["as_json"]:
                print_json(trace, indent=None)
            else:
                click.echo("  ".join(plain(cell) for cell in _row(trace)))
    except KeyboardInterrupt:
        pass
    return 0


def follow(source: TraceSource, wanted: RecordFilter, interval_s: float) -> Iterator[Trace]:
    """Calls that end from now on, in the order in which they end. Never ends by itself."""
    begin = time.time()
    seen: dict[str, str] = {}
    while True:
        horizon = time.time() - _OVERLAP_S
        fresh = [trace for trace in _ended_since(source, wanted, max(begin, horizon)) if trace["trace_id"] not in seen]
        for trace in sorted(fresh, key=lambda trace: (trace["ended_at"], trace["trace_id"])):
            seen[trace["trace_id"]] = trace["ended_at"]
            yield trace
        while len(seen) > 100_000:
            del seen[next(iter(seen))]
        time.sleep(interval_s)


def _ended_since(source: TraceSource, wanted: RecordFilter, instant: float) -> Iterator[Trace]:
    import msgspec

    from strom.stores.query import MAX_LIMIT, Query

    query = Query(msgspec.structs.replace(wanted, ended_since=instant), MAX_LIMIT)
    while True:
        found, following = source.page(query)
        yield from found
        if following is None:
            return
        query = Query(query.wanted, MAX_LIMIT, following)


def _place(options: dict[str, Any]) -> Place:
    from strom.cli.trace_source import Place

    return Place(options["url"], options["key_env"], options["store"], options["path"])


def _filter(options: dict[str, Any]) -> RecordFilter:
    from strom.stores.records import RecordFilter

    return RecordFilter(
        status=options["status"],
        model=options["model"],
        provider=options["provider"],
        key_name=options["key_name"],
        protocol_in=options["protocol_in"],
        since=_instant(options["since"], "--since"),
        until=_instant(options["until"], "--until"),
    )


def _instant(text: str | None, option: str) -> float | None:
    from strom.core.errors import BadRequest
    from strom.stores.query import parse_instant

    if text is None:
        return None
    age = _AGE.fullmatch(text)
    if age:
        return time.time() - int(age[1]) * _UNITS_S[age[2]]
    try:
        return parse_instant(text, option)
    except BadRequest:
        what = f"{text!r} is no time like 2026-03-01T12:00:00Z and no age like 10m"
        raise click.BadParameter(what, param_hint=option) from None


def _row(trace: Trace) -> list[object]:
    usage, timing = trace.get("usage") or {}, trace.get("timing") or {}
    return [
        trace.get("started_at"),
        trace.get("status"),
        trace.get("model_used") or trace.get("model_requested"),
        trace.get("provider"),
        trace.get("key_name"),
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        _whole(timing.get("time_to_first_token_ms")),
        _whole(timing.get("request_duration_ms")),
        trace.get("trace_id"),
    ]


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)


def _lines(value: Any, name: str = "") -> Iterator[tuple[str, object]]:
    """Nested fields as dotted names."""
    match value:
        case dict() if value:
            for key, inner in value.items():
                yield from _lines(inner, f"{name}.{key}" if name else key)
        case list() if value:
            for at, inner in enumerate(value):
                yield from _lines(inner, f"{name}[{at}]")
        case _:
            yield name, None if value in ([], {}) else value
