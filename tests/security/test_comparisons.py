"""What is secret is compared in constant time, everywhere.

A comparison with == ends at the first difference. So nothing that is named like a secret may be compared so, but with an
empty text, None, a number, or with its like among settings, where no caller waits for the outcome.
"""

from __future__ import annotations

import ast
import hmac
import re
from pathlib import Path

import pytest

from strom.core.access import KeySettings
from strom.core.errors import AuthError
from strom.policies.auth import KeyRing

SOURCE = Path(__file__).resolve().parents[2] / "src" / "strom"
WORDS = "secret|digest|password|passphrase|credential|api_key|sha256|bearer"
SECRET = re.compile(rf"(^|_)({WORDS})(_|s?$)")
MENTIONS = re.compile(rf"({WORDS}).* [!=]= | [!=]= .*({WORDS})")
HARMLESS = {
    "local/weights.py": "the digest of a downloaded file, which everybody may know",
    "shared/mapped.py": "the digest of a counter's name in memory that only this gateway's processes share",
    "upstreams/settings.py": "Secret.__eq__, for settings that are compared with one another",
}


def named_like_a_secret(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return bool(SECRET.search(node.attr))
    return isinstance(node, ast.Name) and bool(SECRET.search(node.id))


def suspicious(path: Path) -> list[int]:
    found = []
    text = path.read_text("utf-8")
    if not MENTIONS.search(text):
        return []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Eq | ast.NotEq):
            continue
        sides = [node.left, *node.comparators]
        if any(isinstance(side, ast.Constant) for side in sides):
            continue
        if any(map(named_like_a_secret, sides)):
            found.append(node.lineno)
    return found


def test_nothing_secret_is_compared_with_an_operator() -> None:
    found = {str(path.relative_to(SOURCE)): suspicious(path) for path in SOURCE.rglob("*.py")}
    assert {name: lines for name, lines in found.items() if lines and name not in HARMLESS} == {}


def test_the_watch_sees() -> None:
    assert named_like_a_secret(ast.parse("self.key_sha256", mode="eval").body)
    assert not named_like_a_secret(ast.parse("self.sha", mode="eval").body)


def test_a_key_of_which_all_but_the_end_is_known_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def watch(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", watch)
    known = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"  # SHA-256 of "secret"
    ring = KeyRing((KeySettings("k", known),), required=True)
    assert ring.authenticate([(b"x-api-key", b"secret")]) is not None
    assert compared, "the right key was found without compare_digest"
    for wrong in (b"secre", b"secret ", b"Secret", b"secrets"):
        with pytest.raises(AuthError):
            ring.authenticate([(b"x-api-key", wrong + b"x")])
