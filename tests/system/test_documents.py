"""What the users' documents promise: each row of documents.tsv has a test that does what a reader
would do, and docs/documents.md is made of the rows.

    .venv/bin/python tests/system/test_documents.py    # writes docs/documents.md anew
"""

from __future__ import annotations

import ast
import csv
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ROWS = Path(__file__).with_name("documents.tsv")
PAGE = ROOT / "docs/documents.md"
STATES = {
    "holds": "as the documents say",
    "differs": "otherwise on purpose, for the reason given",
    "in part": "what the note says is missing",
    "not yet": "nothing is there that could be tried",
}

pytestmark = pytest.mark.system


def rows() -> list[dict[str, str]]:
    with ROWS.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def page() -> str:
    """docs/documents.md."""
    counts = Counter(row["state"] for row in rows())
    lines = [
        "# What the users' documents promise",
        "",
        "Users come with documents of 2024 (status, training guide, critique, architecture guide).",
        f"Each of their {len(rows())} promises is a row of the table below.",
        "`tests/system/test_documents.py` makes it of `tests/system/documents.tsv`, and checks",
        "that every place and every test is there.",
        "",
        *(f"- {state} ({counts[state]}): {meaning}." for state, meaning in STATES.items()),
        "",
        "| # | promise | state | where | test that shows it | note |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows():
        where = f"`{row['where']}`" if row["where"] else ""
        test = f"`{row['test']}`" if row["test"] else ""
        cells = (row["number"], row["promise"], row["state"], where, test, row["note"])
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def defined(file: Path) -> set[str]:
    """Names of functions, classes and variables at the top of a module."""
    found: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {t.id for t in targets if isinstance(t, ast.Name)}
    return found


def run_python(code: str, folder: Path, **variables: str) -> str:
    """The output of a snippet in a new process, as a reader would run it."""
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=folder, text=True, check=False,
        capture_output=True, env={**os.environ, **variables},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout


# --- the table ------------------------------------------------------------------------------------


def test_every_promise_has_a_row_and_a_state() -> None:
    assert [int(row["number"]) for row in rows()] == list(range(1, 239))
    assert {row["state"] for row in rows()} <= STATES.keys()
    unsaid = [r["number"] for r in rows() if r["state"] != "holds" and not r["note"]]
    assert unsaid == []


def test_every_place_that_is_named_is_there() -> None:
    missing = []
    for row in rows():
        place, _, name = row["where"].partition(":")
        file = ROOT / place
        if place and (not file.exists() or (name and name not in defined(file))):
            missing.append(f"{row['number']}: {row['where']}")
    assert missing == []


def test_every_row_has_a_test_that_is_there_unless_it_is_not_yet() -> None:
    names: dict[str, set[str]] = {}
    missing = []
    for row in rows():
        if row["state"] == "not yet":
            assert row["test"] == "", row["number"]
            continue
        place, _, name = row["test"].partition("::")
        if place not in names:
            names[place] = defined(ROOT / place) if (ROOT / place).is_file() else set()
        if not name.startswith("test_") or name not in names[place]:
            missing.append(f"{row['number']}: {row['test']}")
    assert missing == []


def test_the_page_is_made_of_the_rows() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python tests/system/test_documents.py"


# --- the documents' snippets ----------------------------------------------------------------------


def test_the_compiler_compiles_as_the_documents_call_it(tmp_path: Path) -> None:
    said = run_python(
        '''
        import asyncio, json
        kernel_code = """#include <torch/extension.h>
        __global__ void twice(const float* x, float* y, int n) {
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) y[i] = 2.0f * x[i];
        }
        torch::Tensor forward(torch::Tensor x) {
          auto y = torch::empty_like(x);
          int n = x.numel();
          twice<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
          return y;
        }
        PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
        """

        async def as_written():
            from coding_framework.cuda.compiler import CUDACompiler

            compiler = CUDACompiler()
            result = await compiler.compile_kernel(kernel_code)
            if result.success:
                return [result.kernel_name, result.binary_path, result.latency_s]

        print(json.dumps(asyncio.run(as_written())))
        ''',
        tmp_path,
    )
    name, folder, latency = json.loads(said)
    assert "twice" in name
    assert (Path(folder) / "device.ptx").exists()
    assert latency >= 0


async def test_the_benchmarker_runs_as_the_documents_write_it() -> None:
    from coding_framework.cuda.benchmarker import CUDABenchmarker
    from coding_framework.cuda.compiler import CUDACompiler

    compiler = CUDACompiler()
    benchmarker = CUDABenchmarker()
    result = await compiler.compile_kernel((ROOT / "examples/relu.cu").read_text())
    assert result.success
    benchmark = await benchmarker.benchmark_kernel(result.binary_path, result.kernel_name)
    assert benchmark.kernel_ms > 0
    assert benchmark.achieved_gbps
    assert not benchmark.checked
    assert (benchmark.eager_ms, benchmark.speedup) == (None, None)
    longer = await benchmarker.benchmark_kernel(result.binary_path, inputs=[(512, 512)])
    assert longer.bytes_moved == 2 * 4 * 512 * 512


def test_the_safety_module_has_the_names_of_the_documents() -> None:
    from coding_framework.cuda import safety_wrapper
    from coding_framework.cuda.sandbox import SANDBOXES

    assert safety_wrapper.DockerSandbox is SANDBOXES["docker"]
    assert callable(safety_wrapper.SafetyWrapper().inspect)
    assert callable(safety_wrapper.SecurityValidator().sanitize)


def test_the_reward_is_made_as_the_documents_call_it() -> None:
    from coding_framework.training.reward_functions.cuda_performance_reward import (
        CUDAPerformanceReward,
    )
    from coding_framework.types import Status
    from support.made_conversations import make_state, make_turn, make_verdict

    reward_function = CUDAPerformanceReward()
    paid = reward_function(make_state(make_turn(0, make_verdict(Status.CORRECT, 2.0))))
    limits = {part.name: part.limit for part in paid.parts} if paid else {}
    assert limits["compilation"] == limits["correctness"] == 0.30
    assert (limits["performance"], limits["efficiency"], limits["quality"]) == (0.25, 0.10, 0.05)


def test_the_trainer_is_made_as_the_documents_call_it(tmp_path: Path) -> None:
    """Three arguments; the tasks are found. The slow tests let it train."""
    said = run_python(
        f"""
        from coding_framework.training.verl_integration import MultiAgentVERLTrainer
        from coding_framework.training.multi_turn_conversation import MultiTurnConversationManager
        from coding_framework.training.reward_functions.cuda_performance_reward import (
            CUDAPerformanceReward,
        )
        from coding_framework.agents.generator import GeneratorAgent
        from coding_framework.agents.optimizer import OptimizerAgent
        from coding_framework.training.rl_config import MultiTurnRLConfig
        from pathlib import Path

        model = Path({str(tmp_path)!r}) / "model"
        model.mkdir()
        (model / "config.json").write_text("{{}}")
        config = MultiTurnRLConfig.cpu(model_path=str(model), compute_dtype="float32")
        async def judge(task, code): ...
        conversation_manager = MultiTurnConversationManager(
            GeneratorAgent(None), OptimizerAgent(None), judge=judge
        )
        reward_function = CUDAPerformanceReward()

        trainer = MultiAgentVERLTrainer(config, conversation_manager, reward_function)
        print(len(trainer._feed.tasks))
        """,
        tmp_path,
    )
    assert int(said) == 8


# --- rows without a test elsewhere ----------------------------------------------------------------


def test_a_state_tells_how_its_conversation_went() -> None:
    from coding_framework.types import Status
    from support.made_conversations import make_state, make_turn, make_verdict

    state = make_state(
        make_turn(0, make_verdict(Status.COMPILE_ERROR), "a"),
        make_turn(1, make_verdict(Status.CORRECT, 1.5), "b"),
    )
    assert state.performance_trajectory == (None, 1.5)
    assert [turn.index for turn in state.failed_attempts] == [0]


def test_the_data_layers_names_are_one_record() -> None:
    from coding_framework.data.data_pipeline import (
        CUDADataLoader,
        CUDADataPipeline,
        CUDATrainingExample,
        DataPipelineConfig,
        TrainingExample,
    )

    assert CUDATrainingExample is TrainingExample
    (batch,) = CUDADataLoader(CUDADataPipeline(DataPipelineConfig(batch_size=2)), batches=1)
    assert all(isinstance(example, CUDATrainingExample) for example in batch)


def test_the_curriculums_numbers_are_those_of_the_documents() -> None:
    from coding_framework.data.curriculum_manager import PRESETS

    def numbers(preset: str) -> list[tuple[float, float, float | None, int]]:
        found = [tier.criteria for tier in PRESETS[preset]]
        return [
            (c.min_compile_rate, c.min_success_rate, c.min_mean_speedup, c.min_episodes)
            for c in found
        ]

    assert numbers("three_tier") == [
        (0.80, 0.60, 1.2, 100), (0.75, 0.50, 1.8, 200), (0.70, 0.40, 2.5, 300),
    ]  # fmt: skip
    assert {bars[:2] for bars in numbers("four_tier")} == {(0.90, 0.75)}


def test_every_tier_of_a_curriculum_has_tasks_that_ship_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coding_framework.data.curriculum_manager import PRESETS, CurriculumManager
    from coding_framework.data.data_pipeline import CUDADataPipeline, DataPipelineConfig
    from coding_framework.training.recipes import read_recipe

    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path))  # nothing was judged here
    scope = read_recipe(ROOT / "configs/documents.yaml").run["task_scope"]
    tasks = CUDADataPipeline(DataPipelineConfig(scope=scope)).draw_tasks(256)
    for preset in ("three_tier", "four_tier"):
        assert CurriculumManager(tasks, preset).tiers == tuple(t.name for t in PRESETS[preset])
    assert min(Counter(task.tier for task in tasks).values()) >= 50


