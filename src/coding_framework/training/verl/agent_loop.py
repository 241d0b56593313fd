"""Episodes as verl's training rows: a driver of `orchestration/turn.py`, one row per turn.

verl 0.9.1 would treat a conversation of several rows wrongly in two ways: it copies the last row's
reward onto the others, and it groups all rows of a prompt together. Both are avoided by handing the
rows over one by one (`TurnRowsWorker`), each under a group id of its own, "UID_role.turn".
The estimator sees that id and nothing else. (verl splits keys at the first underscore to find the
prompt, so the id stays a row of its prompt for everything else.)
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import ray
from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
    register,
)
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from coding_framework.agents.policies import prompt_ids
from coding_framework.agents.prompts import PROMPT_VERSION, PromptBudget
from coding_framework.agents.tester import TesterAgent
from coding_framework.errors import InfrastructureError, PolicyError, UsageError
from coding_framework.orchestration.turn import (
    Agent,
    Agents,
    Answer,
    RewardFn,
    end_reason,
    run_turn,
)
from coding_framework.store.conversations import append_rollout
from coding_framework.store.events import log
from coding_framework.store.records import Rollout, VerdictTime
from coding_framework.training.agent_specializer import AgentSpecializer
from coding_framework.training.credit import conversation_returns, group_key
from coding_framework.training.handed_over import HandedOver, read_handed_over
from coding_framework.training.import_paths import build
from coding_framework.training.reward_functions.custom import chosen_reward
from coding_framework.training.reward_functions.overlong import OverlongShaping
from coding_framework.training.verl.episode_spec import SPEC_VARIABLE, EpisodeSpec, read_spec
from coding_framework.training.verl.overrides import AGENT_LOOP
from coding_framework.training.verl.transformers_server import (
    ServedTokens,
    ServerConfig,
    TransformersServer,
)
from coding_framework.types import (
    ConversationTurn,
    CUDAConversationState,
    Generation,
    JudgeFn,
    Message,
    Policy,
    Probe,
    ProbeResult,
    Role,
    SamplingParams,
    Task,
    Verdict,
)

GROUP_FIELD = "turn_group"
FROZEN_ACTOR = "coding_framework_frozen_role"
"""Ray name, by which the workers of a run share one server."""


class FinalOnly:
    """Becomes vLLM's `RequestOutputKind.FINAL_ONLY` where it is unpickled, in the rollout server:
    a rollout worker has no use for vLLM, whose import takes seconds."""

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        return _final_only, ()


def _final_only() -> Any:
    return import_module("vllm.sampling_params").RequestOutputKind.FINAL_ONLY


class VerlPolicy:
    """verl's rollout servers as a `Policy`. One instance a conversation."""

    def __init__(self, server: Any, tokenizer: Any, spec: EpisodeSpec, seed_text: str) -> None:
        self._server = server
        self._tokenizer = tokenizer
        self._max_prompt_tokens = spec.config.max_prompt_tokens
        self._timeout_s = spec.config.policy_timeout_s
        self._seeded = spec.seeded
        self._whole = spec.whole_answers
        self.seed_text = seed_text
        """Of its samples, which then differ between conversations and repeat in a rerun; where the
        spec says so."""
        self._request_id = uuid4().hex
        self._calls = 0
        self.extra_fields: dict[str, Any] = {}
        """What the server said of the last answer (the step of its weights)."""

    async def generate(self, messages: tuple[Message, ...], sampling: SamplingParams) -> Generation:
        """Answer a chat. Raises PolicyError where the server fails or the prompt is too long."""
        ids = prompt_ids(self._tokenizer, messages)
        if len(ids) > self._max_prompt_tokens:
            raise PolicyError(
                f"a prompt of {len(ids)} tokens exceeds max_prompt_tokens="
                f"{self._max_prompt_tokens}: raise it, or shorten the feedback"
            )
        try:
            async with asyncio.timeout(self._timeout_s):
                output = await self._server.generate(
                    request_id=self._request_id,
                    prompt_ids=ids,
                    sampling_params=self._to_verl(sampling),
                )
        except ray.exceptions.RayError as e:
            raise PolicyError(f"the rollout server failed: {e}") from e
        except TimeoutError as e:
            raise PolicyError(
                f"the rollout server gave no answer in {self._timeout_s:.0f} s"
            ) from e
        self.extra_fields = dict(output.extra_fields)
        response = tuple(output.token_ids[: sampling.max_new_tokens])
        logprobs = tuple((output.log_probs or ())[: len(response)])
        if len(logprobs) != len(response):
            raise PolicyError(
                f"the rollout server gave {len(logprobs)} log-probs for {len(response)} tokens"
            )
        ended = bool(response) and response[-1] == self._tokenizer.eos_token_id
        cut = len(response) == sampling.max_new_tokens and not ended  # vLLM's reason is not told
        return Generation(
            text=self._tokenizer.decode(response, skip_special_tokens=True),
            prompt_ids=tuple(ids),
            response_ids=response,
            logprobs=logprobs,
            finish_reason="length" if cut else "stop",
        )

    def count(self, messages: tuple[Message, ...]) -> int:
        """Tokens of a prompt, for a `PromptBudget`."""
        return len(prompt_ids(self._tokenizer, messages))

    def _to_verl(self, sampling: SamplingParams) -> dict[str, Any]:
        self._calls += 1
        digest = hashlib.sha256(f"{self.seed_text}/{self._calls}".encode()).digest()
        seed = {"seed": int.from_bytes(digest[:4], "big") >> 1} if self._seeded else {}
        return {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "max_tokens": sampling.max_new_tokens,
            "logprobs": True,  # vLLM gives none unasked
            "flat_logprobs": True,  # numbers in lists, not an object a token
            "detokenize": False,  # the text is made here, once
            **({"output_kind": FinalOnly()} if self._whole else {}),
            **seed,
        }


