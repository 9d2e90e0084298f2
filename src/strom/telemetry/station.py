"""Metrics and access log of one process, joined: what the composition root makes and closes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from strom.gateway.services import Services
from strom.telemetry import families as f
from strom.telemetry.access_log import AccessLog
from strom.telemetry.calls import CallMetrics
from strom.telemetry.cells import Cells
from strom.telemetry.exposition import Exposition
from strom.telemetry.model_names import ModelNames
from strom.telemetry.sampler import ProcessReadings, Reading, Sampler, Source


class Station:
    """Made inside a running loop, which `start` and `close` need too.

    `directory`: what the worker processes of one gateway share; None: there is one process. `log` None: no access log.
    """

    def __init__(
        self, services: Services, names: ModelNames, directory: Path | None = None, log: AccessLog | None = None
    ) -> None:
        self._services = services
        self._cells = Cells(directory)
        self._calls = CallMetrics(self._cells, names, services.wall)
        self._sampler = Sampler(self._cells)
        self._log = log
        self.render = Exposition(self._cells).render
        self.refresh = self._sampler.sample
        services.beginners.append(self._calls.begin)
        services.observers.append(self._calls.observe)
        for source in (ProcessReadings(), self._running):
            self._sampler.add(source)
        if log is not None:
            services.observers.append(log.observe)
            self._sampler.add(log.readings)

    def add(self, source: Source) -> None:
        self._sampler.add(source)

    def start(self) -> None:
        self._sampler.sample()
        self._sampler.start()

    def forget_names(self) -> None:
        """The configuration has changed."""
        self._calls.forget()

    def close(self) -> None:
        """Blocks until the access log is written. No call runs any more."""
        self._sampler.stop()
        if self._log is not None:
            self._log.close()
        self._cells.close()

    def _running(self) -> Iterable[Reading]:
        running = self._services.running
        yield f.ACTIVE_CALLS, (), float(len(running))
        yield f.ACTIVE_STREAMS, (), float(sum(call.record.streamed for call in running))