def test_a_tier_without_tasks_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    import structlog

    from coding_framework.data.curriculum_manager import CurriculumManager
    from support.made_conversations import make_task

    with structlog.testing.capture_logs() as logged:
        CurriculumManager([make_task()], "three_tier")
    assert [line["left_out"] for line in logged] == [["medium", "hard"]]


def test_the_documents_recipe_has_their_numbers() -> None:
    from coding_framework.training.recipes import read_recipe, rl_config

    rl = rl_config(read_recipe(ROOT / "configs/documents.yaml"), {})
    assert (rl.num_episodes, rl.num_gpus, rl.max_turns) == (200, 8, 3)
    assert (rl.prompts_per_step, rl.samples_per_prompt, rl.kl_coefficient) == (256, 4, 0.02)
    assert (rl.clip_ratio_low, rl.clip_high, rl.gae_gamma, rl.gae_lambda) == (0.2, 0.2, 1.0, 0.95)
    assert (rl.discount, rl.stop_reward, rl.curriculum) == (0.9, 0.8, "three_tier")
    assert rl.object_store_mib * 2**20 >= 50_000_000_000
    assert rl.overrides == ("actor_rollout_ref.actor.ppo_epochs=8",)


@pytest.mark.parametrize(
    "name",
    [
        "run_sft_training.py",
        "run_multiturn_rl_training.py",
        "launch_complete_cuda_training.py",
    ],
)
def test_wandb_is_a_flag_of_every_script(name: str) -> None:
    script: dict[str, Any] = runpy.run_path(str(ROOT / name))
    assert vars(script["parse"](["--wandb"]))["wandb"] is True
    assert vars(script["parse"](["--no-wandb"]))["wandb"] is False


