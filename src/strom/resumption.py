"""Resumable streams put together: what this process keeps, its peers on this machine, and Redis, as the settings say."""

from __future__ import annotations

from pathlib import Path

from strom.config.settings import Settings
from strom.gateway.gateway import Gateway
from strom.server.resumable import Resumption, StreamLimits, Streams
from strom.server.resumable.peers import make_ear, make_peers
from strom.shared.streams_redis import RedisMirror, RedisStreams, connect


def make_resumption(gateway: Gateway, settings: Settings) -> Resumption:
    """Made inside a running loop. Raises ConfigError."""
    server = settings.server
    limits = StreamLimits(
        server.resume_grace_s, server.resume_retention_s, server.resume_buffer_bytes, server.resume_total_bytes
    )
    streams = Streams(gateway.services.clock, limits)
    peers = replicas = mirror = None
    if settings.runtime_folder is not None:
        peers = make_peers(streams, Path(settings.runtime_folder))
    if settings.shared_url != "memory://":
        client = connect(settings.shared_url)
        replicas = RedisStreams(client)
        mirror = streams.mirror = RedisMirror(client, streams.home, limits.retention_s, make_ear(streams))
    behind = [each for each in (peers, mirror) if each is not None]
    return Resumption(gateway, streams, peers, replicas, behind)
