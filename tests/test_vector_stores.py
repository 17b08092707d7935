"""The vector stores that people have, as what finds memories: in step, apart by user, empty when told to."""

import os
from importlib.util import find_spec

import numpy as np
import pytest
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore

import langchain_rmm
import llamaindex_rmm
from rmm_core import ConfigError, StoreError
from rmm_core.protocols import BankChange, Entry
from rmm_core.testing import HashEmbedder
from rmm_core.testing._samples import LOOKALIKES, a_memory
from tests.conftest import Clock
from tests.vector_stores import STORES, HashEmbeddings, open_with


@pytest.fixture(params=STORES)
def vector_store(request):
    adapter, made = STORES[request.param]
    with made(request) as (store, count):
        yield adapter, store, count


@pytest.fixture
def memory(vector_store, tmp_path):
    adapter, store, _ = vector_store
    memory = open_with(adapter, tmp_path / "memory.db", store, clock=Clock())
    yield memory
    memory.store.close()


@pytest.fixture
def count(vector_store):
    return vector_store[2]


def entry(user, name, text, *refs, kind="topic"):
    (vector,) = HashEmbedder().embed([text])
    return Entry(a_memory(user, name, text, *refs, kind=kind), np.asarray(vector, dtype=np.float32))


def fill(memory, user, *texts, kind="topic"):
    """A bank of what was said, a memory a sentence."""
    chat = memory.chat(user, session_id="s")
    for text in texts:
        chat.record(text, "Noted")
    found = [entry(user, f"m{i}", text, ("s", 2 * i), kind=kind) for i, text in enumerate(texts)]
    memory.store.commit(user, BankChange(memory.store.bank_version(user), tuple(found)))


SAID = ("I keep bees in the garden", "My sister plays the cello", "The red kite came back", "I moved to Graz in May")


def nearest(memory, user, text, limit=2, kind=None):
    (vector,) = HashEmbedder().embed([text])
    return list(memory.store.source.nearest(user, np.asarray(vector, dtype=np.float32), limit, kind))


@pytest.mark.skipif("CI" not in os.environ, reason="elsewhere they may be missing")
def test_the_stores_on_a_server_are_tried():
    assert find_spec("langchain_postgres")
    assert find_spec("llama_index.vector_stores.postgres")


def test_it_finds_what_our_own_search_finds(memory, count):
    fill(memory, "ann", *SAID)
    fill(memory, "bob", "I keep bees on the roof", kind="unfiled")
    assert count() == 5
    for i, text in enumerate(SAID):
        assert nearest(memory, "ann", text)[0] == f"m{i}"
        (vector,) = HashEmbedder().embed([text])
        ours = [c.memory.id for c in memory.store.inner.search("ann", vector, limit=1)]
        assert [c.memory.id for c in memory.store.search("ann", vector, limit=1)] == ours
    assert nearest(memory, "bob", SAID[0], kind="unfiled") == ["m0"]
    assert nearest(memory, "bob", SAID[0], kind="topic") == nearest(memory, "eve", SAID[0]) == []
    assert memory.recall("ann", "Who plays the cello?").shown[0].memory.id == "m1"


def test_what_is_changed_is_found_as_it_is_now(memory, count):
    fill(memory, "ann", *SAID)
    change = BankChange(memory.store.bank_version("ann"), (entry("ann", "m0", "A zebra escaped", ("s", 0)),), ("m1",))
    memory.store.commit("ann", change)
    assert count() == 3
    assert nearest(memory, "ann", "A zebra escaped", 1) == ["m0"]
    assert "m1" not in nearest(memory, "ann", SAID[1], 9)


def test_users_that_look_alike_stay_apart(memory, count):
    for user in LOOKALIKES:
        fill(memory, user, f"the secret of {user}\x00")
    assert count() == len(LOOKALIKES)
    for user in LOOKALIKES:
        (vector,) = HashEmbedder().embed(["the secret"])
        assert nearest(memory, user, "the secret", 50) == ["m0"]
        assert [c.memory.user_id for c in memory.store.search(user, vector, text="secret", limit=50)] == [user]
    for user in LOOKALIKES[::2]:
        memory.forget_user(user)
    assert count() == len(LOOKALIKES[1::2])
    assert all(nearest(memory, user, "the secret") == ["m0"] for user in LOOKALIKES[1::2])


