"""The composition root: from settings to a running gateway. The only place that knows every part.

serve       a process, or a supervisor with `workers` processes that share the port
Runtime     one gateway with its client, store and handler: what `serve` listens with and `strom.asgi` mounts
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import msgspec
import uvloop

from strom.addresses import HeldAddress
from strom.config.schema import ServerSettings
from strom.config.settings import Settings
from strom.core.errors import StromError
from strom.gateway.board import Board
from strom.gateway.gateway import Gateway, State
from strom.gateway.health import HealthView
from strom.gateway.media import MediaLimits
from strom.gateway.plan import Endpoint
from strom.gateway.probing import Prober
from strom.gateway.routing import Router
from strom.gateway.services import CallSettings, Services
from strom.guarding import Guard
from strom.listening import ADMIN_HOST, CannotListen, Ports, browser_rules
from strom.logs import REDACTOR, set_up_logging
from strom.notifying import READY, STOPPING, notify, notify_reloading
from strom.observing import Observation
from strom.policies.admission import Admission
from strom.protocols.table import CODECS
from strom.renewal import needing_a_restart, needing_new_processes, with_what_is_fixed
from strom.resumption import make_resumption
from strom.server.app import App
from strom.server.front import Front
from strom.server.models import ModelLister
from strom.server.pages import Pages
from strom.server.platform import Platform
from strom.server.responses import Archive, Responses
from strom.startup import Announcement, find_backends
from strom.stores.options import StoreOptions
from strom.stores.responses import ResponseLimits
from strom.stores.sealing import KeySet, parse_key
from strom.stores.table import open_key_store, open_response_store, open_store
from strom.supervisor import RETIRE, Change, Duty, supervise
from strom.telemetry.sources import client_connections, resumable_streams
from strom.transport.client import NativeClient
from strom.transport.timers import LoopClock
from strom.transport.types import Exchange
from strom.upstreams.settings import ProviderSettings
from strom.upstreams.upstream import Upstream

FIRST_LIST_S = 1.0
Reload = Callable[[], Settings]


def make_state(settings: Settings, guard: Guard, health: HealthView | None = None) -> State:
    upstreams = [Upstream(_bounded(provider, settings)) for provider in settings.providers.values()]
    router = Router(upstreams, settings.models, settings.policies, health=health)
    ring, book = guard.ring(settings), guard.book(settings)
    return State(router, ring, may_pin_freely=settings.on_loopback, limits=book)


def _bounded(provider: ProviderSettings, settings: Settings) -> ProviderSettings:
    """The gateway's limit on frames binds every provider."""
    quirks = msgspec.structs.replace(provider.quirks, max_frame_bytes=settings.server.max_frame_bytes)
    return msgspec.structs.replace(provider, quirks=quirks)


def call_settings(settings: Settings) -> CallSettings:
    server = settings.server
    name = None if server.routing_block == "off" else server.routing_block
    limits = MediaLimits(server.media_max_items, server.media_max_bytes, server.media_timeout_s)
    return CallSettings(
        server.heartbeat_s,
        name,
        server.reasoning,
        server.max_reply_bytes,
        fetch_media=limits if server.fetch_media else None,
        structured_fallback=server.structured_fallback,
        slow_reader_s=server.slow_reader_s,
        keep_peer=settings.store.keep_peer,
    )


def make_admission(settings: Settings) -> Admission:
    return Admission(settings.server.max_active_calls, settings.server.max_memory_mb)


def store_options(settings: Settings) -> StoreOptions:
    """Raises ConfigError when keys are given and the package that seals is not installed."""
    table = settings.store
    keys = [parse_key(key.reveal()) for key in settings.store_keys]
    return StoreOptions(
        retention_days=table.retention_days,
        journal_dir=Path(table.journal_dir) if table.journal_dir else None,
        auto_upgrade=table.auto_upgrade,
        sealing=KeySet(keys) if keys else None,
    )


