"""What a host holds against what is stored, and what a reply says to the user."""

from datetime import UTC, datetime

import pytest
from llama_index.core.base.llms.types import (
    ChatMessage,
    CitableBlock,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.prompts import ChatPromptTemplate

from llamaindex_rmm._convert import Words, answer_of, answers_of, spoken, text_of, with_text
from llamaindex_rmm._turns import unstored
from rmm_core import Message, Turn

URL = "https://pictures.example/cat.png"
ACTS = "Thought: I look.\nAction: weather\nAction Input: {}\nObservation: Answer: no\n"


def messages(*texts):
    return [Message("agent" if text.islower() else "user", text) for text in texts]


def turns(*texts):
    at = datetime(2024, 3, 1, tzinfo=UTC)
    return [Turn("s", place, m.role, "Ann", m.text, at) for place, m in enumerate(messages(*texts))]


@pytest.mark.parametrize(
    ("held", "stored", "new"),
    [
        (("Hi", "hello"), (), ("Hi", "hello")),
        (("Hi", "hello"), ("Hi", "hello"), ()),
        (("Yes", "and?", "Yes", "and?"), ("Yes", "and?"), ("Yes", "and?")),
        (("More", "go on"), ("Hi", "hello", "More"), ("go on",)),
        (("Hi", "hello [1].", "Bye [NO_CITE]"), ("Hi", "hello."), ("Bye [NO_CITE]",)),
        (("Hi ", "hello\n"), ("Hi", "hello"), ()),
        ((), ("Hi",), ()),
    ],
)
def test_what_is_not_stored_yet(held, stored, new):
    assert unstored(messages(*held), turns(*stored)) == messages(*new)


def test_who_said_it_matters():
    assert unstored([Message("agent", "Yes.")], turns("Yes.")) == [Message("agent", "Yes.")]


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (" It rains. ", "It rains."),
        ("Answer: it rains", "Answer: it rains"),
        ("Thought: easy.\nAnswer: It rains.\n", "It rains."),
        (f"{ACTS}Thought: I know.\nAnswer: It rains.", "It rains."),
        ("Thought: easy. Answer: Answer: 4", "Answer: 4"),
        ("Thought: I am lost.", "Thought: I am lost."),
        ("", ""),
    ],
)
def test_what_a_reply_says_to_the_user(reply, answer):
    assert answer_of(reply) == answer
    assert answer in answers_of(reply)


@pytest.mark.parametrize(
    ("reply", "answers"),
    [
        ("It rains.", {"It rains."}),
        ("Thought: easy.\nAnswer: It rains.", {"It rains."}),
        ("Well. Thought: easy.\nAnswer: It rains.", {"Well. Thought: easy.\nAnswer: It rains.", "It rains."}),
        ("My Answer: it rains. Thought: none", {"My Answer: it rains. Thought: none"}),
    ],
)
def test_what_an_agent_may_take_a_reply_for(reply, answers):
    assert answers_of(reply) == answers


def test_words_are_replaced_where_they_stand():
    thought, call = ThinkingBlock(content="hm"), ToolCallBlock(tool_name="x", tool_kwargs={})
    message = ChatMessage(
        role="assistant",
        blocks=[thought, TextBlock(text="one"), call, TextBlock(text="two")],
        additional_kwargs={"id": 1},
    )
    changed = with_text(message, "three")
    assert changed.blocks == [thought, TextBlock(text="three"), call]
    assert (changed.role, changed.additional_kwargs) == (message.role, {"id": 1})
    assert text_of(message) == "one\ntwo"


def test_a_message_without_words_gets_none():
    message = ChatMessage(role="user", blocks=[ImageBlock(url=URL)])
    assert with_text(message, "three").blocks == message.blocks


def test_quotations_are_not_said_twice_when_words_are_replaced():
    quoted = CitableBlock(title="t", source="s", content=[TextBlock(text="quoted")])
    message = ChatMessage(role="assistant", blocks=[TextBlock(text="one"), quoted])
    assert text_of(with_text(message, text_of(message))) == text_of(message)


def test_words_stay_words_and_are_no_template():
    words = Words(text="{context_str} and {query_str}")
    history = ChatMessage(role="user", blocks=[words])
    changed = with_text(history, "{query_str}")
    assert type(changed.blocks[0]) is Words
    template = ChatPromptTemplate([history, changed, ChatMessage("{query_str}")])
    for prompt in (template, template.partial_format(context_str="c")):
        told = prompt.format_messages(query_str="q", context_str="c")
        assert [m.content for m in told] == ["{context_str} and {query_str}", "{query_str}", "q"]


@pytest.mark.parametrize(
    ("blocks", "kwargs"),
    [
        ([TextBlock(text="Let me look."), ToolCallBlock(tool_name="x", tool_kwargs={})], {}),
        ([TextBlock(text="Let me look.")], {"tool_calls": [{"id": "1"}]}),
        ([ThinkingBlock(content="hm")], {}),
        ([], {}),
    ],
)
def test_what_calls_a_tool_or_is_silent_is_not_said(blocks, kwargs):
    assert spoken(ChatMessage(role="assistant", blocks=blocks, additional_kwargs=kwargs)) is None


@pytest.mark.parametrize("role", [MessageRole.DEVELOPER, MessageRole.FUNCTION, MessageRole.SYSTEM, MessageRole.TOOL])
def test_who_does_not_speak(role):
    assert spoken(ChatMessage("Hello", role=role)) is None


def test_a_thinking_agents_answer_is_what_was_said():
    assert spoken(ChatMessage("Thought: easy.\nAnswer: 4", role="assistant")) == Message("agent", "4")
