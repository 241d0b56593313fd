"""The progression of a curriculum, as a curve of the report."""

from __future__ import annotations

from collections.abc import Sequence

from coding_framework.data.curriculum_manager import WindowRecord
from coding_framework.evaluation.report import TrainingCurve, TrainingStep


def curriculum_curve(windows: Sequence[WindowRecord], tiers: Sequence[str]) -> TrainingCurve:
    """Rates and tier over the episodes. tiers: names in their order; the tier is drawn as the share
    of them that lies behind, so that it steps up on an advance and down on a fallback."""
    height = {name: i / max(1, len(tiers) - 1) for i, name in enumerate(tiers)}
    steps = [
        TrainingStep(
            step=window.episode,
            values={
                "tier": height[window.tier],
                "success": window.metrics.success_rate,
                "compiles": window.metrics.compile_rate,
            },
        )
        for window in windows
        if window.kind == "current"
    ]
    kinds = sorted({w.metrics.basis for w in windows} - {"none"})
    basis = f", speedups {' and '.join(kinds)}" if kinds else ""
    return TrainingCurve(
        title=f"Curriculum: {' to '.join(tiers)}{basis}",
        y_label="share",
        steps=tuple(steps),
        keys=("tier", "success", "compiles"),
        x_label="episodes",
    )