class FrozenServer:
    """The role that is not trained, as verl's server client: what `VerlPolicy` asks.

    One Ray actor for all rollout workers of the run, on the machine that trains: the model that RL
    started from with the role's adapter merged, by transformers. On GPUs it takes its share of the
    first one's memory (the weights, and keys and values while it answers), and it is slower than
    vLLM. The first worker starts the actor, which loads its model meanwhile.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._actor = (
            ray.remote(TransformersServer)
            .options(name=FROZEN_ACTOR, get_if_exists=True, num_cpus=0.1, max_concurrency=256)
            .remote(config)
        )

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> ServedTokens:
        """Answer one prompt. Raises RayError where the actor is gone or could not start."""
        answer: ServedTokens = await self._actor.generate.remote(
            request_id, prompt_ids, sampling_params
        )
        return answer


class TimedJudge:
    """A judge with a wall limit of ours: a verdict that does not come is our fault."""

    def __init__(self, judge: Any, limit_s: float) -> None:
        """judge: a `JudgeFn`, with `probe` where there is a tester."""
        self._judge = judge
        self._limit_s = limit_s

    async def __call__(self, task: Task, code: str) -> Verdict:
        try:
            verdict: Verdict = await asyncio.wait_for(self._judge(task, code), self._limit_s)
            return verdict
        except TimeoutError as e:
            raise InfrastructureError(
                f"no verdict within {self._limit_s:.0f} s: the judge is overloaded or stuck"
            ) from e

    async def probe(
        self, task: Task, code: str, probes: tuple[Probe, ...]
    ) -> tuple[ProbeResult, ...]:
        """What comes of a tester's probes (`types.ProbeFn`)."""
        try:
            found = await asyncio.wait_for(self._judge.probe(task, code, probes), self._limit_s)
        except TimeoutError as e:
            raise InfrastructureError(f"no probe ended within {self._limit_s:.0f} s") from e
        return tuple(found)


class ClockedJudge:
    """A judge that notes what each verdict took. One instance a conversation."""

    def __init__(self, judge: JudgeFn) -> None:
        self._judge = judge
        self.times: list[VerdictTime] = []

    async def __call__(self, task: Task, code: str) -> Verdict:
        started = time.monotonic()
        verdict = await self._judge(task, code)
        wall_s = round(time.monotonic() - started, 4)
        self.times.append(VerdictTime(wall_s=wall_s, judging_s=verdict.receipt.duration_s))
        return verdict


