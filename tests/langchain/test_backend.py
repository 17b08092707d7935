"""LangChain's models as the core's: what they are asked, and what comes back."""

import asyncio

import numpy as np
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.language_models import BaseChatModel, FakeListLLM
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from pydantic import PrivateAttr

from langchain_rmm import ChatModelLLM, EmbeddingsEmbedder
from rmm_core import LLM, Embedder
from rmm_core.prompts import EXTRACTION_SCHEMA
from rmm_core.testing import HashEmbedder
from tests.langchain.conftest import ScriptedChatModel

ABLE = {"structured_output": True}


class Refusing(ScriptedChatModel):
    """Notes the constraints it is given, and refuses them when told to."""

    refuses: bool = True
    _given: list = PrivateAttr(default_factory=list)

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self._note(kwargs)
        return super()._generate(messages)

    async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
        self._note(kwargs)
        return await super()._agenerate(messages)

    def _note(self, kwargs):
        self._given.append(kwargs.get("response_format"))
        if self.refuses and "response_format" in kwargs:
            raise ValueError("response_format is not supported")

    @property
    def given(self):
        return [g is not None for g in self._given]


class Words(Embeddings):
    def __init__(self, error=None):
        self.error = error

    def embed_documents(self, texts):
        if self.error:
            raise self.error
        return HashEmbedder().embed(texts).tolist()

    def embed_query(self, text):
        raise AssertionError("queries lie in the same space as memories")


def asked(llm, blocking, schema=EXTRACTION_SCHEMA):
    """Asks either way."""
    return llm.complete("?", schema=schema) if blocking else asyncio.run(llm.acomplete("?", schema=schema))


with_profiles = pytest.mark.skipif(
    "profile" not in BaseChatModel.model_fields, reason="profiles come with langchain-core 1.1"
)
both = pytest.mark.parametrize("blocking", [True, False])


def test_they_are_what_the_core_asks_for(model):
    assert isinstance(ChatModelLLM(model), LLM)
    assert isinstance(EmbeddingsEmbedder(Words()), Embedder)


@both
@pytest.mark.parametrize("reply", ["Bees.", AIMessage([{"type": "reasoning", "reasoning": "hm"}, "Bees."])])
def test_a_reply_is_its_text(model, blocking, reply):
    model.enqueue(reply)
    assert asked(ChatModelLLM(model), blocking) == "Bees."
    assert [m.text for m in model.history[0]] == ["?"]


@with_profiles
@both
@pytest.mark.parametrize(
    ("profile", "schema", "constrained"),
    [
        (ABLE, EXTRACTION_SCHEMA, True),
        (ABLE, None, False),
        ({"structured_output": False}, EXTRACTION_SCHEMA, False),
        ({}, EXTRACTION_SCHEMA, False),
        (None, EXTRACTION_SCHEMA, False),
    ],
)
def test_a_schema_is_a_constraint_where_the_profile_says_it_can_be(blocking, profile, schema, constrained):
    model = Refusing(refuses=False, profile=profile).enqueue("{}")
    assert asked(ChatModelLLM(model), blocking, schema) == "{}"
    assert model.given == [constrained]
    if constrained:
        assert model._given[0]["json_schema"]["schema"] == EXTRACTION_SCHEMA
        assert model._given[0]["type"] == "json_schema"


@with_profiles
@both
def test_a_refused_constraint_is_not_tried_again(blocking):
    model = Refusing(profile=ABLE).enqueue("one", "two", "three")
    llm = ChatModelLLM(model)
    assert [asked(llm, blocking) for _ in range(3)] == ["one", "two", "three"]
    assert model.given == [True, False, True, False, False]  # once may have been bad luck


@with_profiles
@both
def test_an_outage_is_no_refusal(blocking):
    model = Refusing(profile=ABLE, refuses=False).enqueue(ConnectionError("a"), ConnectionError("b"), "back")
    llm = ChatModelLLM(model)
    with pytest.raises(ConnectionError, match="b"):
        asked(llm, blocking)
    assert asked(llm, blocking) == "back"
    assert model.given == [True, False, True]


def test_other_runnables_are_models_too(model):
    model.enqueue("one", ConnectionError("no line"), "two")
    assert ChatModelLLM(model | StrOutputParser()).complete("?") == "one"
    assert ChatModelLLM(model.with_retry(wait_exponential_jitter=False)).complete("?") == "two"
    assert ChatModelLLM(FakeListLLM(responses=["three"])).complete("?", schema=EXTRACTION_SCHEMA) == "three"


@with_profiles
def test_a_constraint_reaches_the_model_inside_of_a_runnable():
    first, spare = (Refusing(profile=ABLE, refuses=r) for r in (True, False))
    llm = ChatModelLLM(first.with_fallbacks([spare.enqueue("{}")]))
    assert llm.complete("?", schema=EXTRACTION_SCHEMA) == "{}"
    assert (first.given, spare.given) == ([True], [True])


async def test_embeddings():
    embedder, texts = EmbeddingsEmbedder(Words()), ["bees", "goats in Linz"]
    rows = embedder.embed(texts)
    assert (rows.shape, rows.dtype) == ((2, 64), np.float32)
    assert np.array_equal(rows, await embedder.aembed(texts))
    assert EmbeddingsEmbedder(DeterministicFakeEmbedding(size=8)).embed(["a"]).shape == (1, 8)
