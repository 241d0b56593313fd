"""Puts the layers together: the factories that scripts, the command line and workers call.

`training` may not import `cuda`, and a rollout worker is another process: it is given
"coding_framework.wiring:make_judge" as text and builds its judge where it runs. Only here are the
parts of peer layers joined; nothing here decides anything.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, SecretBytes, ValidationError

from coding_framework.errors import UsageError, first_complaint
from coding_framework.paths import write_error
from coding_framework.types import (
    BackendChoice,
    BaselinesName,
    Config,
    DTypeName,
    Policy,
    PromptVersion,
    Role,
    SamplingParams,
    SandboxName,
)

if TYPE_CHECKING:
    from coding_framework.agents.policies import TransformersPolicy
    from coding_framework.agents.prompts import PromptBudget
    from coding_framework.cuda.judge import JudgeConfig
    from coding_framework.cuda.many.pool import JudgePool
    from coding_framework.orchestration.turn import Agent
    from coding_framework.training.reward_functions.cuda_performance_reward import (
        CUDAPerformanceReward,
    )
    from coding_framework.training.verl.ray_judge import RayJudgePool


class JudgeSettings(Config):
    """How to judge, as the command line and configurations say it."""

    backend: BackendChoice = "auto"
    """What runs the candidates: a GPU (cuda) or the emulator; auto takes a GPU where there is
    one."""
    sandbox: SandboxName = "auto"
    """Sandbox of the candidates' host code: auto takes the first that works here, no-docker the
    first that works and is not Docker; one that you name must work."""
    seed: int | None = Field(default=None, ge=0)
    """Seed of the inputs: an equal seed draws equal inputs. Default: secret inputs."""
    workers: int | None = Field(default=None, ge=1)
    """Processes that judge. Default: one a core, of each node with --ray."""
    baselines: BaselinesName = "eager"
    """Which times of PyTorch are taken beside the kernel's, on a GPU: none, eager, with tf32 eager
    in TF32 too, with compiled torch.compile too, all four, or these with max-autotune."""
    profile: bool = False
    """Take hardware counters by Nsight Compute, on a GPU."""


def make_judge(
    backend: BackendChoice = "auto",
    sandbox: SandboxName = "auto",
    *,
    workers: int | None = None,
    secret: str | None = None,
    run_folder: str | Path | None = None,
    told_in: str | Path | None = None,
    kept_bytes: int | None = None,
    **judging: Any,
) -> JudgePool:
    """A judge for many candidates at once. Its processes start with the first candidate and end
    with `close`, or with this process.

    secret: in hexadecimal, for judges that have to draw alike; None: one of its own.
    run_folder: verdicts are kept there, with a secret of the run: its other judges find them again,
    and so does the run when it goes on after a stop. Other runs draw afresh.
    told_in: a folder of the run that is told what the judge does; None: `run_folder`.
    kept_bytes: of the verdicts in `run_folder` at most; None: all are kept.
    judging: other fields of `JudgeConfig`. Raises UsageError for one that it does not have.
    """
    from coding_framework.cuda.many.pool import JudgePool
    from coding_framework.store.run_status import enclosing_run

    cache = None
    if run_folder is not None:
        cache = Path(run_folder) / "verdicts"
        secret = secret or run_secret(Path(run_folder))
    config = judge_config(secret, backend=backend, sandbox=sandbox, **judging)
    within = told_in if told_in is not None else run_folder
    return JudgePool(
        config,
        workers=workers or cores(),
        cache_folder=cache,
        cache_bytes=kept_bytes,
        told_to=enclosing_run(Path(within)) if within is not None else None,
    )


def judge_config(secret: str | None = None, **fields: Any) -> JudgeConfig:
    """The configuration of a judge for which the compiler writes naive kernels. secret: in
    hexadecimal. Raises UsageError for a field that it does not have."""
    from coding_framework.cuda.judge import JudgeConfig
    from coding_framework.cuda.timing.naive_kernels import NaiveWriter
    from coding_framework.data import kernels

    writer = NaiveWriter(
        function=f"{kernels.__name__}:{kernels.naive_of.__name__}", digest=kernels.compiler_digest()
    )
    drawn_from = None if secret is None else SecretBytes(bytes.fromhex(secret))
    try:
        return JudgeConfig(secret=drawn_from, **{"naive_writer": writer, **fields})
    except ValidationError as e:
        raise UsageError(f"the judge cannot be set so: {first_complaint(e, '')}") from e


def make_task_reader(
    sandbox: SandboxName = "auto",
) -> Callable[[dict[str, Any], threading.Event | None], dict[str, Any]]:
    """Reads tasks of callers in a sandbox (`deployment.read_problem`), a process each, which ends
    soon after the event is set. Raises UsageError for a sandbox that shuts too little out."""
    from coding_framework.cuda.sandbox import choose_sandbox
    from coding_framework.cuda.sandbox.python_child import PythonChild

    chosen = choose_sandbox(sandbox)
    answer = "coding_framework.deployment.read_problem:answer"
    PythonChild(chosen, answer)

    def read(asked: dict[str, Any], gone: threading.Event | None = None) -> dict[str, Any]:
        child = PythonChild(chosen, answer, gone=gone)
        try:
            found = json.loads(child.ask(json.dumps(asked).encode(), most_bytes=4 << 20))
            if not isinstance(found, dict):
                raise ValueError
            return found
        except (ValueError, RecursionError) as e:
            raise UsageError("the problem changed what its process answers") from e
        finally:
            child.stop()

    return read


def run_secret(folder: Path) -> str:
    """The secret of a run, in hexadecimal; drawn at the first call and kept for this user alone. No
    sandbox shows the folder. Raises InfrastructureError where it cannot be written."""
    path = folder / ".secret"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".secret-") as new:
                new.write(os.urandom(32).hex())
                new.flush()
                os.fsync(new.fileno())
                with suppress(FileExistsError):  # another process was first: its secret counts
                    os.link(new.name, path)
        return path.read_text()
    except OSError as e:
        raise write_error(path, e) from e


def make_ray_judge(settings: JudgeSettings, address: str, **judging: Any) -> RayJudgePool:
    """A judge on every node of the Ray cluster at `address` ("local": one on this machine). Where
    nodes have the resource `judge` they alone do. judging: as `make_judge` has it."""
    # read when Ray is imported: it would rebuild the environment of `uv run` on every node
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    from coding_framework.training.verl.ray_cluster import JUDGE, connect, disconnect, has_resource
    from coding_framework.training.verl.ray_judge import RayJudgePool

    joined = connect(address)
    try:
        arguments = {
            **settings.model_dump(),
            "secret": _secret_for_all(settings),
            **judging,
        }
        return RayJudgePool(
            "coding_framework.wiring:make_judge",
            arguments,
            jobs_per_node=settings.workers,
            leave=joined,
            resource=JUDGE if has_resource(JUDGE) else None,
        )
    except BaseException:
        if joined:
            disconnect()
        raise


def _secret_for_all(settings: JudgeSettings) -> str | None:
    """For judges that draw alike; None where a seed says what is drawn."""
    return os.urandom(32).hex() if settings.seed is None else None


def make_cluster_judge(
    factory: str, arguments: Mapping[str, Any], *, nodes: int, jobs_per_node: int
) -> RayJudgePool:
    """A judge on each of so many nodes that have the resource `judge`. `arguments` must name a
    run_folder that all nodes see, or a seed, so that all draw alike."""
    from coding_framework.training.verl.ray_judge import RayJudgePool

    return RayJudgePool(
        factory, arguments, nodes=nodes, jobs_per_node=jobs_per_node, resource="judge"
    )


def make_reward(preset: str = "weighted") -> CUDAPerformanceReward:
    """The reward of that preset; raises UsageError with the choices."""
    from coding_framework.training.reward_functions.cuda_performance_reward import (
        CUDAPerformanceReward,
    )

    return CUDAPerformanceReward(preset)


def make_policies(
    folder: Path,
    stack: ExitStack,
    *,
    device: str | None = None,
    dtype: DTypeName = "auto",
    adapter: Path | None = None,
    max_context: int = 4096,
) -> dict[Role, TransformersPolicy]:
    """What speaks for each role: one model for both, or an adapter each, as training left it in
    `folder`; `adapter` goes on a model for both. Closed with `stack`. max_context: most tokens of a
    prompt and its answer together. Raises UsageError where there is no model."""
    from coding_framework.agents.policies import TransformersPolicy
    from coding_framework.store.folder import base_of_adapter
    from coding_framework.training.agent_specializer import AgentSpecializer, role_models

    found = role_models(folder)

    def load(own: str | None) -> TransformersPolicy:
        model = base_of_adapter(own) if own is not None else found.model
        policy = TransformersPolicy(
            model, adapter=own or adapter, dtype=dtype, device=device, max_context=max_context
        )
        stack.callback(policy.close)
        return policy

    return AgentSpecializer(found.specialization).policies(load)


def make_agents(
    generator: Policy,
    sampling: SamplingParams,
    *,
    optimizer: Policy | None = None,
    optimizer_sampling: SamplingParams | None = None,
    budget: PromptBudget | None = None,
    prompts: PromptVersion = "v1",
    redraws: int = 0,
    redraw_temperature: float | None = None,
) -> dict[Role, Agent]:
    """Generator and optimizer; one policy and sampling for both unless the optimizer has its own.
    Prompts over the budget are trimmed by rule. redraws, redraw_temperature: as
    `agents.answers.RoleAgent` has them."""
    from coding_framework.agents.generator import GeneratorAgent
    from coding_framework.agents.optimizer import OptimizerAgent

    how: dict[str, Any] = {
        "budget": budget, "prompts": prompts, "redraws": redraws,
        "redraw_temperature": redraw_temperature,
    }  # fmt: skip
    return {
        Role.GENERATOR: GeneratorAgent(generator, sampling, **how),
        Role.OPTIMIZER: OptimizerAgent(
            optimizer or generator, optimizer_sampling or sampling, **how
        ),
    }


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
