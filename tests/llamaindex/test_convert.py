"""Messages there and back."""

from datetime import UTC, datetime

import pytest
from llama_index.core.base.llms.types import (
    AudioBlock,
    ChatMessage,
    CitableBlock,
    DocumentBlock,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)

from llamaindex_rmm._convert import attachments_of, message_of, spoken, text_of
from rmm_core import Attachment, Turn

URL = "https://pictures.example/cat.png"


def turn(text, role, *attachments):
    return Turn("s", 0, role, "Ann", text, datetime(2024, 3, 1, tzinfo=UTC), attachments)


def test_the_words_of_a_message():
    cited = CitableBlock(title="t", source="s", content=[TextBlock(text="quoted")])
    blocks = [ThinkingBlock(content="hm"), TextBlock(text="one"), ImageBlock(url=URL), cited, TextBlock(text="two")]
    assert text_of(ChatMessage(blocks=blocks)) == "one\nquoted\ntwo"
    assert text_of(ChatMessage(role="assistant", blocks=[ToolCallBlock(tool_name="x", tool_kwargs={})])) == ""


@pytest.mark.parametrize(
    ("message", "role"),
    [
        (ChatMessage("Hello"), "user"),
        (ChatMessage("Hello", role=MessageRole.ASSISTANT), "agent"),
        (ChatMessage("Hello", role=MessageRole.CHATBOT), "agent"),
        (ChatMessage("Hello", role=MessageRole.MODEL), "agent"),
    ],
)
def test_what_somebody_said(message, role):
    assert (spoken(message).role, spoken(message).text) == (role, "Hello")


@pytest.mark.parametrize(
    "message",
    [
        ChatMessage("You are helpful", role=MessageRole.SYSTEM),
        ChatMessage("42", role=MessageRole.TOOL),
        ChatMessage("  "),
        ChatMessage(role=MessageRole.ASSISTANT, blocks=[ToolCallBlock(tool_name="x", tool_kwargs={})]),
    ],
)
def test_what_nobody_said(message):
    assert spoken(message) is None


def test_what_comes_with_a_message():
    blocks = [
        TextBlock(text="Look"),
        ImageBlock(url=URL),
        ImageBlock(image=b"\x89PNG"),
        AudioBlock(url="https://sounds.example/a.mp3"),
        DocumentBlock(data=b"%PDF", title="The lease"),
    ]
    said = ChatMessage(role="user", blocks=blocks, additional_kwargs={"captions": ["A cat", "", "A song"]})
    image, inline, audio, document = attachments_of(said)
    assert image == Attachment("image", URL, "A cat")
    assert inline.uri.startswith("sha256:")
    assert (audio.kind, audio.caption) == ("audio", "A song")
    assert (document.kind, document.caption) == ("document", "The lease")
    assert document.uri != inline.uri


@pytest.mark.parametrize("kind", ["image", "audio", "document"])
def test_what_can_be_fetched_goes_back_to_the_model(kind):
    message = message_of(turn("Look", "user", Attachment(kind, URL, "A cat")))
    assert text_of(message) == f"Look [{kind}: A cat]"
    assert attachments_of(message) == (Attachment(kind, URL, "A cat"),)


def test_what_cannot_be_fetched_goes_back_as_its_caption():
    message = message_of(turn("Look", "user", Attachment("image", "sha256:00", "A cat")))
    assert [b.block_type for b in message.blocks] == ["text"]
    assert message.content == "Look [image: A cat]"
    assert message_of(turn("Hi", "agent")).role == MessageRole.ASSISTANT