def test_erasure_leaves_nothing_there(memory, count):
    fill(memory, "ann", *SAID)
    memory.delete("ann", "m0")
    assert count() == 3
    orphan = entry("ann", "of no bank", "what our database does not know any more")
    memory.store.source.put("ann", [orphan])
    fill(memory, "bob", *SAID)
    assert memory.forget_user("ann").memories == 3
    assert count() == 4
    assert memory.forget_user("ann").memories == 0


def test_a_bank_that_was_there_before(memory, count):
    fill(memory, "ann", *SAID)
    memory.store.source.forget("ann")
    assert (count(), memory.sync(), count(), memory.sync("ann"), count()) == (0, 4, 4, 4, 4)


def test_what_else_is_in_the_store_is_neither_found_nor_touched(memory, vector_store, count):
    adapter, store, _ = vector_store
    if adapter is langchain_rmm:
        store.add_texts([SAID[0]], metadatas=[{"source": "mine"}])
    else:
        store.add([TextNode(text=SAID[0], embedding=HashEmbedder().embed([SAID[0]])[0].tolist())])
    fill(memory, "ann", *SAID)
    assert nearest(memory, "ann", SAID[0], 9)[0] == "m0"
    memory.forget_user("ann")
    assert count() == 1


# -- what does not fit -------------------------------------------------------------------


class Other(HashEmbeddings):
    def embed_documents(self, texts):
        return [[-x for x in row] for row in super().embed_documents(texts)]


class Narrow(HashEmbeddings):
    def embed_documents(self, texts):
        return [row[:8] for row in super().embed_documents(texts)]


class Away(HashEmbeddings):
    def embed_documents(self, texts):
        raise ConnectionError("no line")


def test_another_model_than_the_memorys_is_refused(tmp_path, caplog):
    for other in (Other(), Narrow()):
        with pytest.raises(ConfigError, match="another model"):
            langchain_rmm.open_memory(
                tmp_path / "m.db", embeddings=HashEmbedder(), vector_store=InMemoryVectorStore(other)
            )
    assert list(tmp_path.iterdir()) == []
    for good in (HashEmbeddings(), Away()):
        source = langchain_rmm.VectorStoreSource(InMemoryVectorStore(good))
        langchain_rmm.open_memory(":memory:", embeddings=HashEmbedder(), vector_store=source).close()
    assert "could not be checked" in caplog.text


def test_what_is_no_vector_store_is_refused():
    with pytest.raises(ConfigError, match="LangChain VectorStore; got str"):
        langchain_rmm.open_memory(":memory:", embeddings=HashEmbedder(), vector_store="faiss")
    with pytest.raises(ConfigError, match="LlamaIndex vector store; got str"):
        llamaindex_rmm.open_memory(":memory:", embed_model=HashEmbedder(), vector_store="faiss")

    class NoTexts(SimpleVectorStore):
        delete_nodes = BasePydanticVectorStore.delete_nodes

    with pytest.raises(ConfigError, match="cannot tell users' memories apart"):
        llamaindex_rmm.VectorStoreSource(NoTexts())


def test_a_store_that_does_not_do_as_it_says(clock):
    class Keeps(InMemoryVectorStore):
        def delete(self, ids=None, **kwargs):
            return self.answer

    store = Keeps(HashEmbeddings())
    memory = langchain_rmm.open_memory(":memory:", vector_store=store, clock=clock)
    fill(memory, "ann", *SAID)
    for store.answer, said in ((None, "still finds what it deleted"), (False, "says that it did not")):
        with pytest.raises(StoreError, match=said):
            memory.forget_user("ann")
    assert len(memory.memories("ann")) == 4
    memory.store.close()


def test_filters_of_other_stores(clock):
    """A filter that lets everything through costs places, and mixes up nobody."""
    asked = []

    def everything(name, value):
        asked.append((name, value))
        return {}

    store = InMemoryVectorStore(HashEmbeddings())
    source = langchain_rmm.VectorStoreSource(store, filter=everything)
    memory = langchain_rmm.open_memory(":memory:", vector_store=source, clock=clock)
    for user in ("ann", "bob"):
        fill(memory, user, *SAID)
    assert nearest(memory, "ann", SAID[1], 2) == ["m1"]
    assert asked[-1][0] == "rmm_user"
    memory.forget_user("ann")
    assert len(store.store) == 4
    memory.store.close()
