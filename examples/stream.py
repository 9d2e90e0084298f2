"""Text as it comes, and the proof that it is complete."""

from models import model

import strom

with model().stream("Tell me a story in three sentences.") as stream:
    for event in stream:
        match event:
            case strom.StreamContent(text=text):
                print(text, end="", flush=True)
            case strom.StreamCompleted(metadata=metadata):
                print(f"\n[{metadata.finish_reason}, first token after {metadata.time_to_first_token_ms:.0f} ms]")
            case strom.StreamError(reason=reason, detail=detail):
                print(f"\n[no complete answer: {reason}, {detail}]")
