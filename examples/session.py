"""A conversation that remembers, and may be saved."""

from models import model

session = model().session(system="You answer in one sentence.", max_context=8000)
print(session.send("My name is Ann.").text)
for text in session.stream("What is my name?").text():
    print(text, end="", flush=True)
print(f"\n{len(session.messages)} messages, {len(session.to_json())} bytes to keep")
