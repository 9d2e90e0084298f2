"""What a process does for the others: their clients read its streams, and cancel them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from strom.server.following import Reader
from strom.server.resumable.streams import KeptStream, Streams
from strom.shared.streams_local import PeerChannel, PeerHead, PeerRequest, Peers


def make_peers(streams: Streams, folder: Path) -> Peers:
    def serve(request: PeerRequest, channel: PeerChannel) -> None:
        stream = streams.find(request.id, request.owner)
        if stream is None:
            channel.head(PeerHead())
            channel.finish()
            return
        match request.task:
            case "read":
                _read(stream, request.after, channel)
            case "cancel":
                streams.cancel(stream)
                channel.head(PeerHead(stream.info))
                channel.finish()

    return Peers(folder, streams.home, serve)


def _read(stream: KeptStream, after: int, channel: PeerChannel) -> None:
    if after > len(stream.frames):
        channel.head(PeerHead(stream.info, len(stream.frames)))
        channel.finish()
        return
    channel.head(PeerHead(stream.info))
    Reader(channel, stream, after).join()


def make_ear(streams: Streams) -> Callable[[str, str], None]:
    """For what replicas ask, which have looked at the owner."""

    def hear(task: str, stream_id: str) -> None:
        stream = streams.running(stream_id)
        if stream is None:
            return
        if task == "cancel":
            streams.cancel(stream)
        elif task == "read":
            stream.read_elsewhere()

    return hear
