"""Many prompts at once, async; each has its own reply or error."""

import asyncio

from models import async_model

PROMPTS = [f"One word that rhymes with {word}." for word in ("cat", "tree", "moon")]


async def main() -> None:
    for prompt, result in zip(PROMPTS, await async_model().map(PROMPTS, concurrency=2), strict=True):
        print(prompt, "->", result.reply.text.strip() if result.reply else result.error)


asyncio.run(main())
