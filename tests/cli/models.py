"""Models that ``package.module:factory`` names in tests."""

import os
import signal
import time

from rmm_core.errors import LLMError
from rmm_core.testing import HashEmbedder, ScriptedLLM

NO_FACTORY = 3


def wide():
    return HashEmbedder(width=96)


def thinks():
    """Finds one fact, then nothing."""
    return ScriptedLLM('{"extracted_memories": [{"summary": "Bob keeps bees.", "reference": [0]}]}', "NO_TRAIT")


def unreachable():
    """Cannot be asked."""
    return ScriptedLLM(*[LLMError("no route to\nhost\x1b[31m")] * 9)


def broken():
    raise RuntimeError("no weights")


class Interrupted(HashEmbedder):
    """Somebody presses Ctrl-C while it works."""

    def embed(self, texts):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
        return super().embed(texts)
