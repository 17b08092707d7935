"""LlamaIndex's messages and nodes as values of the core, and back; nothing here asks or stores anything."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import (
    AudioBlock,
    ChatMessage,
    CitableBlock,
    DocumentBlock,
    ImageBlock,
    MessageRole,
    TextBlock,
    ToolCallBlock,
)
from llama_index.core.schema import NodeWithScore, TextNode

from rmm_core import Attachment, Message, Recall, Turn
from rmm_core.citable import citable, described, only_recall
from rmm_core.prompts import memory_text, numbered_memory

CAPTIONS = "captions"
"""The key of a message's ``additional_kwargs`` that holds the captions of its media, in order; blocks have no place for
them."""

_FETCHABLE = ("http://", "https://")
_FENCE = re.compile(r'\A<memory number="\d+" recall="\w+">\n(.*)\n</memory>\Z', re.DOTALL)
_THOUGHT, _OBSERVATION, _ANSWER = "Thought:", "Observation:", "Answer:"


class Words(TextBlock):
    """A text that is no template: engines put a history through theirs, and braces in what people say are no slots."""

    @property
    def templatable_attributes(self) -> list[str]:
        """None."""
        return []


def text_of(message: ChatMessage) -> str:
    """The words of a message; media, thoughts and tool calls are left out."""
    texts = []
    for block in message.blocks:
        if isinstance(block, TextBlock):
            texts.append(block.text)
        elif isinstance(block, CitableBlock):
            texts += [part.text for part in block.content if isinstance(part, TextBlock)]
    return "\n".join(texts)


def with_text(message: ChatMessage, text: str) -> ChatMessage:
    """A copy of a message with its words replaced; one without words stays as it is."""
    blocks: list[Any] = []
    words: TextBlock | None = None
    for block in message.blocks:
        if not isinstance(block, TextBlock | CitableBlock):
            blocks.append(block)
        elif words is None:
            words = block.model_copy(update={"text": text}) if isinstance(block, TextBlock) else TextBlock(text=text)
            blocks.append(words)
    return message.model_copy(update={"blocks": blocks})


def answer_of(text: str) -> str:
    """What a reply says to the user: all of it, or what a ReAct agent that thinks aloud puts behind ``Answer:``."""
    if text.lstrip().startswith(_THOUGHT):
        for thinking in (text[text.rfind(f"\n{_THOUGHT}") + 1 :], text):
            _, answers, answer = thinking.partition(_ANSWER)
            if answers:
                return answer.strip()
    return text.strip()


def answers_of(text: str) -> set[str]:
    """What an engine or an agent may take a reply's answer to be: a ReAct agent looks for its thoughts anywhere."""
    _, thinks, rest = text.partition(_THOUGHT)
    _, answers, answer = rest.partition(_ANSWER)
    return {answer_of(text), answer.strip()} if thinks and answers else {answer_of(text)}


def attachments_of(message: ChatMessage) -> tuple[Attachment, ...]:
    """What came with a message: images, audio and documents, with their captions where they have one.

    Content that is inside of the message is named by its SHA-256 and not kept.
    """
    captions = [str(c) for c in message.additional_kwargs.get(CAPTIONS) or ()]
    found = [block for block in message.blocks if isinstance(block, ImageBlock | AudioBlock | DocumentBlock)]
    return tuple(
        _attachment(block, captions[place] if place < len(captions) else "") for place, block in enumerate(found)
    )


def is_answer(message: ChatMessage) -> bool:
    """Whether a message is a model's own and not the call of a tool."""
    calls = message.additional_kwargs.get("tool_calls") or any(isinstance(b, ToolCallBlock) for b in message.blocks)
    return not calls and message.role in (MessageRole.ASSISTANT, MessageRole.CHATBOT, MessageRole.MODEL)


def quotes_a_tool(message: ChatMessage) -> bool:
    """Whether an answer is what a tool returned, and no words of a model: tools may answer directly."""
    if "tool_call_id" in message.additional_kwargs:
        return True
    _, observes, rest = text_of(message).rpartition(f"\n{_OBSERVATION}")
    observed = rest.partition(f"\n{_THOUGHT}")[0].strip()
    return bool(observes and observed) and answer_of(text_of(message)) == observed


