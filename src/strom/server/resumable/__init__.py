"""Streams that outlive their client's connection, and clients that come back for the rest.

numbering    what a call writes → frames with their numbers
streams      kept streams: bounds, grace time, retention, their ends
exchange     the exchange of a call that writes into one
endpoints    `/v1/streams/{id}`: reading on, cancelling, here and at other processes
peers        what a process does for the others on its machine, and they for it

The gateway knows nothing of all this: it is given an `Exchange` and answers it.
"""

from strom.server.resumable.endpoints import BELOW, Resumption
from strom.server.resumable.streams import StreamLimits, Streams

__all__ = ["BELOW", "Resumption", "StreamLimits", "Streams"]
