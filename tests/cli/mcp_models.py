"""Models that a server in a process of its own is told to use."""

import sys
import time

from rmm_core.testing import HashEmbedder, ScriptedLLM


class Chatty(HashEmbedder):
    """Prints where the protocol of a server on standard output would be."""

    def embed(self, texts):
        sys.stdout.write(f"embedding {len(texts)} texts\n")
        return super().embed(texts)


def stuck():
    """A language model that takes longer than anybody waits."""
    return ScriptedLLM(lambda prompt: time.sleep(60) or "NO_TRAIT", seconds=60)
