"""`cuda-rl eval`: a model on suites of tasks, from its answers to a summary and its gates.

    model, suites -> conversations (durable, resumable) -> sample records -> summary, gates

The folder is that of `evaluation.eval_run`; records and summary are made from it anew at each run.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from coding_framework.agents.prompts import PromptBudget
from coding_framework.cuda.protocol import PROTOCOL
from coding_framework.errors import UsageError
from coding_framework.evaluation.compare import Comparison, compare_runs
from coding_framework.evaluation.estimates import Estimate
from coding_framework.evaluation.eval_run import EvalIdentity, EvalRun, sample_seed
from coding_framework.evaluation.eval_summary import Block, EvalSummary, summarize
from coding_framework.evaluation.gates import Gate, GateResult, check_gates, parse_gates
from coding_framework.evaluation.metrics import Proportion
from coding_framework.evaluation.samples import SampleRecord, sample_record
from coding_framework.evaluation.suites import EvalSuite, SuiteTask, load_suite
from coding_framework.monitoring.progress import Progress
from coding_framework.orchestration.turn import (
    ConversationConfig,
    RewardFn,
    judge_or_reason,
    run_conversation,
)
from coding_framework.paths import write_atomic, write_json_atomic
from coding_framework.run.eval_options import EvalOptions
from coding_framework.store.checkpoints import file_digest
from coding_framework.store.folder import EvalFolder
from coding_framework.store.lines import parsed_lines
from coding_framework.store.model_card import prompts_for
from coding_framework.types import (
    CUDAConversationState,
    JudgeFn,
    Policy,
    PromptVersion,
    Record,
    SamplingParams,
    Task,
)
from coding_framework.wiring import JudgeSettings, make_agents, make_judge, make_reward

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""The p of fast_p: KernelBench's."""
PROMPT_TOKENS = 2048
"""Longest prompt; a longer one is trimmed by rule."""
_OF_MODELS = ("*.safetensors", "*.json", "*.jinja")
"""Weights, configuration, tokenizer."""


class EvalOutcome(Record):
    """What an evaluation came to; summary.json."""

    overall: EvalSummary
    """Over all suites together."""
    suites: tuple[EvalSummary, ...]
    compared: Comparison | None = None
    gates: tuple[GateResult, ...] = ()


@dataclass(frozen=True)
class _Sampling:
    """What one sample of one task needs."""

    run: EvalRun
    policy: Policy
    prompts: PromptVersion
    budget: PromptBudget
    judge: JudgeFn
    reward: RewardFn
    options: EvalOptions

    async def sample(
        self, suite: EvalSuite, entry: SuiteTask, number: int
    ) -> tuple[CUDAConversationState, SampleRecord]:
        options, task = self.options, entry.task
        sampling = SamplingParams(
            max_new_tokens=options.max_new_tokens,
            temperature=_temperature(options),
            seed=sample_seed(options.seed, task.name, number),
        )
        agents = make_agents(self.policy, sampling, budget=self.budget, prompts=self.prompts)
        state = await run_conversation(
            task,
            self.run.agents(agents),
            self.judge,
            self.reward,
            ConversationConfig(max_turns=options.turns, stop_reward=None),
            conversation_id=f"{suite.name}/{task.name}/{number}",
        )
        record = sample_record(state, suite=suite.name, sample=number, level=entry.level)
        return state, await self._elsewhere(entry, state, record)

    async def _elsewhere(
        self, entry: SuiteTask, state: CUDAConversationState, record: SampleRecord
    ) -> SampleRecord:
        """The record with what came of its kernel at other shapes, where the suite has some."""
        best = state.best_turn
        if entry.other_shapes is None or best is None or best.code is None:
            return record
        verdict, _ = await judge_or_reason(entry.other_shapes, best.code, self.judge)
        if verdict is None:
            return record
        found = {"holdout_status": verdict.status.value, "holdout_speedup": verdict.speedup}
        return record.model_copy(update=found)