def make_responses(gateway: Gateway, settings: Settings) -> Responses:
    """Made inside a running loop. Raises ConfigError when the store cannot be opened."""
    table = settings.store
    if not table.responses:
        return Responses(gateway, None)
    limits = ResponseLimits(table.response_retention_s, table.max_responses, table.max_response_bytes)
    store = open_response_store(settings.store_url, limits, store_options(settings))
    shared = settings.server.workers > 1 or settings.store_url.startswith("postgres")
    archive = Archive(store, shared=shared)
    return Responses(gateway, archive, table.max_background)


class Runtime:
    """Made inside a running loop. `handle` is the transport's handler."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        options = store_options(settings)
        self.store = open_store(settings.store_url, options)
        self.guard = Guard(settings, open_key_store(settings.store_url, options), self.store.usage)
        self.client = NativeClient()
        clock = LoopClock(asyncio.get_running_loop())
        services = Services(self.client, self.store, call_settings(settings), clock)
        self.board = services.health = Board(clock.time)
        self.gateway = Gateway(services, CODECS, make_state(settings, self.guard, self.board))
        self.prober = Prober(self.client, self.board, self._endpoints)
        self.prober.start()
        self.gateway.admission = make_admission(settings)
        platform, responses = Platform(self.gateway, self.store), make_responses(self.gateway, settings)
        self.models = ModelLister(self.gateway)
        self.app = App(self.gateway, Pages(self.gateway), self.models, platform, responses)
        self.guard.attach(self.gateway, self.app)
        self.resumption = self.app.streams = make_resumption(self.gateway, settings)
        self.front = Front(self.app, browser_rules(settings), admin_apart=settings.server.admin_port is not None)
        self.observation = Observation(self.gateway, settings, lambda: self.store.lost)
        kept = self.resumption.streams
        self.observation.station.add(resumable_streams(lambda: (kept.count, kept.size_bytes)))
        self.app.add_page("/metrics", self.observation.page.show)
        self.front.pass_on = self.observation.watch(self.app.handle)

    def handle(self, exchange: Exchange) -> None:
        self.front.pass_on(exchange)

    def has_memory(self) -> bool:
        return self.gateway.admission.has_memory()

    def _endpoints(self) -> list[Endpoint]:
        return [endpoint for _, endpoint in self.gateway.state.router.endpoints()]

    def replace_settings(self, settings: Settings) -> None:
        """New keys, models, providers and call settings for new calls; running ones keep theirs."""
        self.settings = settings
        self.gateway.state = make_state(settings, self.guard, self.board)
        self.board.keep(self._endpoints())
        self.prober.start()
        self.gateway.services.settings = call_settings(settings)
        self.gateway.admission = make_admission(settings)
        self.front.browsers = browser_rules(settings)
        self.observation.replace_settings(settings)

    def stop_calls(self) -> None:
        """End what still runs with an error that its client is told."""
        for call in list(self.gateway.services.running):
            call.stop()

    async def close(self) -> None:
        """Everything that runs has ended or is cut; records are on disk when this returns."""
        await self.app.close()
        self.stop_calls()
        await self.resumption.close()
        self.prober.stop()
        self.gateway.services.lingering.close()
        self.client.close()
        await self.guard.close()
        await asyncio.to_thread(self.store.close)
        await self.observation.close()


def serve(settings: Settings, reload: Reload | None = None) -> int:
    """Run until a signal. Returns the exit code."""
    for warning in settings.warnings:
        click.echo(f"warning: {warning}", err=True)
    with find_backends(settings) as found:
        announce = found.announcement
        if found.settings.server.workers > 1:
            return _serve_shared(found.settings, reload, announce)
        return run_process(found.settings, reload, announce, None)


def _serve_shared(settings: Settings, reload: Reload | None, announce: Announcement) -> int:
    server = settings.server
    with contextlib.ExitStack() as held, TemporaryDirectory(prefix="strom-") as folder:
        # Port 0: all workers share the one that was found.
        addresses = [_hold(held, server.host, server.port)]
        found = msgspec.structs.replace(server, port=addresses[0].port)
        if server.admin_port is not None:
            addresses.append(_hold(held, server.admin_host or ADMIN_HOST, server.admin_port))
            found = msgspec.structs.replace(found, admin_port=addresses[1].port)
        asked = found if reload is None else server
        fleet = Gateways(
            msgspec.structs.replace(settings, server=found, runtime_folder=folder), asked, reload, announce
        )
        return supervise(server.workers, fleet, addresses)


def _hold(stack: contextlib.ExitStack, host: str, port: int) -> HeldAddress:
    """The address held for the workers as long as the stack."""
    try:
        held = HeldAddress(host, port)
    except OSError as error:
        raise _cannot_listen(host, port, error) from error
    stack.callback(held.close)
    return held


class Gateways:
    """The fleet of a supervisor: each worker is a gateway with the settings that hold when it starts."""

    def __init__(
        self, settings: Settings, asked: ServerSettings, reload: Reload | None, announce: Announcement
    ) -> None:
        """`asked`: the server's settings before ports were found."""
        self._settings = self._before = settings
        self._asked = asked
        self._reload = reload
        self._announce = announce

    @property
    def grace_s(self) -> float:
        return self._settings.server.shutdown_grace_s

    def work(self, duty: Duty) -> int:
        server, settings = self._settings.server, self._settings
        set_up_logging(server.log_level, server.log_format, [secret.reveal() for secret in settings.secrets])
        announce = self._announce if duty.announces else None
        return run_process(settings, self._reload, announce, duty)

    def reload(self) -> Change:
        if self._reload is None:
            return Change.REFUSED
        try:
            read = self._reload()
        except StromError as error:
            click.echo(REFUSED.format(error.message), err=True)
            return Change.REFUSED
        _warn_of_restart(needing_a_restart(msgspec.structs.replace(read, server=self._asked), read))
        self._before, fresh = self._settings, with_what_is_fixed(self._settings, read)
        self._settings = fresh
        outgrown = needing_new_processes(self._before, fresh)
        if not outgrown:
            return Change.IN_PLACE
        click.echo(f"Workers are replaced for {', '.join(outgrown)}.", err=True)
        return Change.NEW_PROCESSES

    def restore(self) -> None:
        self._settings = self._before


