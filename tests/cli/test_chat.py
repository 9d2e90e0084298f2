"""`strom chat`: on a pipe, on a terminal, in a session; whom it asks; what it remembers; exit codes."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from strom.cli.chat_markdown import last_block_line
from strom.cli.chat_summary import summary, timing
from strom.cli.chat_target import Target, Where, open_target
from strom.cli.chat_view import PlainView, View, clean, make_view
from strom.client.evidence import CompletionMetadata, StreamMetrics, ToolCall
from strom.core.errors import BadRequest, ConfigError
from strom.core.record import Cost
from strom.core.usage import Usage
from tests.cli.conftest import Outcome, Served, Strom
from tests.cli.terminal import Terminal
from tests.client.loopback import Loopback
from tests.patience import wait_until


@pytest.fixture
def backend() -> Iterator[Loopback]:
    with Loopback() as running:
        yield running


@pytest.fixture(autouse=True)
def _nothing_piped_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


# --- one answer, on a pipe -----------------------------------------------------------------------


def test_one_answer_is_plain_text_and_nothing_else(strom: Strom, backend: Loopback) -> None:
    assert strom("chat", "--backend", backend.url, "-m", "m", "one two") == Outcome(0, "one two \n", "")
    assert backend.requests[-1]["model"] == "m"


def test_words_need_no_quotes(strom: Strom, backend: Loopback) -> None:
    assert strom("chat", "--backend", backend.url, "-m", "m", "one", "two").out == "one two \n"


def test_the_first_listed_model_is_asked(strom: Strom, backend: Loopback) -> None:
    assert strom("chat", "--backend", backend.url, "hello").code == 0
    assert backend.requests[-1]["model"] == "m1"


def test_what_is_piped_in_stands_below_the_prompt(
    strom: Strom, backend: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("the text\n"))
    assert strom("chat", "--backend", backend.url, "-m", "m", "summarise").code == 0
    assert backend.requests[-1]["messages"] == [{"role": "user", "content": "summarise\n\nthe text"}]


def test_what_is_piped_in_may_be_all(strom: Strom, backend: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("one two\n"))
    assert strom("chat", "--backend", backend.url, "-m", "m").out == "one two \n"


def test_piped_bytes_that_are_no_text(strom: Strom, backend: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe\x00"), encoding="utf-8"))
    shown = strom("chat", "--backend", backend.url, "-m", "m", "what is this")
    assert (shown.code, shown.err) == (1, "Error: standard input is not UTF-8 text\n")


def test_settings_reach_the_request(strom: Strom, backend: Loopback) -> None:
    flags = ["--system", "Be brief.", "--temperature", "0.5", "--max-tokens", "9"]
    strom("chat", "--backend", backend.url, "-m", "m", *flags, "hello")
    body = backend.requests[-1]
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (body["temperature"], body["max_tokens"]) == (0.5, 9)


# --- what is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "a PROMPT"),
        (["--backend", "http://h", "--url", "http://h", "hi"], "exclude"),
        (["--backend", "http://h", "--backend", "http://i", "hi"], "one --backend"),
        (["--backend", "http://h", "--key-env", "K", "hi"], "--api-key-env"),
        (["--protocol", "ollama", "hi"], "needs a --backend"),
        (["--max-tokens", "0", "hi"], "--max-tokens"),
    ],
)
def test_wrong_usage_is_2(strom: Strom, arguments: list[str], words: str) -> None:
    shown = strom("chat", *arguments)
    assert shown.code == 2
    assert words in shown.err


def test_a_server_that_is_not_there(strom: Strom, free_port: int) -> None:
    url = f"http://127.0.0.1:{free_port}"
    expected = f"strom: generic cannot be reached. Is it running? ({url})\n"
    assert strom("chat", "--backend", url, "-m", "m", "hi") == Outcome(1, "", expected)
    assert strom("chat", "--url", url, "hi") == Outcome(1, "", expected)


def test_a_refusal_is_1_and_says_why(strom: Strom, backend: Loopback) -> None:
    shown = strom("chat", "--backend", backend.url, "-m", "m", "refuse")
    assert (shown.code, shown.out) == (1, "")
    assert shown.err.startswith("strom: ")
    assert backend.url in shown.err


def test_a_key_that_is_not_set(strom: Strom, backend: Loopback) -> None:
    shown = strom("chat", "--backend", backend.url, "--api-key-env", "NO_SUCH_KEY", "hi")
    assert (shown.code, shown.err) == (1, "strom: the environment variable NO_SUCH_KEY is not set\n")


def test_a_file_that_is_no_session(strom: Strom, backend: Loopback, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    where = ["chat", "--backend", backend.url, "-m", "m", "--resume", str(path), "hi"]
    assert "cannot be read" in strom(*where).err
    path.write_text("{}")
    assert strom(*where).code == 1


# --- whom it asks --------------------------------------------------------------------------------


def test_a_key_goes_to_the_gateway_it_is_for(strom: Strom, backend: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "sk-1")
    with open_target(Where(url=backend.url, key_env="MINE"), {}) as target:
        assert target._places["gateway"]["api_key"] == "sk-1"
    with open_target(Where(url=backend.url), {"STROM_KEY": "sk-2"}) as target:
        assert target._places["gateway"]["api_key"] == "sk-2"
    assert strom("chat", "--url", backend.url, "hello").code == 0


def test_without_a_gateway_a_provider_in_the_name_is_asked_directly(free_port: int) -> None:
    environ = {"STROM_PORT": str(free_port)}
    with open_target(Where("ollama/qwen3"), environ) as target:
        model = target.choose("ollama/qwen3")
    assert (model.provider, model.model) == ("ollama", "qwen3")


class Gateway(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("x-strom-trace-id", "t")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_gateway_that_answers_comes_before_a_provider_in_the_name() -> None:
    with HTTPServer(("127.0.0.1", 0), Gateway) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with open_target(Where("ollama/qwen3"), {"STROM_PORT": str(server.server_port)}) as target:
            assert target.choose("ollama/qwen3").model == "ollama/qwen3"
        thread.join()


def test_another_server_on_its_port_is_no_gateway(served: Served) -> None:
    environ = {"STROM_PORT": served.url.rpartition(":")[2]}
    with open_target(Where("ollama/qwen3"), environ) as target:
        assert target.label == "the provider table"
    with pytest.raises(ConfigError, match="No gateway answers"), open_target(Where(key_env="K"), environ):
        pass


def test_names_of_several_servers() -> None:
    target = Target("two", {"a": {"base_url": "http://a"}, "b": {"base_url": "http://b"}}, "b/m")
    target.names = lambda: ["a/x", "b/m"]  # type: ignore[method-assign]
    assert "http://b" in repr(target.choose(None))
    assert "http://a" in repr(target.choose("x"))
    assert "http://a" in repr(target.choose("a/y/z"))
    with pytest.raises(BadRequest, match="Which server has 'q'"):
        target.choose("q")


# --- tools ---------------------------------------------------------------------------------------


def test_functions_of_a_file_are_tools(strom: Strom, backend: Loopback, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from json import dumps\ndef f(a: int) -> str:\n    'A tool.'\n    return f'got {a}'\ndef _g(): ...\n"
    )
    shown = strom("chat", "--backend", backend.url, "-m", "m", "--tools", str(path), "go")
    assert (shown.code, shown.out) == (0, "got 1 \n")
    assert [tool["function"]["name"] for tool in backend.requests[0]["tools"]] == ["f"]


@pytest.mark.parametrize(
    ("source", "words"),
    [("x = 1", "no public function"), ("def f(:", "SyntaxError"), ("import no_such_thing", "ModuleNotFoundError")],
)
def test_a_file_of_tools_that_cannot_be_used(strom: Strom, tmp_path: Path, source: str, words: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(source)
    shown = strom("chat", "--backend", "http://h", "-m", "m", "--tools", str(path), "go")
    assert shown.code == 1
    assert words in shown.err


# --- on a terminal -------------------------------------------------------------------------------


def test_a_session_with_its_commands(backend: Loopback, tmp_path: Path) -> None:
    with Terminal("chat", "--backend", backend.url, "-m", "m", folder=tmp_path) as terminal:
        terminal.wait_for("> ")
        terminal.type("one two\r")
        assert "first token" in terminal.wait_for("out tokens")
        terminal.type("/help\r")
        terminal.wait_for("/quit")
        terminal.type("/model\r")
        terminal.wait_for("m2")
        terminal.type("/model m2\r")
        terminal.wait_for("now m2")
        terminal.type("three\r")
        terminal.wait_for("out tokens")
        terminal.type("/save s.json\r")
        terminal.wait_for("saved")
        terminal.type("/save s.md\r")
        terminal.wait_for("saved")
        terminal.type("/clear\r")
        terminal.wait_for("forgotten")
        terminal.type("four\r")
        terminal.wait_for("out tokens")
        terminal.type("/wrong\r")
        terminal.wait_for("There is no /wrong")
        terminal.type("/quit\r")
        assert terminal.ended() == 0
    asked = [body for body in backend.requests if body]
    assert [(body["model"], len(body["messages"])) for body in asked] == [("m", 1), ("m2", 3), ("m2", 1)]
    assert len(json.loads((tmp_path / "s.json").read_bytes())["turns"]) == 2
    assert "## assistant\n\none two" in (tmp_path / "s.md").read_text()
    history = tmp_path / "state" / "strom" / "chat_history"
    assert "one two" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_a_saved_session_goes_on(strom: Strom, backend: Loopback, tmp_path: Path) -> None:
    with Terminal("chat", "--backend", backend.url, "-m", "m", folder=tmp_path) as terminal:
        terminal.wait_for("> ")
        terminal.type("one two\r")
        terminal.wait_for("out tokens")
        terminal.type("/save s.json\r")
        terminal.wait_for("saved")
        terminal.wait_for("> ")  # an end of input that comes between two prompts belongs to nobody
        terminal.type("\x04")
        assert terminal.ended() == 0
    strom("chat", "--backend", backend.url, "-m", "m", "--resume", str(tmp_path / "s.json"), "three")
    assert [message["role"] for message in backend.requests[-1]["messages"]] == ["user", "assistant", "user"]


def test_ctrl_c_ends_the_answer_and_not_the_program(backend: Loopback, tmp_path: Path) -> None:
    with Terminal("chat", "--backend", backend.url, "-m", "m", folder=tmp_path) as terminal:
        terminal.wait_for("> ")
        terminal.type("hang\r")
        terminal.wait_for("first")
        terminal.type("\x03")
        terminal.wait_for("cancelled")
        wait_until(lambda: backend.open == 0)
        terminal.wait_for("> ")
        terminal.type("\x03")
        terminal.wait_for("> ")
        terminal.type("two\r")
        terminal.wait_for("out tokens")
        terminal.type("/quit\r")
        assert terminal.ended() == 0
    assert len(backend.requests[-1]["messages"]) == 1  # the cancelled answer is not remembered


def test_ctrl_c_of_the_only_answer_is_1(backend: Loopback, tmp_path: Path) -> None:
    with Terminal("chat", "--backend", backend.url, "-m", "m", "hang", folder=tmp_path) as terminal:
        terminal.wait_for("first")
        terminal.type("\x03")
        terminal.wait_for("cancelled")
        assert terminal.ended() == 1


def test_no_color_means_no_escape_at_all(backend: Loopback, tmp_path: Path) -> None:
    arguments = ["chat", "--backend", backend.url, "-m", "m", "**one** two"]
    with Terminal(*arguments, folder=tmp_path, NO_COLOR="1") as terminal:
        assert terminal.ended() == 0
        assert "**one** two" in terminal.seen
        assert "first token" in terminal.seen
        assert "\x1b" not in terminal.seen


def test_markdown_is_rendered(backend: Loopback, tmp_path: Path) -> None:
    with Terminal("chat", "--backend", backend.url, "-m", "m", "**one** two", folder=tmp_path) as terminal:
        assert terminal.ended() == 0
        assert "\x1b[1mone" in terminal.seen
        assert "**one** two" not in terminal.seen


# --- the parts -----------------------------------------------------------------------------------


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def play(view: View) -> None:
    view.begin()
    view.thinking("hm\x1b[2J")
    view.called(ToolCall("c", "f", {"a": 1}))
    view.returned("f", "x" * 400, None)
    view.returned("f", None, "broken")
    view.text("answer\x1b[31m")
    view.end()
    view.note("done")
    view.problem("bad")
    view.end()


def test_a_pipe_sees_the_text_alone_and_unchanged() -> None:
    out, err = io.StringIO(), io.StringIO()
    play(make_view(out, err, {}))
    assert (out.getvalue(), err.getvalue()) == ("answer\x1b[31m\n", "strom: bad\n")


def test_notes_go_to_whoever_looks() -> None:
    out, err = io.StringIO(), Screen()
    play(make_view(out, err, {}))
    assert out.getvalue() == "answer\x1b[31m\n"
    assert '→ f {"a": 1}\n' in err.getvalue()
    assert "← f failed: broken\n" in err.getvalue()
    assert "x …\n" in err.getvalue()


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_without_colour(environ: dict[str, str]) -> None:
    out, err = Screen(), Screen()
    play(make_view(out, err, environ))
    assert out.getvalue().startswith("[thinking] hm\ufffd[2J\n→ f")
    assert "\x1b" not in out.getvalue() + err.getvalue()


def test_a_terminal_without_rich_dims_what_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "strom.cli.chat_markdown", None)
    out = Screen()
    view = make_view(out, Screen(), {"TERM": "xterm"})
    assert isinstance(view, PlainView)
    play(view)
    assert out.getvalue().startswith("\x1b[2mhm\ufffd[2J\x1b[0m\n\x1b[2m→ f")
    assert "answer\ufffd[31m\n" in out.getvalue()


def test_the_markdown_view_shows_everything() -> None:
    out = Screen()
    play(make_view(out, Screen(), {"TERM": "xterm", "COLUMNS": "80"}))
    for words in ("hm\ufffd", "→ f", "failed: broken", "answer\ufffd", "done", "strom: bad"):
        assert words in out.getvalue()
    assert "\x1b[2J" not in out.getvalue()


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("", 0),
        ("one", 0),
        ("one\n\ntwo", 2),
        ("# a\nb", 1),
        ("```\na\n\nb\n\nc", 0),
        ("1. a\n\n2. b\n\n   c", 0),
        ("a\n\n```\nb\n```\n\nc", 6),
        ("| a |\n|---|\n| 1 |", 0),
    ],
)
def test_only_blocks_that_nothing_can_change_are_final(source: str, line: int) -> None:
    assert last_block_line(source) == line


def test_control_characters_are_made_visible() -> None:
    assert clean("a\tb\r\nc\x1b]0;x\x07\x9b") == "a\tb\nc\ufffd]0;x\ufffd\ufffd"


def test_the_summary_shows_what_is_known() -> None:
    metadata = CompletionMetadata(
        finish_reason="stop",
        provider_model="m",
        usage=Usage(10, 101),
        timing=StreamMetrics(200.0, "content", 2200.0),
        cost=Cost(0.5, "EUR", 0.1, 0.4),
        requests=1,
    )
    shown = "stop · m · first token 200 ms · 2.2 s · 10 in, 101 out tokens · 50.0 tokens/s · 0.5000 EUR"
    assert summary(metadata) == shown
    assert summary(CompletionMetadata(usage=Usage(None, 3))) == "? in, 3 out tokens"
    assert summary(CompletionMetadata(usage=Usage())) == ""
    assert timing(StreamMetrics()) == ""
