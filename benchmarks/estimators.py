"""Which estimator learns from citations, and which unlearns from noise.

    python -m benchmarks.estimators locomo10.json [--json FILE]

All questions of LoCoMo's ten conversations in one shuffled stream, recorded facts as topics, one learner. Each
question is scored before it is learned from (*learning*), and all are asked again at the end (*again*). Citations
are simulated: useful ones with the paper's error rates, random ones with odds of 0.3 for whatever is shown.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.datasets import Conversation
from benchmarks.datasets.locomo import answerable, load
from benchmarks.feedback import SimulatedCitations
from benchmarks.reflectors import RecordedReflector
from rmm_core import ReflectiveMemory, RMMConfig
from rmm_core.learning import Example, update
from rmm_core.reranker import Reranker, Weights

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from _models import bundled_embedder

SETTINGS = {
    "contrast": RMMConfig(),
    "listwise": RMMConfig(estimator="listwise", learning_rate=0.03, feature_learning_rate=0.01),
}


@dataclass(frozen=True, eq=False)
class Asked:
    """A question with its candidates: what was scored, and which evidence each candidate rests on."""

    example: Example
    evidence: tuple[frozenset[Any], ...]
    wanted: int


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write JSON when asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("locomo", help="locomo10.json")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", metavar="FILE", help="write the figures here as well")
    options = parser.parse_args(arguments)
    embedder = bundled_embedder()
    asked = [a for conversation in load(options.locomo) for a in candidates(answerable(conversation), embedder)]
    stream = [asked[i] for i in np.random.default_rng(options.seed).permutation(len(asked))]
    figures = {
        f"{name}, {kind} citations": play(stream, config, kind == "random", options.seed)
        for name, config in SETTINGS.items()
        for kind in ("useful", "random")
    }
    table = Table(title=f"R@5 over {len(stream)} questions, one learner", title_justify="left", box=None)
    for column in ("", "prior", "learning", "again", "lexical weights"):
        table.add_column(column)
    for name, f in figures.items():
        table.add_row(name, f"{f['prior']:.3f}", f"{f['learning']:.3f}", f"{f['again']:.3f}", str(f["weights"]))
    Console(highlight=False).print(table)
    if options.json:
        Path(options.json).write_text(json.dumps({"seed": options.seed} | figures, indent=1) + "\n")


def candidates(conversation: Conversation, embedder: Any) -> list[Asked]:
    """What a search brings up for each question; it does not depend on what was learned."""
    reflector = RecordedReflector(conversation.sittings)
    with ReflectiveMemory.open(":memory:", embedder=embedder, reflector=reflector) as memory:
        for sitting in conversation.sittings:
            chat = memory.chat("u", session_id=sitting.id, at=sitting.at)
            chat.add(*sitting.messages)
            chat.end()
        found = []
        for question in conversation.questions:
            recall = memory.recall("u", question.text)
            rows = np.stack([c.embedding for c in recall.candidates])
            features = np.stack([c.features for c in recall.candidates])
            example = Example(recall.embedding, rows, features, recall.noise, (), ())
            evidence = tuple(question.evidence & set(c.memory.evidence) for c in recall.candidates)
            found.append(Asked(example, evidence, len(question.evidence)))
        return found


def play(stream: Sequence[Asked], config: RMMConfig, random: bool, seed: int) -> dict[str, Any]:
    """One pass of learning over the stream."""
    rng = np.random.default_rng(seed)
    simulated = SimulatedCitations(rng, recall=0.3, false=0.3) if random else SimulatedCitations(rng)
    start = weights = Weights.start(stream[0].example.candidates.shape[1], config)
    prior = [covered(a, shown(a, start)) for a in stream]
    learning, batch = [], []
    for a in stream:
        slate = shown(a, weights)
        learning.append(covered(a, slate))
        cited = tuple(slate[n - 1] for n in simulated.cited([bool(a.evidence[i]) for i in slate]))
        e = a.example
        batch.append(Example(e.query, e.candidates, e.features, e.noise, slate, cited))
        if len(batch) == config.batch_size:
            weights = update(weights, batch, start, config)
            batch = []
    again = [covered(a, shown(a, weights)) for a in stream]
    return {
        "prior": float(np.mean(prior)),
        "learning": float(np.mean(learning)),
        "again": float(np.mean(again)),
        "weights": [round(float(w), 2) for w in weights.features],
    }


def shown(a: Asked, weights: Weights, m: int = 5) -> tuple[int, ...]:
    """Positions of the m best candidates."""
    e = a.example
    return tuple(Reranker(weights).rank(e.query, e.candidates, e.features).order[:m].tolist())


def covered(a: Asked, slate: Sequence[int]) -> float:
    """Share of the evidence that the slate rests on."""
    return len(frozenset[Any]().union(*(a.evidence[i] for i in slate))) / a.wanted


if __name__ == "__main__":
    main()
