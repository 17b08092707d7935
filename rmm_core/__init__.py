"""Reflective Memory Management: long-term memory for LLM chat (Tan et al., ACL 2025).

Begin with :class:`ReflectiveMemory`; to bring a model or a database, read :mod:`rmm_core.protocols`.
"""

from rmm_core.answers import AnswerRecord, ShownMemory
from rmm_core.chat import Chat
from rmm_core.checkup import Finding
from rmm_core.citations import CitationStream, parse_citations
from rmm_core.config import RMMConfig
from rmm_core.curve import LearningStep
from rmm_core.errors import (
    ConfigError,
    ConflictError,
    DimensionError,
    EmbedderError,
    InputError,
    LLMError,
    MissingDependencyError,
    ModelError,
    NotFoundError,
    ReplyError,
    RMMError,
    StoreClosedError,
    StoreError,
)
from rmm_core.explain import Explanation, Reason
from rmm_core.features import FeatureWeights
from rmm_core.memory import ReflectiveMemory
from rmm_core.protocols import LLM, Embedder, MemoryStore, Reflector
from rmm_core.recall import Answer, Recall
from rmm_core.stores.external import CandidateSource
from rmm_core.types import (
    Attachment,
    Candidate,
    Citations,
    LearnerStatus,
    Memory,
    Message,
    ReflectionReport,
    Session,
    Shown,
    Turn,
    TurnRef,
    UserStatus,
)

__all__ = [
    "LLM",
    "Answer",
    "AnswerRecord",
    "Attachment",
    "Candidate",
    "CandidateSource",
    "Chat",
    "CitationStream",
    "Citations",
    "ConfigError",
    "ConflictError",
    "DimensionError",
    "Embedder",
    "EmbedderError",
    "Explanation",
    "FeatureWeights",
    "Finding",
    "InputError",
    "LLMError",
    "LearnerStatus",
    "LearningStep",
    "Memory",
    "MemoryStore",
    "Message",
    "MissingDependencyError",
    "ModelError",
    "NotFoundError",
    "RMMConfig",
    "RMMError",
    "Reason",
    "Recall",
    "ReflectionReport",
    "ReflectiveMemory",
    "Reflector",
    "ReplyError",
    "Session",
    "Shown",
    "ShownMemory",
    "StoreClosedError",
    "StoreError",
    "Turn",
    "TurnRef",
    "UserStatus",
    "parse_citations",
]
__version__ = "0.1.0"
