"""`strom usage`: what calls have used and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from strom.cli.output import plain, print_table
from strom.cli.place import place_of, place_options
from strom.cli.record_options import filter_options, filter_params

if TYPE_CHECKING:
    from strom.stores.usage import UsageRow

GROUPS = ("key", "model", "model_requested", "day", "provider", "endpoint", "region", "policy", "protocol")
"""`strom.stores.usage.GROUPS`, which is not imported for the sake of a fast --help."""
_NUMBERS = ("CALLS", "FAILED", "IN", "OUT", "CACHED", "REASONING", "COST", "UNPRICED")


@click.command()
@place_options
@filter_options
@click.option("--by", default="key,model", show_default=True, metavar="LIST", help=f"Some of {', '.join(GROUPS)}.")
@click.option("--limit", type=click.IntRange(1, 1000), default=200, show_default=True)
@click.option("--cursor", metavar="CURSOR", help="Go on where another list ended.")
def usage(by: str, limit: int, cursor: str | None, **options: Any) -> int:
    """Sum up tokens and cost by key, model, day and more (days of UTC)."""
    import msgspec

    from strom.cli.trace_source import open_source
    from strom.stores.usage import encode_usage, parse_usage_query

    groups = [word.strip() for word in by.split(",")]
    if not set(groups) <= set(GROUPS) or len(set(groups)) < len(groups):
        raise click.BadParameter(f"expected some of {', '.join(GROUPS)}, each once", param_hint="--by")
    params = {**filter_params(options), "by": by, "limit": str(limit), **({"cursor": cursor} if cursor else {})}
    query = parse_usage_query(params)
    page = open_source(place_of(options)).usage(query)
    if options["as_json"]:
        click.echo(msgspec.json.format(encode_usage(page), indent=2).decode())
        return 0
    print_table([*map(str.upper, query.by), *_NUMBERS], [_row(row, query.by) for row in page.data])
    if page.next_cursor:
        click.echo(f"There is more: --cursor {page.next_cursor}", err=True)
    return 0


def _row(row: UsageRow, by: tuple[str, ...]) -> list[object]:
    failed = sum(row.calls_by_status.get(status, 0) for status in ("failed", "incomplete"))
    cost = ", ".join(f"{amount.amount:f} {amount.currency}" for amount in row.cost)
    tokens = (row.input_tokens, row.output_tokens, row.cached_tokens, row.reasoning_tokens)
    return [*(plain(getattr(row, name)) for name in by), row.calls, failed, *tokens, cost, row.unknown_cost_calls]
