"""Spans and metrics of the library's calls, by OpenTelemetry's GenAI semantic conventions. Extra: `strom[otel]`.

    import strom, strom.otel

    tracer = strom.Tracer()
    strom.otel.export(tracer)
    model = strom.Model("ollama/qwen3:8b", tracer=tracer)

Where spans and metrics go is for the program's own OpenTelemetry SDK to say.
"""

from strom.otel.exporter import Exporter, export

__all__ = ["Exporter", "export"]
