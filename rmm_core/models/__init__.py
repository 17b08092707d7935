"""Models for those who bring none of a framework: local embeddings, and any OpenAI-compatible endpoint."""

from rmm_core.models.openai import OpenAIEmbedder, OpenAILLM
from rmm_core.models.sentence_transformers import SentenceTransformerEmbedder

__all__ = ["OpenAIEmbedder", "OpenAILLM", "SentenceTransformerEmbedder"]
