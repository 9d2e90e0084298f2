"""`/v1/responses` and everything below it: what a Responses client expects to be remembered.

endpoints    the paths; a request that is neither stored nor refers to anything goes straight to the gateway
exchanges    a decorator of `Exchange` that keeps the final object of a call
history      a request that continues a stored response → one that holds the whole conversation
background   responses that run without a client, and clients that read them, from any event on
archive      the response store, seen from the event loop

The gateway knows nothing of all this: it is given an `Exchange` and answers it.
"""

from strom.server.responses.archive import Archive
from strom.server.responses.endpoints import Responses

__all__ = ["Archive", "Responses"]
