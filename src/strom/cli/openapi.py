"""`strom openapi`: the OpenAPI document of the platform API, as a gateway of this version serves it."""

from __future__ import annotations

import click


@click.command()
@click.option("-o", "--output", default="-", show_default=True, metavar="FILE", help="Where to; - is standard output.")
def openapi(output: str) -> int:
    """Print the OpenAPI document of /platform/v1 (JSON)."""
    from strom.core.errors import StromError
    from strom.server.platform_openapi import document

    try:
        with click.open_file(output, "wb") as file:
            file.write(document())
    except OSError as error:
        raise StromError(f"{output} cannot be written: {error.strerror}") from None
    return 0
