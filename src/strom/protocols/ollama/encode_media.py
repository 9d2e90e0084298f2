"""Images and documents in Ollama's words: images as raw base64, documents only as text.

An address would have to be fetched, which is the gateway's matter and not the codec's; a file id is its own provider's.
Source: protocol-facts.md section 6.4.
"""

from __future__ import annotations

from base64 import b64decode

from strom.core.errors import BadRequest, Unsupported
from strom.core.messages import DocumentPart, ImagePart
from strom.protocols.ollama.losses import Losses


def image_data(part: ImagePart, where: str, losses: Losses) -> str:
    """Base64 without a data: prefix. Raises Unsupported for an address or a file id, BadRequest for a broken data URI."""
    if part.detail not in ("", "auto"):
        losses.add("image detail")
    if part.data:
        return part.data
    if part.url.startswith("data:"):
        return split_data_uri(part.url, where)[1]
    what = "an image by address" if part.url else "an image by file id"
    raise Unsupported(f"{where}: {what} cannot be sent to an Ollama backend; send its data.", param="messages")


def document_text(part: DocumentPart, where: str) -> str:
    """The document's name, context and text. Raises Unsupported when it is no text, BadRequest when it is broken."""
    text = part.text or _decoded_text(part, where)
    return "\n".join(piece for piece in (part.name, part.context, text) if piece)


def _decoded_text(part: DocumentPart, where: str) -> str:
    media_type, data = part.media_type, part.data
    address = next((value for value in (part.url, part.data) if value.startswith("data:")), "")
    if address:
        media_type, data = split_data_uri(address, where)
    if not data or not media_type.startswith("text/"):
        kind = media_type or "this kind"
        raise Unsupported(f"{where}: a document of {kind} cannot be sent to an Ollama backend.", param="messages")
    try:
        return b64decode(data, validate=True).decode()
    except ValueError:
        raise BadRequest(f"{where}: the document is not base64 text in UTF-8.", param="messages") from None


def split_data_uri(uri: str, where: str) -> tuple[str, str]:
    """data:TYPE;base64,DATA → (TYPE, DATA). Raises BadRequest for any other."""
    head, comma, data = uri.partition(",")
    media_type, semicolon, encoding = head.removeprefix("data:").partition(";")
    if not comma or not semicolon or not encoding.endswith("base64"):
        raise BadRequest(f"{where}: a data URI must be base64: data:TYPE;base64,…", param="messages")
    return media_type, data
