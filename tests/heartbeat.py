"""Tells whether an event loop stood still."""

import asyncio
from contextlib import asynccontextmanager

from rmm_core.testing import HashEmbedder

NAP = 0.25
"""How long slow models sleep, in seconds."""


class Sleepy(HashEmbedder):
    """Takes a nap before it embeds, and never blocks."""

    async def aembed(self, texts):
        await asyncio.sleep(NAP)
        return super().embed(texts)

    def embed(self, texts):
        raise AssertionError("the blocking method was called on an event loop")


@asynccontextmanager
async def heartbeat():
    """Fails when the loop stood still for most of a nap."""
    gaps = []

    async def beat():
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(0.01)
            now = loop.time()
            gaps.append(now - last)
            last = now

    task = asyncio.create_task(beat())
    await asyncio.sleep(0)
    yield
    task.cancel()
    assert len(gaps) >= 10, "nothing slept: this test cannot fail"
    assert max(gaps) < 0.8 * NAP, f"the loop stood still for {max(gaps):.2f} s"
