"""A chat: questions and answers over one session, and the loop that reads them from a terminal.

Ctrl-C ends the answer, not the program; what it had said is not remembered. Ctrl-D or /quit leaves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from strom.cli.chat_input import LineReader, no_echo
from strom.cli.chat_summary import summary, timing
from strom.cli.chat_target import Target, list_names
from strom.cli.chat_view import View
from strom.client.events import (
    StreamCompleted,
    StreamContent,
    StreamError,
    StreamErrorReason,
    StreamEvent,
    StreamPartial,
    StreamThinking,
    StreamToolCall,
    StreamToolResult,
)
from strom.client.model import Model
from strom.client.session import Session, SessionOptions
from strom.core.errors import BadRequest, StromError

HELP = """\
/help            this list
/model [NAME]    ask another model, the conversation stays; without a name: which there are
/clear           forget the conversation
/save FILE       keep it: JSON for --resume, or a text to read if FILE ends with .md
/quit            leave; so does Ctrl-D
Ctrl-C ends an answer. A line that ends with \\ goes on in the next one."""


class Chat:
    """`ask` shows an answer and says whether it is complete; only complete ones are remembered."""

    def __init__(self, target: Target, model: Model, view: View, options: SessionOptions) -> None:
        self.target = target
        self.view = view
        self.model = model
        self._options = options
        self.session: Session = model.session(**options)

    def ask(self, prompt: str) -> bool:
        """Raises StromError for what cannot be asked at all."""
        self.view.begin()
        with no_echo(sys.stdout), self.session.stream(prompt) as stream:
            try:
                return all(self._show(event) for event in stream)
            except KeyboardInterrupt:
                stream.close()
                self.view.end()
                self.view.note(" · ".join(filter(None, ("cancelled", timing(stream.last_stream_metrics)))))
                return False
            finally:
                self.view.end()

    def load(self, path: Path) -> None:
        """Raises BadRequest."""
        try:
            self.session.history.load_json(path.read_bytes())
        except OSError as error:
            raise BadRequest(f"{path} cannot be read: {error.strerror}") from None

    def save(self, path: Path) -> None:
        """Raises BadRequest."""
        try:
            if path.suffix == ".md":
                path.write_text(self._transcript(), encoding="utf-8")
            else:
                self.session.save(path)
        except OSError as error:
            raise BadRequest(f"{path} cannot be written: {error.strerror}") from None

    def switch(self, name: str) -> None:
        """Raises StromError."""
        self.model = self.target.choose(name)
        history = self.session.history
        self.session = self.model.session(**self._options)
        self.session.history = history

    def clear(self) -> None:
        self.session = self.model.session(**self._options)

    def _show(self, event: StreamEvent) -> bool:
        """False: the answer is not complete."""
        match event:
            case StreamContent(text):
                self.view.text(text)
            case StreamThinking(text):
                self.view.thinking(text)
            case StreamToolCall(call):
                self.view.called(call)
            case StreamToolResult(_, result, name, error):
                self.view.returned(name, result, error)
            case StreamPartial():
                pass  # only with into=, which a chat does not ask for
            case StreamCompleted(metadata):
                self.view.end()
                self.view.note(summary(metadata))
            case StreamError(reason, detail, metadata):
                refused = reason is StreamErrorReason.REQUEST_FAILED
                self.view.problem(self.target.locate(detail) if refused else detail)
                if metadata.text:
                    self.view.note(summary(metadata))
                return False
        return True

    def _transcript(self) -> str:
        return "\n".join(f"## {message.role}\n\n{message.text}\n" for message in self.session.messages if message.text)


def run_session(chat: Chat) -> int:
    """Until the user leaves. A question that fails is told, and the next one may come."""
    chat.view.note(f"{chat.model.name} at {chat.target.label} · /help")
    commands = Commands(chat)
    with LineReader() as reader:
        while (line := reader.read()) is not None:
            if not line.strip():
                continue
            try:
                if not line.startswith("/"):
                    chat.ask(line)
                elif not commands.run(line):
                    break
            except StromError as error:
                chat.view.problem(error.message)
            except KeyboardInterrupt:
                chat.view.end()
    return 0


class Commands:
    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._table: dict[str, Callable[[str], None]] = {
            "/help": lambda _: chat.view.note(HELP),
            "/clear": self._clear,
            "/model": self._model,
            "/save": self._save,
        }

    def run(self, line: str) -> bool:
        """False: leave."""
        name, _, argument = line.strip().partition(" ")
        if name in ("/quit", "/exit"):
            return False
        command = self._table.get(name)
        if command is None:
            raise BadRequest(f"There is no {name}; /help lists what there is.")
        command(argument.strip())
        return True

    def _clear(self, _: str) -> None:
        self._chat.clear()
        self._chat.view.note("forgotten")

    def _model(self, name: str) -> None:
        if name:
            self._chat.switch(name)
            self._chat.view.note(f"now {self._chat.model.name}")
            return
        names = list_names(self._chat.target) or [self._chat.model.name]
        self._chat.view.note("\n".join(f"{'*' if found == self._chat.model.name else ' '} {found}" for found in names))

    def _save(self, name: str) -> None:
        if not name:
            raise BadRequest("Say where: /save FILE")
        path = Path(name).expanduser()
        self._chat.save(path)
        self._chat.view.note(f"saved to {path}")