def test_a_run_has_a_log_for_people(tmp_path: Path) -> None:
    code = f"""
        import structlog
        from pathlib import Path
        from coding_framework.monitoring.logs import configure_logging

        configure_logging(Path({str(tmp_path)!r}) / "log.jsonl")
        structlog.get_logger().info("rl_step", step=3)
    """
    run_python(code, tmp_path)
    (line,) = (tmp_path / "logs/training.log").read_text().splitlines()
    assert line.endswith("info: rl_step step=3")


def test_what_the_documents_check_can_be_imported() -> None:
    from importlib.metadata import version
    from importlib.util import find_spec

    for name in ("torch", "transformers", "datasets", "peft", "accelerate", "verl", "bitsandbytes"):
        assert find_spec(name) is not None, name
    assert version("verl") == "0.9.1"
    assert version("torch").startswith("2.11.")
    assert int(version("numpy").split(".")[0]) == 2


def test_the_extra_verl_is_in_the_lock() -> None:
    """uv plans it for this Python and platform: vLLM and CuPy come, nothing that is here goes."""
    from importlib.util import find_spec

    places = (os.environ["PATH"], str(ROOT / ".tools/bin"), str(Path.home() / ".local/bin"))
    uv = shutil.which("uv", path=os.pathsep.join(places))
    assert uv is not None
    plan = subprocess.run(
        [uv, "sync", "--frozen", "--inexact", "--extra", "verl", "--dry-run", "--offline"],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "UV_PROJECT_ENVIRONMENT": sys.prefix},
    )  # fmt: skip
    assert plan.returncode == 0, plan.stderr
    lines = [line.strip() for line in plan.stderr.splitlines() if "coding-framework" not in line]
    coming = {line[2:].split("==")[0] for line in lines if line.startswith("+ ")}
    for package, module in (("vllm", "vllm"), ("cupy-cuda13x", "cupy")):
        assert package in coming or find_spec(module) is not None
    assert not [line for line in lines if line.startswith("- ")]


