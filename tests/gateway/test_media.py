"""Media by address: fetched only where it is allowed, within limits, and never from a host that is not public."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from strom.core.errors import BadRequest, StromError, TooLarge
from strom.core.messages import DocumentPart, ImagePart, Message, Part, Request, TextPart, ToolResultPart
from strom.gateway.media import MAX_REDIRECTS, MediaFetcher, MediaLimits
from strom.gateway.media_urls import choose_address, is_public, parse_place
from strom.gateway.services import CallSettings
from strom.protocols.codec import Quirks
from strom.transport.connect import ConnectError, TlsContexts
from strom.transport.download import Downloaded, TooLong
from strom.transport.types import Origin, OutgoingRequest
from tests.gateway.rig import Rig
from tests.patience import PATIENCE_S, until

PUBLIC = "93.184.215.14"
PNG = b"\x89PNG\r\n\x1a\nrest"
ON = CallSettings(fetch_media=MediaLimits())


class Net:
    """Names and answers. `answers`: by host and target; `asked`: (address, host, target)."""

    def __init__(self, names: dict[str, Any] | None = None, answers: dict[str, Any] | None = None) -> None:
        self.names = names or {}
        self.answers = answers or {}
        self.asked: list[tuple[str, str, str]] = []
        self.looked_up: list[str] = []
        self.requests: list[OutgoingRequest] = []
        self.hang = False

    async def resolve(self, origin: Origin) -> list[str]:
        self.looked_up.append(origin.host)
        found = self.names.get(origin.host, [PUBLIC])
        if found and isinstance(found[0], list):
            return list(found.pop(0))
        return list(found)

    async def get(
        self, origin: Origin, address: str, request: OutgoingRequest, *, tls: TlsContexts, max_bytes: int
    ) -> Downloaded:
        self.asked.append((address, origin.host, request.target))
        self.requests.append(request)
        if self.hang:
            await asyncio.sleep(2 * PATIENCE_S)
        found = self.answers.get(origin.host + request.target, image())
        if isinstance(found, Exception):
            raise found
        if len(found.body) > max_bytes:
            raise TooLong
        answer: Downloaded = found
        return answer

    def fetcher(self) -> MediaFetcher:
        return MediaFetcher(self.resolve, self.get)


def image(body: bytes = PNG, kind: bytes = b"image/png") -> Downloaded:
    return Downloaded(200, [(b"content-type", kind)], body)


def redirect(location: str, status: int = 302) -> Downloaded:
    return Downloaded(status, [(b"location", location.encode())], b"")


def asking(*parts: Part) -> Request:
    return Request("openai-chat", "m", (Message("user", parts),))


def fill(net: Net, *parts: Part, limits: MediaLimits | None = None) -> tuple[Part, ...]:
    filled = asyncio.run(net.fetcher().fill(asking(*parts), limits or MediaLimits()))
    return filled.messages[0].parts


# --- whom it asks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.18.0.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1",
        "ff02::1", "::ffff:127.0.0.1", "::ffff:93.184.215.14", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::",
        "2001:0:7f00:1::1", "2001:db8::1", "fec0::1", "nonsense", "",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)
    with pytest.raises(BadRequest):
        choose_address([PUBLIC, address], "here")


def test_public_addresses() -> None:
    assert is_public(PUBLIC)
    assert is_public("2606:4700::6810:84e5")
    assert choose_address([PUBLIC], "here") == PUBLIC


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/a", "file:///etc/passwd", "gopher://example.org/", "javascript:1", "//example.org/a", "a.png",
        "http://", "http:///a", "http://user@example.org/a", "http://user:pass@example.org/a", "http://:p@example.org/",
        "http://example.org:99999/", "http://example.org:0/", "http://exa mple.org/", "http://example.org/a\r\nhost: x",
        "http://example.org\\@127.0.0.1/", "http://2130706433/", "http://0x7f000001/", "http://0x7f.0.0.1/",
        "http://0177.0.0.1/", "http://127.1/", "http://127.0.0.1.:0x1/", "http://1/", "http://[::1%25lo]/",
        "http://example.org%00.evil/", "http://[::1", "http://example.0x7f/",
    ],
)  # fmt: skip
def test_addresses_that_are_refused_before_a_look_up(url: str) -> None:
    net = Net()
    with pytest.raises(BadRequest):
        fill(net, ImagePart(url=url))
    assert net.looked_up == []
    assert net.asked == []


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://localhost/"]
)
def test_hosts_that_lead_inside_are_not_connected_to(url: str) -> None:
    host = parse_place(url, "here").origin.host
    net = Net({host: [host if host != "localhost" else "127.0.0.1"]})
    with pytest.raises(BadRequest, match="public"):
        fill(net, ImagePart(url=url))
    assert net.asked == []


def test_places() -> None:
    place = parse_place("HTTPS://Example.ORG:8443/a b/ü?q=1#part".replace(" ", "%20"), "here")
    assert place.origin == Origin("https", "example.org", 8443)
    assert place.target == "/a%20b/%C3%BC?q=1"
    assert parse_place("http://b\u00fccher.example", "here").origin.host == "xn--bcher-kva.example"


def test_a_name_is_looked_up_once_and_its_judged_address_is_used() -> None:
    """A second answer that leads inside is never asked for."""
    net = Net({"evil.example": [[PUBLIC], ["127.0.0.1"]]})
    fill(net, ImagePart(url="http://evil.example/a"))
    assert net.asked == [(PUBLIC, "evil.example", "/a")]
    assert net.looked_up == ["evil.example"]


def test_one_inner_address_among_public_ones_is_enough_to_refuse() -> None:
    net = Net({"mixed.example": [PUBLIC, "::ffff:10.0.0.1"]})
    with pytest.raises(BadRequest, match="public"):
        fill(net, ImagePart(url="http://mixed.example/a"))
    assert net.asked == []


@pytest.mark.parametrize(
    "location", ["http://127.0.0.1/", "http://inside.example/", "http://u:p@ok.example/", "file:///x", "http://0x7f.1/"]
)
def test_every_redirect_is_judged_again(location: str) -> None:
    net = Net({"127.0.0.1": ["127.0.0.1"], "inside.example": ["10.1.1.1"]}, {"ok.example/a": redirect(location)})
    with pytest.raises(BadRequest):
        fill(net, ImagePart(url="http://ok.example/a"))
    assert len(net.asked) == 1


def test_a_redirect_to_the_same_name_looks_it_up_again() -> None:
    net = Net({"ok.example": [[PUBLIC], ["127.0.0.1"]]}, {"ok.example/a": redirect("/b")})
    with pytest.raises(BadRequest, match="public"):
        fill(net, ImagePart(url="http://ok.example/a"))


def test_redirects_are_few() -> None:
    chain: dict[str, Any] = {f"ok.example/{n}": redirect(f"/{n + 1}", 307) for n in range(MAX_REDIRECTS)}
    assert fill(Net(answers=dict(chain)), ImagePart(url="http://ok.example/0"))
    chain[f"ok.example/{MAX_REDIRECTS}"] = redirect("/last", 301)
    with pytest.raises(BadRequest, match="redirects"):
        fill(Net(answers=chain), ImagePart(url="http://ok.example/0"))


def test_nothing_of_the_client_goes_along() -> None:
    net = Net()
    fill(net, ImagePart(url="http://ok.example/a"))
    assert {name for name, _ in net.requests[0].headers} == {b"accept", b"accept-encoding", b"user-agent"}


# --- what it takes -------------------------------------------------------------------------------------


def test_parts_are_filled_wherever_they_stand() -> None:
    pdf = Downloaded(200, [(b"content-type", b"application/octet-stream")], b"%PDF-1.7")
    net = Net(answers={"ok.example/d": pdf, "ok.example/j": image(b"\xff\xd8\xff", b"image/jpg; q=1")})
    remote = ImagePart(url="https://ok.example/i", detail="low")
    data = ImagePart(url="data:image/png;base64,QQ==")
    result = ToolResultPart("c", (TextPart("t"), ImagePart(url="https://ok.example/j")))
    parts = fill(net, TextPart("x"), remote, data, DocumentPart(url="https://ok.example/d", name="n"), result, remote)
    filled = ImagePart("image/png", base64.b64encode(PNG).decode(), detail="low")
    assert parts == (
        TextPart("x"),
        filled,
        data,
        DocumentPart("application/pdf", base64.b64encode(b"%PDF-1.7").decode(), name="n"),
        ToolResultPart("c", (TextPart("t"), ImagePart("image/jpeg", base64.b64encode(b"\xff\xd8\xff").decode()))),
        filled,
    )
    assert len(net.asked) == 3, "the same address is asked once"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (image(kind=b"text/html"), "does not lead to an image"),
        (image(b"GIF", b""), "does not lead to an image"),
        (image(b""), "does not lead to an image"),
        (image(kind=b"application/pdf"), "does not lead to an image"),
        (image(b"<svg/>", b"image/svg+xml"), "does not lead to an image"),
        (Downloaded(404, [], b""), "status 404"),
        (Downloaded(206, [], b""), "status 206"),
        (Downloaded(302, [], b""), "redirects"),
        (ConnectError("connect", "10.0.0.1 refused"), "cannot be fetched"),
        (ValueError("target"), "cannot be asked for"),
    ],
)
def test_answers_that_are_no_image(answer: Any, error: str) -> None:
    with pytest.raises(StromError, match=error) as raised:
        fill(Net(answers={"ok.example/a": answer}), ImagePart(url="http://ok.example/a"))
    assert raised.value.fault == "client"
    assert "10.0.0.1" not in raised.value.message


def test_types_by_their_first_bytes() -> None:
    for body, kind in ((b"RIFF0000WEBPVP8", "image/webp"), (b"GIF89a", "image/gif")):
        part = fill(
            Net(answers={"ok.example/a": image(body, b"binary/octet-stream")}), ImagePart(url="http://ok.example/a")
        )
        assert isinstance(part[0], ImagePart)
        assert part[0].media_type == kind


def test_the_bytes_of_all_media_are_counted_together() -> None:
    limits = MediaLimits(max_bytes=len(PNG) + 3)
    one, two = ImagePart(url="http://ok.example/1"), ImagePart(url="http://ok.example/2")
    assert fill(Net(), one, limits=limits)
    with pytest.raises(TooLarge, match="media_max_bytes"):
        fill(Net(), one, two, limits=limits)


# --- in a call -------------------------------------------------------------------------------------------


def body(*urls: str) -> list[dict[str, Any]]:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [{"role": "user", "content": [{"type": "text", "text": "see"}, *parts]}]


def test_it_is_off_unless_the_operator_says_so() -> None:
    rig = Rig("ollama")
    exchange = rig.call(messages=body("https://ok.example/a"))
    assert exchange.status == 400
    assert b"[server] fetch_media = true" in exchange.body_out
    assert b"p1" in exchange.body_out, "the backend is named"
    assert rig.client.sent == []


def test_too_many_are_refused_at_once() -> None:
    rig = Rig("ollama", settings=CallSettings(fetch_media=MediaLimits(max_items=2)))
    exchange = rig.call(messages=body(*(f"https://ok.example/{n}" for n in range(3))))
    assert exchange.status == 400
    assert b"media_max_items" in exchange.body_out


def test_a_backend_that_takes_addresses_is_sent_them() -> None:
    for behind in ("openai-chat", "openai-responses", "anthropic"):
        rig = Rig(behind, settings=ON)
        rig.call(messages=body("https://ok.example/a"))
        assert b"https://ok.example/a" in rig.upstream().request.body


async def settle(rig: Rig) -> None:
    for _ in range(20):
        if rig.client.sent:
            return
        await asyncio.sleep(0)


@pytest.mark.parametrize(("behind", "quirks"), [("ollama", Quirks()), ("openai-chat", Quirks(media_urls=False))])
async def test_a_backend_that_takes_data_is_sent_data(behind: str, quirks: Quirks) -> None:
    rig = Rig(behind, settings=ON, quirks=quirks)
    net = Net()
    rig.services.media = net.fetcher()
    rig.call(messages=body("https://ok.example/a"))
    assert rig.client.sent == []
    await settle(rig)
    sent = rig.upstream().request.body
    assert base64.b64encode(PNG) in sent
    assert b"ok.example" not in sent
    assert json.loads(sent)["messages"]


async def test_a_failed_fetch_is_the_callers_error() -> None:
    rig = Rig("ollama", settings=ON)
    rig.services.media = Net({"ok.example": []}).fetcher()
    exchange = rig.call(messages=body("https://ok.example/a"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert exchange.status == 400
    assert b"cannot be found" in exchange.body_out
    assert (rig.record.status, rig.record.fault) == ("rejected", "client")


async def test_all_of_it_has_one_time_limit() -> None:
    rig = Rig("ollama", settings=CallSettings(fetch_media=MediaLimits(timeout_s=0.02)))
    net = Net()
    net.hang = True
    rig.services.media = net.fetcher()
    exchange = rig.call(messages=body("https://ok.example/a"))
    await until(lambda: exchange.state == "finished")
    assert exchange.status == 400
    assert b"media_timeout_s" in exchange.body_out


async def test_a_client_that_leaves_ends_the_fetch() -> None:
    rig = Rig("ollama", settings=ON)
    net = Net()
    net.hang = True
    rig.services.media = net.fetcher()
    exchange = rig.call(messages=body("https://ok.example/a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    exchange.disconnect()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert rig.record.status == "cancelled"
    assert rig.client.sent == []
    assert len(asyncio.all_tasks()) == 1


def test_images_for_a_text_only_backend_of_the_same_protocol_are_refused_here() -> None:
    rig = Rig(quirks=Quirks(images=False))
    exchange = rig.call(messages=body("data:image/png;base64,QUJD"))
    assert exchange.status == 400
    assert b"images" in exchange.body_out
    assert rig.client.sent == []
