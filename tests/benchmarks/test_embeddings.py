"""Embeddings kept on disk."""

import numpy as np
import pytest

from benchmarks.embeddings import CachedEmbedder
from rmm_core.testing import HashEmbedder


class Watched(HashEmbedder):
    def __init__(self, width=64):
        super().__init__(width)
        self.seen = []

    def embed(self, texts):
        self.seen += texts
        return super().embed(texts)


def test_a_text_is_embedded_once_and_again_never(tmp_path):
    inner = Watched()
    cached = CachedEmbedder(inner, tmp_path / "e.db")
    inner.seen.clear()
    rows = cached.embed(["b", "a", "b"])
    assert sorted(inner.seen) == ["a", "b"]
    assert np.array_equal(rows, HashEmbedder().embed(["b", "a", "b"]))
    reopened = CachedEmbedder(inner, tmp_path / "e.db")
    inner.seen.clear()
    assert np.array_equal(reopened.embed(["b", "a", "b"]), rows)
    assert inner.seen == []
    assert cached.embed([]).shape == (0, 0)


async def test_event_loops_get_the_same(tmp_path):
    cached = CachedEmbedder(HashEmbedder(), tmp_path / "e.db")
    assert np.array_equal(await cached.aembed(["a"]), cached.embed(["a"]))


def test_two_models_do_not_mix(tmp_path):
    narrow, wide = (CachedEmbedder(HashEmbedder(w), tmp_path / "e.db") for w in (64, 128))
    assert narrow.fingerprint != wide.fingerprint
    assert (narrow.embed(["a"]).shape, wide.embed(["a"]).shape) == ((1, 64), (1, 128))


def test_an_interruption_costs_one_step(tmp_path):
    class Failing(Watched):
        def embed(self, texts):
            if len(self.seen) > 600:
                raise KeyboardInterrupt
            return super().embed(texts)

    texts = [str(i) for i in range(1500)]
    told = []
    with pytest.raises(KeyboardInterrupt):
        CachedEmbedder(Failing(), tmp_path / "e.db", lambda *done: told.append(done)).embed(texts)
    assert told == [(512, 1500), (1024, 1500)]
    inner = Watched()
    CachedEmbedder(inner, tmp_path / "e.db").embed(texts)
    assert len(inner.seen) == 1 + 1500 - 1024