class ClockedAgent:
    """An agent that notes what its last answer took. One instance a conversation."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.took_s = 0.0

    async def answer(self, state: CUDAConversationState, *, sample: int = 0) -> Answer:
        started = time.monotonic()
        answer = await self._agent.answer(state, sample=sample)
        self.took_s = round(time.monotonic() - started, 4)
        return answer


def last_turn_timed(
    state: CUDAConversationState,
    agents: Mapping[Role, ClockedAgent],
    verdicts: Sequence[VerdictTime],
) -> CUDAConversationState:
    """The state whose last turn says what it took. verdicts: of this turn; none where the judge was
    not asked, or failed."""
    last = state.turns[-1]
    times = {
        "generated_s": agents[last.role].took_s,
        "judged_s": verdicts[-1].wall_s if verdicts else None,
    }
    return state.model_copy(update={"turns": (*state.turns[:-1], last.model_copy(update=times))})


class Environment:
    """Judge, reward and settings of a worker process: built once, used by all its episodes."""

    installed: Environment | None = None
    """What `current` gives; None: it is made of the spec file at first use."""

    def __init__(self, spec: EpisodeSpec) -> None:
        self.spec = spec
        config = spec.config
        self.judge = TimedJudge(build(spec.judge, **spec.judge_args), config.judge_timeout_s)
        specializer = AgentSpecializer(spec.specialization)
        self.learning = specializer.learning
        file = spec.handed_over
        handed = read_handed_over(Path(file)) if file is not None else HandedOver()
        own = chosen_reward(handed.reward, spec.reward)
        self.reward: RewardFn = own if own is not None else specializer.reward
        self.agents = handed.agents
        self.tester = TesterAgent(self.judge.probe) if config.tester else None
        self.frozen = FrozenServer(spec.frozen_server) if spec.frozen_server else None
        if config.overlong is not None:
            self.reward = OverlongShaping(self.reward, config.overlong)

    @classmethod
    def current(cls) -> Environment:
        """The process's environment, from the spec file that the trainer's environment names."""
        if cls.installed is None:
            cls.installed = cls(read_spec(Path(os.environ[SPEC_VARIABLE])))
        return cls.installed


@register(AGENT_LOOP)
class KernelTurnsLoop(AgentLoopBase):  # type: ignore[misc]
    """One conversation per call; gives its turns as rows, each with its own return."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[AgentLoopOutput]:
        """Run the conversation of one dataset row.

        Raises for no fault of the policy server or of an agent: the conversation ends there, and
        the fault is in the stored rollout, where the run's watch counts it.
        """
        environment = Environment.current()
        spec = environment.spec
        given = row["extra_info"]
        task = Task.model_validate_json(given["task"])
        step, session = int(row["global_steps"]), int(row["session_id"])
        # The row's number too: dynamic sampling may draw a task twice for a step.
        seed_text = f"{spec.config.seed}/{step}/{given['index']}/{task.name}/{session}"
        policy = VerlPolicy(self.server_manager, self.tokenizer, spec, seed_text)
        made = self._agents(environment, policy, float(sampling_params["temperature"]))
        agents = {role: ClockedAgent(agent) for role, agent in made.items()}
        judge = ClockedJudge(environment.judge)
        state = CUDAConversationState(conversation_id=f"{row['uid']}-{session}", task=task)
        fault: str | None = None
        began_at = utc_now()
        while fault is None and (ended := end_reason(state, spec.conversation)) is None:
            judged = len(judge.times)
            try:
                state = await run_turn(
                    state, agents, judge, environment.reward, spec.conversation,
                    tester=environment.tester,
                )  # fmt: skip
                state = last_turn_timed(state, agents, judge.times[judged:])
            except (PolicyError, UsageError) as e:  # UsageError: a task that no prompt can hold
                fault = f"{type(e).__name__}: {e}"
                log.warning("policy_failed", task=task.name, step=step, error=fault)
            except Exception as e:  # of an agent: verl would wait for this conversation for ever
                fault = f"{type(e).__name__}: {e}"
                log.exception("conversation_failed", task=task.name, step=step, error=fault)
        state = state.model_copy(update={"end_reason": "error" if fault else ended})
        returns = conversation_returns(
            state, spec.config.discount, spec.conversation.max_turns, environment.learning
        )
        rollout = Rollout(
            step=step, group=str(row["uid"]), session=session, state=state, returns=returns,
            prompt=int(given["index"]), fault=fault, verdict_times=tuple(judge.times),
            began_at=began_at, ended_at=utc_now(),
        )  # fmt: skip
        append_rollout(
            Path(spec.validation_dir if given.get("validation") else spec.rollouts_dir), rollout
        )
        version = policy.extra_fields or weights_of(step)
        rows = [
            (turn.role in environment.learning, turn_row(turn, value, version))
            for turn, value in zip(state.turns, returns, strict=True)
            if turn.generation.response_ids
        ]
        # A frozen role's turns would cost a forward pass each. One stays where there is no other:
        # verl cannot make a step without any row.
        return [row for learning, row in rows if learning] or [row for _, row in rows[:1]]

    def _agents(self, environment: Environment, policy: VerlPolicy, temperature: float) -> Agents:
        """The agents of one conversation; a frozen role answers by its own server."""
        spec, config = environment.spec, environment.spec.config
        sampling = spec.sampling.model_copy(
            update={"temperature": 0.0 if config.greedy else temperature}
        )
        version = spec.specialization.prompts
        other: dict[str, Any] = {"prompts": version} if version != PROMPT_VERSION else {}
        if config.redraws:
            other["redraws"] = config.redraws
        budget = PromptBudget(config.max_prompt_tokens, policy.count)
        if environment.agents is not None:
            make: Any = partial(agents_of, environment.agents, budget=budget, **other)
        else:
            make = partial(build, config.agents, budget=budget, **other)
        if environment.frozen is None:
            return cast(Agents, make(policy, sampling))
        frozen = VerlPolicy(environment.frozen, self.tokenizer, spec, f"{policy.seed_text}/frozen")
        generates = Role.GENERATOR in environment.learning
        first, later = (policy, frozen) if generates else (frozen, policy)
        return cast(Agents, make(first, sampling, optimizer=later))


