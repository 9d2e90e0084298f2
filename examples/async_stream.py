"""A stream in an async program. Cancelling the task that reads it closes the exchange."""

import asyncio

from models import async_model


async def main() -> None:
    async with async_model().stream("Tell me about the sea.") as stream:
        async for event in stream:
            if event.type == "content":
                print(event.text, end="", flush=True)
        reply = await stream.reply()
    print(f"\n[{reply.finish_reason}, {reply.usage}]")


asyncio.run(main())
