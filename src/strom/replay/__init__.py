"""Record real streams with their timing, and replay them as a backend, with faults on request.

recording   one exchange as data; lines: the file format; raw: folders made with a raw socket
scrub       secrets leave before anything is written
recorder    the proxy that records
shelf       which recording answers a request
faults      the language of faults; script: what they make of a recording; connection: the bytes
server      the backend that replays
"""

from strom.replay.faults import BadFault, FaultSpec, parse_faults
from strom.replay.recording import BadRecording, Recording
from strom.replay.server import Played, ReplayOptions, ReplayServer
from strom.replay.shelf import load

__all__ = [
    "BadFault",
    "BadRecording",
    "FaultSpec",
    "Played",
    "Recording",
    "ReplayOptions",
    "ReplayServer",
    "load",
    "parse_faults",
]