def run_evaluation(
    model: str, suites: Sequence[str], options: EvalOptions, judging: JudgeSettings
) -> EvalOutcome:
    """Evaluate a model. Raises UsageError for wrong suites, gates or another run's folder before
    anything is generated, and PolicyError where the model fails."""
    loaded = [_suite(name, options) for name in suites]
    gates: list[Gate] = []
    if options.fail_under is not None:
        gates = parse_gates(options.fail_under, _metrics(options), _scopes(loaded, options))
    before = read_sample_records(options.compare) if options.compare is not None else None
    weights = None if options.server is not None else Path(options.adapter or model)
    prompts = options.prompts or prompts_for(weights, is_adapter=options.adapter is not None)
    with ExitStack() as stack:
        policy, digest = _policy(model, options, stack)
        identity = EvalIdentity(
            model=model,
            model_digest=digest,
            suites={suite.name: suite.digest for suite in loaded},
            samples=options.samples,
            turns=options.turns,
            sampling={
                "temperature": _temperature(options), "max_new_tokens": options.max_new_tokens
            },
            prompts=prompts,
            seed=options.seed,
            judge={**judging.model_dump(mode="json", exclude={"workers"}), "protocol": PROTOCOL},
        )  # fmt: skip
        run = stack.enter_context(EvalRun(options.output_dir, identity))
        judge = make_judge(**judging.model_dump(), run_folder=options.output_dir)
        stack.callback(judge.close)
        sampling = _Sampling(
            run=run,
            policy=policy,
            prompts=prompts,
            budget=PromptBudget(PROMPT_TOKENS, _counter(policy)),
            judge=run.judge(judge),
            reward=make_reward(),
            options=options,
        )
        found = asyncio.run(_of_suites(sampling, loaded))
    records = [record for _, record in found]
    folder = EvalFolder(options.output_dir)
    _write_lines(folder.conversations, [state for state, _ in found])
    _write_lines(folder.records, records)
    outcome = EvalOutcome(
        overall=summarize(" + ".join(suites), records, _ks(options), THRESHOLDS),
        suites=tuple(
            summarize(s.name, [r for r in records if r.suite == s.name], _ks(options), THRESHOLDS)
            for s in loaded
        ),
        compared=compare_runs(before, records, THRESHOLDS) if before is not None else None,
    )
    held = check_gates(gates, lambda gate: _number(gate, outcome))
    outcome = outcome.model_copy(update={"gates": tuple(held)})
    write_json_atomic(folder.summary, outcome.model_dump(mode="json"))
    return outcome


def read_sample_records(path: Path) -> list[SampleRecord]:
    """The sample records of an evaluation's folder, or of a file of such lines. Raises UsageError
    where there are none."""
    file = EvalFolder(path).records if path.is_dir() else path
    records = list(parsed_lines(file, SampleRecord.model_validate_json))
    if not records:
        raise UsageError(
            f"{file} holds no sample records: give the folder of a finished evaluation"
        )
    return records


async def _of_suites(
    sampling: _Sampling, suites: Sequence[EvalSuite]
) -> list[tuple[CUDAConversationState, SampleRecord]]:
    return [pair for suite in suites for pair in await _of_suite(sampling, suite)]


async def _of_suite(
    sampling: _Sampling, suite: EvalSuite
) -> list[tuple[CUDAConversationState, SampleRecord]]:
    """All samples of a suite, in the order of its tasks; first samples of all tasks begin first."""
    options = sampling.options
    wanted = [(entry, n) for n in range(options.samples) for entry in suite.tasks]
    limit = asyncio.Semaphore(options.concurrency)
    correct = 0
    with Progress(f"  {suite.name}", len(wanted), "samples") as progress:

        async def one(entry: SuiteTask, number: int) -> tuple[CUDAConversationState, SampleRecord]:
            nonlocal correct
            async with limit:
                found = await sampling.sample(suite, entry, number)
            correct += found[1].correct
            progress.advance(note=f"{correct} correct")
            return found

        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(one(entry, number)) for entry, number in wanted]
    return [task.result() for task in asked]


def _suite(name: str, options: EvalOptions) -> EvalSuite:
    def keep(task: Task) -> bool:
        return (options.family in (None, task.family)) and (options.tier in (None, task.tier))

    return load_suite(
        name,
        seed=options.seed,
        scope=options.task_scope,
        kernelbench=options.kernelbench_dir,
        keep=keep,
        limit=options.limit,
    )


