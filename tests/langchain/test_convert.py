"""LangChain's values as the core's, and back."""

import base64
import hashlib

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage

from langchain_rmm._convert import attachments_of, documents_of, message_of, recall_key, spoken, text_of
from rmm_core import Attachment, InputError, Turn
from tests.conftest import T0

PIXEL = base64.b64encode(b"a picture").decode()
SHA = "sha256:" + hashlib.sha256(PIXEL.encode()).hexdigest()
URL = "https://example.org/cat.png"
CALL = {"name": "look", "args": {}, "id": "c1"}


@pytest.fixture
def memory(open_memory):
    return open_memory()


def turn(text, role="user", *attachments):
    return Turn("s", 0, role, "User", text, T0, attachments)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (HumanMessage("a message"), "a message"),
        (AIMessageChunk([{"type": "text", "text": "in "}, {"type": "text", "text": "blocks"}]), "in blocks"),
        (AIMessage([{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "said"}]), "said"),
        (AIMessage([{"text": "of an older form"}]), "of an older form"),
        ([HumanMessage("one"), HumanMessage("two")], "one\ntwo"),
        ([{"type": "text", "text": "seen"}, {"type": "image", "url": URL}], "seen"),
        ([], ""),
    ],
)
def test_the_words_of_whatever_holds_words(content, text):
    assert text_of(content) == text
    assert type(text_of(content)) is str


@pytest.mark.parametrize("content", [None, 3, {"role": "user"}, [None], Document(page_content="x")])
def test_what_holds_no_words_is_refused_by_its_type(content):
    with pytest.raises(InputError, match=r"a text, a message or a list of them is wanted; got (NoneType|int|dict|Doc)"):
        text_of(content)


@pytest.mark.parametrize(
    ("block", "attachment"),
    [
        ({"type": "image", "url": URL}, Attachment("image", URL)),
        ({"type": "image", "url": URL, "extras": {"caption": "A cat"}}, Attachment("image", URL, "A cat")),
        ({"type": "image", "url": URL, "caption": " "}, Attachment("image", URL)),
        ({"type": "file", "file_id": "f-1", "filename": "a.pdf"}, Attachment("document", "file-id:f-1", "a.pdf")),
        ({"type": "audio", "base64": PIXEL, "mime_type": "audio/wav"}, Attachment("audio", SHA)),
        ({"type": "image", "base64": PIXEL, "mime_type": "image/png"}, Attachment("image", SHA)),
        ({"type": "image", "url": f"data:image/png;base64,{PIXEL}"}, Attachment("image", SHA)),
        ({"type": "image_url", "image_url": {"url": URL}}, Attachment("image", URL)),
        ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}, Attachment("image", SHA)),
    ],
)
def test_what_comes_with_a_message_is_named_and_not_kept(block, attachment):
    message = HumanMessage([{"type": "text", "text": "Look"}, block])
    assert attachments_of(message) == (attachment,)
    assert PIXEL not in str(spoken(message))
    assert attachments_of(HumanMessage("Look")) == ()


def test_what_somebody_said():
    said = spoken(HumanMessage("Hello", id="m-1"))
    assert (said.role, said.text) == ("user", "Hello")
    assert said.key.startswith("m-1:")
    assert said.key != spoken(HumanMessage("Hello!", id="m-1")).key
    said = spoken(AIMessageChunk("Hi"))
    assert (said.role, said.text, said.key) == ("agent", "Hi", "")
    picture = spoken(HumanMessage([{"type": "image", "url": URL}]))
    assert (picture.text, [a.uri for a in picture.attachments]) == ("", [URL])


@pytest.mark.parametrize(
    "message",
    [
        SystemMessage("You are helpful"),
        ToolMessage("42", tool_call_id="c1"),
        AIMessage("", tool_calls=[CALL]),
        AIMessage([{"type": "reasoning", "reasoning": "hm"}]),
        HumanMessage("  "),
        HumanMessage("Here is a summary of the conversation", additional_kwargs={"lc_source": "summarization"}),
    ],
)
def test_what_nobody_said(message):
    assert spoken(message) is None


def test_turns_as_messages():
    assert message_of(turn("Hello")) == HumanMessage("Hello")
    assert message_of(turn("Hi", "agent")) == AIMessage("Hi")
    kept = message_of(turn("Look", "user", Attachment("image", SHA, "A cat")))
    assert kept == HumanMessage("Look [image: A cat]")


@pytest.mark.parametrize("kind", ["image", "audio", "video", "document"])
def test_what_can_be_fetched_goes_back_to_the_model(kind):
    message = message_of(turn("Look", "user", Attachment(kind, URL, "A cat")))
    assert text_of(message) == f"Look [{kind}: A cat]"
    assert attachments_of(message) == (Attachment(kind, URL, "A cat"),)
    bare = message_of(turn("", "user", Attachment(kind, URL)))
    assert [b["type"] for b in bare.content] == ["file" if kind == "document" else kind]


def test_memories_as_documents(memory):
    with memory.chat("ann", session_id="s") as chat:
        chat.record("I keep bees in Graz.", "Noted.")
    recall = memory.recall("ann", "bees")
    for shown, document in zip(recall.shown, documents_of(recall), strict=True):
        assert document.id == document.metadata["memory_id"] == shown.memory.id
        assert document.metadata["evidence"] == [{"session_id": "s", "index": r.index} for r in shown.memory.evidence]
        assert document.metadata["score"] == recall.candidates[shown.number - 1].score
        assert document.metadata["index"] == shown.number
    assert recall_key(documents_of(recall)) == ("ann", recall.id)


def test_documents_of_one_recall_only(memory):
    with memory.chat("ann", session_id="s") as chat:
        chat.record("I keep bees in Graz.", "Noted.")
    some, others = (documents_of(memory.recall("ann", "bees")) for _ in "ab")
    assert recall_key([]) is None
    assert recall_key([Document(page_content="a page")]) is None
    assert recall_key([Document(page_content="a page"), *some]) == ("ann", some[0].metadata["recall_id"])
    with pytest.raises(InputError, match="several recalls"):
        recall_key([*some, *others])
