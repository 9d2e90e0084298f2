"""`strom traces list`, `show`, `tail` and `export`: the records of calls."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from strom.cli.output import plain, print_json, print_table
from strom.cli.place import place_of, place_options
from strom.cli.record_options import filter_options, filter_params

if TYPE_CHECKING:
    from strom.cli.trace_source import Trace, TraceSource
    from strom.stores.records import RecordFilter

_OVERLAP_S = 10.0
"""How late a record may arrive in the store after its call has ended, and still be seen by `tail`."""
_COLUMNS = ("STARTED", "STATUS", "MODEL", "PROVIDER", "KEY", "IN", "OUT", "TTFT ms", "TOTAL ms", "TRACE")


@click.group()
def traces() -> None:
    """Look at the records of calls."""


@traces.command("list")
@place_options
@filter_options
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True)
@click.option("--cursor", metavar="CURSOR", help="Go on where another list ended.")
def list_(limit: int, cursor: str | None, **options: Any) -> int:
    """List calls, the newest first."""
    from strom.cli.trace_source import open_source
    from strom.stores.query import Query

    query = Query(_filter(options), limit, cursor)
    found, following = open_source(place_of(options)).page(query)
    if options["as_json"]:
        print_json({"data": found, "next_cursor": following})
        return 0
    print_table(_COLUMNS, [_row(trace) for trace in found])
    if following:
        click.echo(f"There is more: --cursor {following}", err=True)
    return 0


@traces.command()
@click.argument("trace_id")
@place_options
def show(trace_id: str, **options: Any) -> int:
    """Show one call."""
    from strom.cli.trace_source import open_source

    trace = open_source(place_of(options)).get(trace_id)
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
@place_options
@filter_options
@click.option("--interval", "interval_s", type=click.FloatRange(0.1, 60), default=0.5, show_default=True, metavar="S")
def tail(interval_s: float, **options: Any) -> int:
    """Print calls as they end, until Ctrl-C."""
    from strom.cli.trace_source import open_source

    wanted = _filter(options)
    source = open_source(place_of(options))
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


@traces.command()
@place_options
@filter_options
@click.option(
    "--format", "kind", type=click.Choice(("jsonl", "csv", "parquet")), help="[jsonl, which --json means too]"
)
@click.option("-o", "--output", default="-", show_default=True, metavar="FILE", help="Where to; - is standard output.")
def export(kind: str | None, output: str, **options: Any) -> int:
    """Write calls to a file, the newest first.

    Numbers that are unknown stay empty. Parquet needs the extra `parquet`.
    """
    from strom.cli.export import open_sink
    from strom.cli.trace_source import open_source, pages

    if options["as_json"] and kind not in (None, "jsonl"):
        raise click.UsageError("--json and --format exclude each other")
    kind = kind or "jsonl"
    if kind == "parquet" and output == "-":
        raise click.UsageError("Parquet is written to a file: name it with -o")
    source, count = open_source(place_of(options)), 0
    with open_sink(kind, output) as sink:
        for found in pages(source, _filter(options)):
            sink.write(found)
            count += len(found)
    click.echo(f"{count} calls", err=True)
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

    from strom.cli.trace_source import pages

    for found in pages(source, msgspec.structs.replace(wanted, ended_since=instant)):
        yield from found


def _filter(options: dict[str, Any]) -> RecordFilter:
    from strom.stores.query import parse_query

    return parse_query(filter_params(options)).wanted


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