def spoken(message: ChatMessage) -> Message | None:
    """A message as something said; None for what nobody said: system and tool messages, and what calls a tool."""
    text = text_of(message)
    if message.role == MessageRole.USER:
        attachments = attachments_of(message)
        return Message("user", text, attachments=attachments) if text.strip() or attachments else None
    if is_answer(message):
        said = answer_of(text)
        return Message("agent", said) if said else None
    return None


def message_of(turn: Turn) -> ChatMessage:
    """A turn as a message; what came with it as blocks where a model can fetch it, else as its caption."""
    if turn.role == "agent":
        return ChatMessage(turn.content, role=MessageRole.ASSISTANT)
    fetchable = [a for a in turn.attachments if a.uri.startswith(_FETCHABLE) and a.kind in _BLOCKS]
    blocks: list[Any] = [TextBlock(text=turn.content)] if turn.content else []
    blocks += [_BLOCKS[a.kind](url=a.uri) for a in fetchable]
    kwargs = {CAPTIONS: [a.caption for a in fetchable]} if fetchable else {}
    return ChatMessage(role=MessageRole.USER, blocks=blocks, additional_kwargs=kwargs)


def nodes_of(recall: Recall, *, cite: bool, when_empty: str | None) -> list[NodeWithScore]:
    """The memories a recall shows, as nodes; their metadata stay out of what models and embedders read.

    Args:
        recall: The recall.
        cite: Whether models read the nodes fenced under their numbers.
        when_empty: The text of a node that stands in for memories where none is shown.
    """
    if not recall.shown and when_empty is not None:
        return [NodeWithScore(node=_node("no-memories", when_empty, citable(recall, 0)), score=0.0)]
    scores = {c.memory.id: c.score for c in recall.candidates}
    found = []
    for shown in recall.shown:
        node = _node(shown.memory.id, memory_text(shown), described(recall, shown))
        found.append(NodeWithScore(node=show_number(node) if cite else node, score=scores[shown.memory.id]))
    return found


def show_number(node: TextNode) -> TextNode:
    """Let models read a node of ours fenced under its number; its own text and what embedders read stay as they are."""
    number, recall_id = node.metadata["index"], node.metadata["recall_id"]
    node.excluded_llm_metadata_keys = [k for k in node.excluded_llm_metadata_keys if k != "index"]
    node.text_template = numbered_memory(number, _FENCE.sub(r"\1", node.text_template), recall_id)
    return node


def stands_in(node: NodeWithScore) -> bool:
    """Whether a node says that there is no memory."""
    return "recall_id" in node.node.metadata and node.node.metadata.get("index") == 0


def _node(name: str, text: str, metadata: dict[str, Any]) -> TextNode:
    hidden = list(metadata)
    return TextNode(
        id_=name,
        text=text,
        metadata=metadata,
        text_template="{content}",
        excluded_llm_metadata_keys=hidden,
        excluded_embed_metadata_keys=hidden,
    )


def recall_key(nodes: Sequence[NodeWithScore]) -> tuple[str, str] | None:
    """The user and the id of the recall that nodes come from; see :func:`rmm_core.citable.only_recall`."""
    return only_recall((n.node.metadata for n in nodes), "nodes")


_BLOCKS = {"image": ImageBlock, "audio": AudioBlock, "document": DocumentBlock}


def _attachment(block: ImageBlock | AudioBlock | DocumentBlock, caption: str) -> Attachment:
    kind, content = block.block_type, _content(block)
    if block.url is not None and not str(block.url).startswith("data:"):
        uri = str(block.url)
    elif block.path is not None:
        uri = str(block.path)
    else:
        uri = "sha256:" + hashlib.sha256(content or str(block.url or "").encode()).hexdigest()
    title = block.title if isinstance(block, DocumentBlock) else None
    return Attachment(kind, uri, caption or title or "")


def _content(block: ImageBlock | AudioBlock | DocumentBlock) -> bytes:
    match block:
        case ImageBlock(image=bytes(content)) | AudioBlock(audio=bytes(content)) | DocumentBlock(data=bytes(content)):
            return content
    return b""
