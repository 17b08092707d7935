"""LlamaIndex's messages and nodes as values of the core, and back; nothing here asks or stores anything."""

from __future__ import annotations

import hashlib
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
)
from llama_index.core.schema import NodeWithScore, TextNode

from rmm_core import Attachment, Message, Recall, Turn
from rmm_core.citable import described, only_recall
from rmm_core.prompts import memory_text

CAPTIONS = "captions"
"""The key of a message's ``additional_kwargs`` that holds the captions of its media, in order; blocks have no place for
them."""

_FETCHABLE = ("http://", "https://")


def text_of(message: ChatMessage) -> str:
    """The words of a message; media, thoughts and tool calls are left out."""
    texts = []
    for block in message.blocks:
        if isinstance(block, TextBlock):
            texts.append(block.text)
        elif isinstance(block, CitableBlock):
            texts += [part.text for part in block.content if isinstance(part, TextBlock)]
    return "\n".join(texts)


def attachments_of(message: ChatMessage) -> tuple[Attachment, ...]:
    """What came with a message: images, audio and documents, with their captions where they have one.

    Content that is inside of the message is named by its SHA-256 and not kept.
    """
    captions = [str(c) for c in message.additional_kwargs.get(CAPTIONS) or ()]
    found = [block for block in message.blocks if isinstance(block, ImageBlock | AudioBlock | DocumentBlock)]
    return tuple(
        _attachment(block, captions[place] if place < len(captions) else "") for place, block in enumerate(found)
    )


def spoken(message: ChatMessage) -> Message | None:
    """A message as something said; None for what nobody said: system and tool messages, tool calls."""
    text = text_of(message)
    if message.role == MessageRole.USER:
        attachments = attachments_of(message)
        return Message("user", text, attachments=attachments) if text.strip() or attachments else None
    if message.role in (MessageRole.ASSISTANT, MessageRole.CHATBOT, MessageRole.MODEL):
        return Message("agent", text) if text.strip() else None
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


def nodes_of(recall: Recall) -> list[NodeWithScore]:
    """The memories a recall shows, as nodes; their metadata stay out of what models and embedders read."""
    scores = {c.memory.id: c.score for c in recall.candidates}
    found = []
    for shown in recall.shown:
        metadata = described(recall, shown)
        node = TextNode(
            id_=shown.memory.id,
            text=memory_text(shown),
            metadata=metadata,
            excluded_llm_metadata_keys=list(metadata),
            excluded_embed_metadata_keys=list(metadata),
        )
        found.append(NodeWithScore(node=node, score=scores[shown.memory.id]))
    return found


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
