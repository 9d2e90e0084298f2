"""Another model when the first cannot be reached; and what was tried, in order."""

from models import model

import strom

nobody = strom.Model("nobody", base_url="http://127.0.0.1:9")  # nothing listens there
reply = nobody.complete("Tell me about the sea.", fallbacks=[model()])
print(reply.text)
for attempt in reply.metadata.attempts:
    print(f"{attempt.model}: {attempt.outcome}")