def utc_now() -> str:
    """ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def agents_of(
    kinds: Mapping[Role, Any],
    policy: Policy,
    sampling: SamplingParams,
    *,
    optimizer: Policy | None = None,
    **how: Any,
) -> Agents:
    """Agents of the classes that were handed over, as the factory `EpisodeSpec.agents` makes."""
    policies = {Role.GENERATOR: policy, Role.OPTIMIZER: optimizer or policy}
    return {role: kind(policies[role], sampling, **how) for role, kind in kinds.items()}


def weights_of(step: int) -> dict[str, int]:
    """What the server would have said of its weights where it was not asked: at a step they are
    those after the step before."""
    return dict.fromkeys(("global_steps", "min_global_steps", "max_global_steps"), step - 1)


def turn_row(
    turn: ConversationTurn, turn_return: float | None, server_fields: dict[str, Any]
) -> AgentLoopOutput:
    """One training row. A turn without a known return has a loss mask of 0 throughout."""
    response = list(turn.generation.response_ids)
    known = turn_return is not None
    return AgentLoopOutput(
        prompt_ids=list(turn.generation.prompt_ids),
        response_ids=response,
        response_mask=[int(known)] * len(response),
        response_logprobs=list(turn.generation.logprobs),
        reward_score=turn_return if turn_return is not None else 0.0,
        num_turns=turn.index + 1,
        metrics=AgentLoopMetrics(),
        extra_fields={
            **server_fields,
            "reward_extra_info": {"known": known},
            GROUP_FIELD: group_key(turn.role, turn.index),
        },
    )


_WORKER: Any = AgentLoopWorkerTQ.__ray_metadata__.modified_class.__ray_actor_class__


class TurnRowsWorker(_WORKER):  # type: ignore[misc]
    """verl's rollout worker, handing each turn over as a row with a group id of its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Needed: Ray ships an inherited constructor by value, together with a copy of verl's class
        # (whose name in its module is taken by the decorated one), and `super()` in it then fails.
        super().__init__(*args, **kwargs)
        Environment.current()  # where it cannot be made, the run ends with the reason

    async def _agent_loop_postprocess(
        self, output: AgentLoopOutput | list[AgentLoopOutput], validate: bool, **kwargs: Any
    ) -> None:
        for row in output if isinstance(output, list) else [output]:
            group = row.extra_fields.get(GROUP_FIELD)
            uid = f"{kwargs['uid']}_{group}" if group else kwargs["uid"]
            await super()._agent_loop_postprocess([row], validate, **{**kwargs, "uid": uid})


class TurnRowsManager(AgentLoopManagerTQ):  # type: ignore[misc]
    """verl's manager with `TurnRowsWorker`s (config: rollout.agent.agent_loop_manager_class)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(TurnRowsWorker)
