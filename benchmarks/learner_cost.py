"""What learning costs: one step with written-out gradients and with torch's, and what is kept of a learner.

    python -m benchmarks.learner_cost [--json FILE]

A step is a batch of four answers with 50 candidates each, on one core: the adapters' gradients, the regression, the
mix. Embeddings are random. Figures are medians over interleaved repetitions; ratios are what to quote.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.core_latency import medians
from rmm_core import RMMConfig
from rmm_core.features import FEATURES
from rmm_core.learned import Learned
from rmm_core.learning import Example, update
from rmm_core.places import Places
from rmm_core.regression import RewardRegression
from rmm_core.reranker import Reranker, Weights, start_mix
from rmm_core.scoring import rewards

WIDTHS = (384, 1024)
CANDIDATES, SHOWN, BATCH = 50, 5, 4


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write JSON when asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=41)
    parser.add_argument("--json", metavar="FILE", help="write the figures here as well")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    figures = {str(width): measured(width, options.repeat) for width in WIDTHS}
    table = Table(title="One step of four answers; what is kept of a learner", title_justify="left", box=None)
    for column in (
        "width",
        "adapters, written out",
        "adapters, autograd",
        "features",
        "kept in full",
        "without adapters",
    ):
        table.add_column(column)
    for width, f in figures.items():
        times = (f"{f[k]:.2f} ms" for k in ("written_out_ms", "autograd_ms", "regression_ms"))
        table.add_row(width, *times, *(f"{f[k] / 1024:,.0f} kB" for k in ("full_bytes", "without_adapters_bytes")))
    Console(highlight=False).print(table)
    if options.json:
        machine = {"python": platform.python_version(), "cpu": platform.machine(), "numpy": np.__version__}
        Path(options.json).write_text(json.dumps(figures | {"machine": machine}, indent=1) + "\n")


def measured(width: int, repeat: int) -> dict[str, float]:
    """The figures of one width of embeddings."""
    rng, config = np.random.default_rng(0), RMMConfig()
    small = (rng.normal(size=(2, width, width)) * 0.001).astype(np.float32)
    weights = Weights(small[0], small[1], start_mix(config))
    batch = [example(rng, width) for _ in range(BATCH)]
    places = Places.unknown()
    np.testing.assert_allclose(
        update(weights, batch, places, config).w_q, by_autograd(weights, batch, places, config)[0], rtol=1e-3, atol=1e-5
    )
    written, autograd, regression = medians(
        repeat,
        lambda: update(weights, batch, places, config),
        lambda: by_autograd(weights, batch, places, config),
        lambda: regressed(weights, batch, config),
    )
    start = Learned.start(width, config)
    return {
        "written_out_ms": written * 1e3,
        "autograd_ms": autograd * 1e3,
        "ratio": autograd / written,
        "regression_ms": regression * 1e3,
        "full_bytes": len(replace(start, reranker=Reranker(weights)).pack()),
        "without_adapters_bytes": len(start.pack()),
    }


def example(rng: np.random.Generator, width: int) -> Example:
    """An answer that cites two of what it was shown."""
    rows = rng.normal(size=(CANDIDATES + 1, width)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    features = rng.random((CANDIDATES, len(FEATURES))).astype(np.float32)
    none = np.zeros(CANDIDATES, dtype=np.float32)
    return Example(rows[0], rows[1:], features, none, tuple(range(SHOWN)), (0, 2))


def by_autograd(weights: Weights, batch: Sequence[Example], places: Places, config: RMMConfig) -> list[Any]:
    """The same step with torch's gradients of the objective."""
    w_q, w_m = (torch.tensor(w, requires_grad=True) for w in (weights.w_q, weights.w_m))
    parts = []
    for e in batch:
        q, m = torch.from_numpy(e.query), torch.from_numpy(e.candidates)
        logits = config.logit_scale * float(weights.mix[0]) * ((m + m @ w_m.T) @ (q + w_q @ q))
        unusual = np.isin(e.shown, e.cited) - places.usual(len(e.shown))
        parts.append((torch.from_numpy(unusual - unusual.mean()).float() * logits[list(e.shown)]).sum())
    torch.stack(parts).mean().backward()
    kept = 1.0 - config.anchor
    with torch.no_grad():
        return [(kept * (w + config.learning_rate * w.grad)).numpy() for w in (w_q, w_m) if w.grad is not None]


def regressed(weights: Weights, batch: Sequence[Example], config: RMMConfig) -> object:
    """The features' part of a step."""
    regression, reranker = RewardRegression.empty(len(weights.mix)), Reranker(weights)
    for e in batch:
        columns = reranker.columns(e.query, e.candidates, e.features)[list(e.shown)]
        regression = regression.add(columns, rewards(e.shown, e.cited), forget=config.forget)
    return regression.weights(start_mix(config), ridge=config.ridge)


if __name__ == "__main__":
    main()