def test_the_specification_names_what_is_there() -> None:
    text = (ROOT / "cuda_rl_system_spec.md").read_text()
    for name in (
        "CUDACompiler", "CUDABenchmarker", "MultiTurnConversationManager", "CUDAPerformanceReward",
        "MultiAgentVERLTrainer", "SakanaDataLoader", "CurriculumManager", "CUDASafetyAnalyzer",
        "CUDAPitfallDetector", "AgentSpecializer", "SafetyWrapper", "SecurityValidator",
        "DockerSandbox", "CUDADataPipeline", "KernelCompilationCache", "CUDAConversationState",
        "CUDAKernelWorkflow", "ABTestManager", "ABTestConfig", "TestVariant", "TrafficRouter",
        "DeploymentManager", "ModelServer",
    ):  # fmt: skip
        (line,) = [row for row in text.splitlines() if row.startswith(f"| `{name}` |")]
        file = ROOT / line.split("`")[3]
        assert name in defined(file), line
    top = "src|tests|docs|configs|benchmarks|scripts"
    named = set(re.findall(rf"[`(]((?:{top})/[\w/.-]*\w)", text))
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert 3000 <= len(text.split()) <= 5000


def test_the_instructions_for_agents_name_what_is_there() -> None:
    text = (ROOT / "AGENTS.md").read_text()
    named = set(re.findall(r"[`(]((?:src|tests|docs)/[\w/.-]*\w)", text))
    named |= set(re.findall(r"\]\(([^)]+)\)", text))
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert "AGENTS.md" in (ROOT / "CLAUDE.md").read_text()


def test_the_style_is_that_of_the_documents() -> None:
    import tomllib

    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert found["ruff"]["line-length"] == 100
    assert found["mypy"]["strict"] is True


def test_tests_have_the_markers_and_folders_of_the_documents() -> None:
    import tomllib

    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    markers = {line.split(":")[0] for line in found["pytest"]["ini_options"]["markers"]}
    assert {"unit", "integration", "slow", "cuda"} <= markers
    assert all((ROOT / "tests" / name).is_dir() for name in ("unit", "integration", "system"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
