"""What LlamaIndex tests share."""

import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import ChatMessage, ChatResponse, CompletionResponse, CustomLLM, LLMMetadata
from pydantic import PrivateAttr

from rmm_core.testing import HashEmbedder, ScriptedLLM


class ScriptedIndexLLM(CustomLLM):
    """The core's scripted model as one of LlamaIndex's."""

    _script: ScriptedLLM = PrivateAttr(default_factory=ScriptedLLM)

    @property
    def script(self):
        return self._script

    @property
    def metadata(self):
        return LLMMetadata(model_name="scripted")

    def complete(self, prompt, formatted=False, **kwargs):
        return CompletionResponse(text=self._script.complete(prompt))

    def stream_complete(self, prompt, formatted=False, **kwargs):
        raise NotImplementedError

    def chat(self, messages, **kwargs):
        text = self._script.complete("\n".join(m.content for m in messages))
        return ChatResponse(message=ChatMessage(text, role="assistant"))

    async def achat(self, messages, **kwargs):
        text = await self._script.acomplete("\n".join(m.content for m in messages))
        return ChatResponse(message=ChatMessage(text, role="assistant"))


class HashEmbedding(BaseEmbedding):
    """The core's embedder without weights as one of LlamaIndex's."""

    def _get_text_embedding(self, text):
        return HashEmbedder().embed([text])[0].tolist()

    def _get_query_embedding(self, query):
        raise AssertionError("queries lie in the same space as memories")

    async def _aget_query_embedding(self, query):
        raise AssertionError("queries lie in the same space as memories")


@pytest.fixture
def index_llm():
    return ScriptedIndexLLM()


@pytest.fixture
def told(memory):
    """Lets a user have said something in an earlier session."""

    def told_(user_id, *texts):
        with memory.chat(user_id, session_id="before") as chat:
            for text in texts:
                chat.record(text, "Understood.")

    return told_