def _warn_of_restart(changed: list[str]) -> None:
    if changed:
        click.echo(f"warning: {', '.join(changed)} takes effect at the next start", err=True)


REFUSED = "The changed configuration was refused, the old one stays:\n{}"


def _cannot_listen(host: str, port: int, error: OSError) -> StromError:
    why = error.strerror or str(error)
    if error.errno is not None and not isinstance(error, socket.gaierror):
        why = os.strerror(error.errno)  # asyncio's own text repeats the address
    return StromError(f"Cannot listen on {host}:{port}: {why}. Choose another with --port or --host.")


def run_process(settings: Settings, reload: Reload | None, announce: Announcement | None, duty: Duty | None) -> int:
    """`duty`: of one worker among several; None: it is alone."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, reload, announce, duty))


async def _serve(settings: Settings, reload: Reload | None, announce: Announcement | None, duty: Duty | None) -> int:
    runtime = Runtime(settings)
    await runtime.resumption.open()
    try:
        ports = await _open_ports(runtime, duty)
    except StromError:
        await runtime.close()
        raise
    runtime.observation.station.add(client_connections(lambda: ports.open_connections))
    stop = Stop(ports, settings.server.shutdown_grace_s, runtime.stop_calls)
    stop.install(lambda: _reload(runtime, ports, reload, alone=duty is None))
    tell_ready = duty.ready if duty is not None else lambda: notify(READY)
    tell_ready()
    if announce is not None:
        announced = await _with_a_model(runtime, announce)
        announced = msgspec.structs.replace(announced, scheme=ports.scheme, admin_place=ports.admin_place)
        announced.print(settings.server.host, ports.port)
        for warning in ports.warnings:
            click.echo(f"warning: {warning}", err=True)
    _calm_collector()
    await stop.until_stopped()
    if duty is None:
        notify(STOPPING)
    await runtime.close()
    return 0


async def _open_ports(runtime: Runtime, duty: Duty | None) -> Ports:
    """Raises StromError."""
    ports = Ports(runtime.settings, runtime.front, runtime.has_memory)
    try:
        await ports.start(None if duty is None else duty.sockets)
    except CannotListen as error:
        raise _cannot_listen(error.host, error.port, error.cause) from error
    return ports


async def _with_a_model(runtime: Runtime, announce: Announcement) -> Announcement:
    """The command to try names a model that a backend really lists, if one answers at once."""
    if announce.model:
        return announce
    try:
        async with asyncio.timeout(FIRST_LIST_S):
            listed = await runtime.models.all()
    except TimeoutError:
        listed = []
    return msgspec.structs.replace(announce, model=listed[0].id if listed else "MODEL")


def _calm_collector() -> None:
    """What stands now stands until the end; calls leave no cycles behind, so collections may be rare."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)


