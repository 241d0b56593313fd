"""Stages in place of a whole run's own, for tests of what is around them."""

from __future__ import annotations

from coding_framework.evaluation.eval_summary import summarize_samples
from coding_framework.evaluation.summary import practised
from coding_framework.run import stages as pipeline
from coding_framework.run.stages import Stage
from coding_framework.store.records import TaskEvidence

REAL = pipeline.STAGES


def fake_stages(calls: list[str], broken: str | None = None) -> tuple[Stage, ...]:
    """Stages with the names and the results of the real ones, that only note that they ran."""

    def make(name: str) -> Stage:
        def run(job):
            calls.append(name)
            if name == broken:
                raise KeyboardInterrupt
            if name.startswith("eval_"):
                metrics = summarize_samples([], [1], [1.0]).model_dump(mode="json")
                return {"metrics": metrics, "judge": {"device": "d", "sandbox": "s"}}
            if name == "rl":
                steps = [{"step": i, "reward_mean": 0.1 * i, "grad_norm": 0.5} for i in (1, 2)]
                return {"steps": steps, "final_model": "m"}
            if name == "practice":
                evidence = [TaskEvidence(task="a", samples=4, solved=1)]
                practice = practised(evidence, {"a": [True, True, True, False]})
                return {"practice": practice.model_dump(mode="json")}
            return {"path": "m", "model": "m"}

        return Stage(name, name, run)

    return tuple(make(stage.name) for stage in REAL)
