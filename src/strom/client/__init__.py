"""The Python library: typed streams that prove their end, tools, sessions, structured output, recovery, tracing.

One sans-I/O core (`run.py` over `turn.py` over `reader.py`) is fed signals and asks for actions (`signals.py`); the sync and
the async stream are thin shells that carry the actions out. The public names stand in `strom`.
"""