def _reload(runtime: Runtime, ports: Ports, reload: Reload | None, *, alone: bool) -> None:
    """A bad file is refused and what runs stays. `alone`: no parent has looked at the file before."""
    if reload is None:
        return
    if alone:
        notify_reloading()
    try:
        fresh = with_what_is_fixed(runtime.settings, read := reload())
        for secret in fresh.secrets:
            REDACTOR.register(secret.reveal())
        ports.reload(fresh)
        if alone:
            before = runtime.settings
            _warn_of_restart([*needing_a_restart(before, read), *needing_new_processes(before, fresh)])
        runtime.replace_settings(fresh)
        for warning in fresh.warnings:
            click.echo(f"warning: {warning}", err=True)
    except StromError as error:
        click.echo(REFUSED.format(error.message), err=True)
    else:
        click.echo("Configuration reloaded.", err=True)
    if alone:
        notify(READY)


LAST_WORDS_S = 0.2
"""So long before connections are cut, running calls are told that they are."""


RETIREMENT_S = 3600.0
"""So long at most does a worker that was replaced finish its streams."""


class Stop:
    """The first SIGTERM or Ctrl-C drains, the second one cuts; a replaced worker drains at leisure.

    `stop_calls` ends what runs with a word to its client.
    """

    def __init__(self, listener: Ports, grace_s: float, stop_calls: Callable[[], None]) -> None:
        self._listener = listener
        self._grace_s = max(grace_s, LAST_WORDS_S)
        self._stop_calls = stop_calls
        self._asked = asyncio.Event()
        self._signals = 0
        self._timers: list[asyncio.TimerHandle] = []
        self._cut: asyncio.Task[None] | None = None

    def install(self, on_hangup: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        loop.add_signal_handler(signal.SIGHUP, on_hangup)
        loop.add_signal_handler(RETIRE, self._retire)

    def _signalled(self) -> None:
        self._signals += 1
        if self._signals == 1:
            self._drain_within(self._grace_s)
        elif self._cut is None:
            self._cut = asyncio.get_running_loop().create_task(self._cut_off())

    def _retire(self) -> None:
        if not self._asked.is_set():
            self._drain_within(RETIREMENT_S)

    def _drain_within(self, grace_s: float) -> None:
        self._asked.set()
        if waiting := self._listener.open_exchanges:
            click.echo(f"Draining {waiting} running calls (at most {grace_s:g} s); again to cut.", err=True)
        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(grace_s - LAST_WORDS_S, self._stop_calls))
        self._timers.append(loop.call_later(grace_s, self._end))

    def _end(self) -> None:
        if self._cut is None:
            self._cut = asyncio.get_running_loop().create_task(self._listener.close())

    async def until_stopped(self) -> None:
        await self._asked.wait()
        await self._listener.drain(RETIREMENT_S)
        for timer in self._timers:
            timer.cancel()
        if self._cut is not None:
            await self._cut

    async def _cut_off(self) -> None:
        self._stop_calls()
        await asyncio.sleep(0)  # what they wrote leaves first
        await self._listener.close()
