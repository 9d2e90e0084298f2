"""Conversations out of the store: a request that continues one becomes a request that holds it whole.

What is unknown is refused, since leaving it out would lose the conversation in silence; where the upstream speaks Responses
itself it may know more than we do, so there it is passed on. Runs on the archive's thread.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from strom.core.errors import BadRequest, Unsupported
from strom.protocols.openai_responses import stored as wire
from strom.protocols.openai_responses.stored import StoreWish
from strom.stores.responses import Place, ResponseStore, StoredResponse

_RAWS = msgspec.json.Decoder(list[Raw])


class Continuation(msgspec.Struct, frozen=True):
    """A request that refers to something stored. `passes_on`: its upstream may know what we do not."""

    owner: str
    body: bytes
    wish: StoreWish
    passes_on: bool

    def expand(self, store: ResponseStore) -> bytes:
        """Its body with everything that is known put in. Raises NotFound, BadRequest, Unsupported."""
        wish, body = self.wish, self.body
        if wish.conversation:
            self._refuse_conversation()
        if wish.previous_response_id:
            body = self._with_previous(store, body)
        return wire.with_references(body, lambda item_id: self._item(store, item_id)) if wish.references else body

    def without_store(self) -> bytes:
        """The same where nothing is stored at all."""
        if self.wish.conversation:
            self._refuse_conversation()
        if self.wish.previous_response_id and not self.passes_on:
            raise wire.not_found(self.wish.previous_response_id, param="previous_response_id")
        return self.body if self.passes_on else wire.with_references(self.body, lambda item_id: None)

    def _refuse_conversation(self) -> None:
        if self.wish.previous_response_id:
            raise BadRequest("conversation and previous_response_id exclude each other.", param="conversation")
        if not self.passes_on:
            raise Unsupported(
                "Conversations are not kept here: send the whole input, or previous_response_id.", param="conversation"
            )

    def _with_previous(self, store: ResponseStore, body: bytes) -> bytes:
        identity = self.wish.previous_response_id
        found = store.get(Place(self.owner, identity))
        if found is None and self.passes_on:
            return body
        if found is None:
            raise wire.not_found(identity, param="previous_response_id")
        if not wire.has_ended_well(found.response):
            message = f"Previous response {identity!r} is not complete: a conversation cannot go on from it."
            raise BadRequest(message, param="previous_response_id")
        return wire.with_history(body, [*input_items(found), *wire.output_items(found.response)])

    def _item(self, store: ResponseStore, item_id: str) -> bytes | None:
        holder = store.with_item(self.owner, item_id)
        if holder is not None:
            for item in (*wire.output_items(holder.response), *input_items(holder)):
                if wire.item_id(item) == item_id:
                    return item
        return msgspec.json.encode({"type": "item_reference", "id": item_id}) if self.passes_on else None


def input_items(found: StoredResponse) -> list[bytes]:
    return [bytes(item) for item in _RAWS.decode(found.input_items)]


def keep(state: StoredResponse, body: bytes, store: ResponseStore) -> bool:
    """Put a response into the store, with the items of the (whole) request that it answers. False: it does not fit."""
    try:
        items = wire.input_items(body)
        held = [*items, *wire.output_items(state.response)]
    except ValueError:
        return True  # nothing of it can be read, so nobody can go on from it
    ids = tuple(dict.fromkeys(identity for item in held if (identity := wire.item_id(item))))
    return store.put(msgspec.structs.replace(state, input_items=b"[" + b",".join(items) + b"]", item_ids=ids))