def _policy(model: str, options: EvalOptions, stack: ExitStack) -> tuple[Policy, str]:
    """Who answers, and the digest of its weights. Closed with `stack`."""
    from coding_framework.agents.policies import OpenAIPolicy, TransformersPolicy

    if options.server is not None:
        return OpenAIPolicy(options.server, model), f"unverifiable: {options.server}"
    from coding_framework.agents.models import resolve_model

    folder = resolve_model(model)
    policy = TransformersPolicy(folder, adapter=options.adapter)
    stack.callback(policy.close)
    adapter = _weights_digest(Path(options.adapter)) if options.adapter is not None else ""
    return policy, f"{_weights_digest(folder)} {adapter}".strip()


def _weights_digest(folder: Path) -> str:
    files = sorted(path for kind in _OF_MODELS for path in folder.glob(kind))
    said = [(p.name, p.stat().st_size, file_digest(p)) for p in files]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def _counter(policy: Policy) -> Callable[..., int]:
    """By the policy's own tokens; where it counts none (a server), four characters are one."""
    count: Callable[..., int] | None = getattr(policy, "count", None)
    return count or (lambda messages: sum(len(m.content) for m in messages) // 4)


def _temperature(options: EvalOptions) -> float:
    if options.temperature is not None:
        return options.temperature
    return 0.0 if options.samples == 1 else 1.0


def _ks(options: EvalOptions) -> list[int]:
    return [k for k in (1, 5, 10, 50, 100) if k <= options.samples]


# --- gates ----------------------------------------------------------------------------------------

_SHARES: Mapping[str, Callable[[Block], Proportion]] = {
    "compile": lambda block: block.compiled,
    "cheats": lambda block: block.cheats,
    "rejected": lambda block: block.rejected,
}


def _metrics(options: EvalOptions) -> list[str]:
    fast = [f"fast_{p:g}" for p in THRESHOLDS]
    ks = _ks(options)
    at_k = [f"{name}@{k}" for name in fast for k in ks if k > 1]
    return [*(f"pass@{k}" for k in ks), *fast, *at_k, *_SHARES, "regressions"]


def _scopes(suites: Sequence[EvalSuite], options: EvalOptions) -> list[str]:
    entries = [entry for suite in suites for entry in suite.tasks]
    found = {f"tier{e.task.tier}" for e in entries} | {f"family.{e.task.family}" for e in entries}
    found |= {f"level{e.level}" for e in entries if e.level is not None}
    return sorted(found | ({"delta"} if options.compare is not None else set()))


def _number(gate: Gate, outcome: EvalOutcome) -> Estimate:
    """What a gate is about; without a value, and with the reason, where there is none."""
    if gate.scope == "delta":
        assert outcome.compared is not None  # else the scope is unknown
        differences = {d.metric: d for d in outcome.compared.differences}
        if gate.metric not in differences:
            return Estimate(value=None, why="this metric is not compared between the two runs")
        difference = differences[gate.metric]
        return Estimate(value=difference.estimate, ci95=difference.ci95)
    block = outcome.overall.by.get(gate.scope) if gate.scope else outcome.overall.overall
    if block is None:
        return Estimate(value=None, why=f"{gate.scope} has too few tasks for a rate")
    if gate.metric in block.pass_at:
        return block.pass_at[gate.metric]
    if gate.metric in _SHARES:
        return _as_estimate(_SHARES[gate.metric](block))
    if gate.metric == "regressions":
        if block.regressions is None:
            return Estimate(value=None, why="no kernel was judged at other shapes")
        return _as_estimate(block.regressions.rate)
    if len(block.speeds) != 1:
        return Estimate(
            value=None, why=f"times of {len(block.speeds)} kinds were taken, not of one"
        )
    return block.speeds[0].fast[gate.metric]


def _as_estimate(share: Proportion) -> Estimate:
    if not share.n:
        return Estimate(value=None, why="nothing was counted")
    return Estimate(value=share.rate, ci95=share.ci95, samples=share.n, method="Wilson")


def _write_lines(path: Path, records: Sequence[Record]) -> None:
    write_atomic(path, "".join(f"{record.model_dump_json()}\n" for record in records))
