"""How hard the generated tests try: STROM_EFFORT=10 multiplies their examples."""

import os

EFFORT = int(os.environ.get("STROM_EFFORT", "1"))


def examples(number: int) -> int:
    return number * EFFORT
