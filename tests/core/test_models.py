"""Embeddings on this machine, and models whose packages are missing."""

import asyncio
import builtins

import numpy as np
import pytest

from rmm_core import EmbedderError, MissingDependencyError
from rmm_core.models import OpenAIEmbedder, OpenAILLM, SentenceTransformerEmbedder

pytestmark = pytest.mark.enable_socket


@pytest.fixture(scope="module")
def minilm():
    from _models import bundled_embedder

    return bundled_embedder()


def test_sentences_that_mean_the_same_are_near(minilm):
    rows = minilm.embed(["I own a dog", "a puppy lives with me", "the stock market fell"])
    assert rows.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=1e-5)
    assert rows[0] @ rows[1] > rows[0] @ rows[2] + 0.2
    np.testing.assert_allclose(asyncio.run(minilm.aembed(["I own a dog"])), rows[:1], atol=1e-5)


def test_the_end_of_a_long_text_is_found(minilm):
    long = "We talked about the weather and the traffic. " * 60 + "My grandmother collects antique typewriters."
    other = "We talked about the weather and the traffic. " * 61
    query, with_end, without = minilm.embed(["antique typewriters", long, other])
    assert query @ with_end > query @ without + 0.05
    assert minilm.embed([""]).shape == (1, 384)
    assert minilm.embed(["x" * 5000]).shape == (1, 384)


@pytest.mark.parametrize("filler", ["今天天气很好我们去公园散步", "วันนี้อากาศดีมากเราไปเดินเล่น"], ids=["zh", "th"])
def test_the_end_of_a_text_without_spaces_counts(minilm, filler):
    first, second = minilm.embed([filler * 60 + "我对花生过敏。", filler * 60 + "我的猫叫汤姆。"])
    assert first @ second < 0.9999
    assert minilm.embed([]).shape[0] == 0


def test_a_model_that_is_not_there(tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(EmbedderError, match="cannot load the embedding model"):
        SentenceTransformerEmbedder(tmp_path / "model").embed(["x"])


@pytest.mark.parametrize(
    ("package", "use", "extra"),
    [
        ("sentence_transformers", lambda: SentenceTransformerEmbedder("x").embed(["x"]), "local"),
        ("openai", lambda: OpenAILLM("x"), "openai"),
        ("openai", lambda: OpenAIEmbedder("x"), "openai"),
    ],
)
def test_a_missing_extra_is_named(monkeypatch, package, use, extra):
    real = builtins.__import__

    def without(name, *rest):
        if name == package:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDependencyError, match=rf"pip install 'reflective-memory\[{extra}\]'"):
        use()
