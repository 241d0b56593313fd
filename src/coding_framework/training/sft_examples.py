"""The examples of SFT: drawn by role, kept apart from held-out tasks, turned into token ids."""

from __future__ import annotations

import math
import os
import pickle
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from coding_framework.agents.policies import prompt_ids
from coding_framework.agents.prompts import (
    PROMPT_VERSION,
    messages_for_example,
    render_answer,
)
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.monitoring.progress import Progress
from coding_framework.store.events import log
from coding_framework.training.sft_config import SFTConfig
from coding_framework.types import PromptVersion, Record, Role, Split, TrainingExample

ROLES = (Role.GENERATOR, Role.OPTIMIZER)
_CHUNK = 32
_A_PROCESS = 500
"""Examples for which a process is worth its start."""
_here: dict[str, Any] = {}
"""What a process of the pool tokenises with."""


class TokenizedExample(Record):
    """An example as the trainer takes it."""

    role: Role
    input_ids: tuple[int, ...]
    prompt_length: int

    @property
    def labels(self) -> list[int]:
        """-100 on the prompt: only the answer is learnt."""
        return [-100] * self.prompt_length + list(self.input_ids[self.prompt_length :])


def tokenize_example(
    tokenizer: Any, example: TrainingExample, prompts: PromptVersion = PROMPT_VERSION
) -> TokenizedExample:
    """Prompt and answer as sampling sees them; the answer ends with the token that stops it."""
    prompt = prompt_ids(tokenizer, messages_for_example(example, prompts))
    answer = tokenizer(render_answer(example), add_special_tokens=False)["input_ids"]
    ids = (*prompt, *answer, tokenizer.eos_token_id)
    return TokenizedExample(role=example.role, input_ids=ids, prompt_length=len(prompt))


def tokenize_examples(
    tokenizer: Any, examples: Sequence[TrainingExample], prompts: PromptVersion, processes: int
) -> list[TokenizedExample]:
    """All of them in their order, by so many processes where there is work for them: twelve
    thousand took one core of a fast machine two minutes, while the GPU waited.

    Raises InfrastructureError where a process is killed.
    """
    count = min(processes, len(examples) // _A_PROCESS)
    if count < 2:
        return [tokenize_example(tokenizer, e, prompts) for e in examples]
    chunks = [examples[k : k + _CHUNK] for k in range(0, len(examples), _CHUNK)]
    found: list[TokenizedExample] = []
    with (
        tempfile.NamedTemporaryFile(prefix="sft-tokenizer-") as file,
        Progress("tokenising", len(examples), "examples") as progress,
    ):
        # By a file: a process whose start takes more than a pipe holds keeps the next from its own
        # until it has imported everything, and 32 of them took 4 minutes one after the other.
        pickle.dump((tokenizer, prompts), file)
        file.flush()
        pool = ProcessPoolExecutor(count, get_context("spawn"), _begin, (file.name,))
        try:
            for done in pool.map(_tokenize_chunk, chunks):
                found += done
                progress.advance(len(done))
        except BrokenProcessPool as e:
            raise InfrastructureError(
                "a process that turns examples into tokens has ended: see that there is memory "
                "enough, and give the same command again"
            ) from e
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return found


def _begin(file: str) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the other cores have a process each
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the one that waits for this
    _here["tokenizer"], _here["prompts"] = pickle.loads(Path(file).read_bytes())


def _tokenize_chunk(examples: Sequence[TrainingExample]) -> list[TokenizedExample]:
    return [tokenize_example(_here["tokenizer"], e, _here["prompts"]) for e in examples]


def load_examples(
    config: SFTConfig, make: Callable[..., Sequence[TrainingExample]]
) -> list[TrainingExample]:
    """The examples of both roles from `make` (`data.examples.training_examples`).

    Raises UsageError where fewer are there than were asked for.
    """
    examples: list[TrainingExample] = []
    for role, count in _by_role(config).items():
        found = list(make(role, count, config.seed, max_steps=config.max_task_ops)) if count else []
        if len(found) < count:
            log.warning("fewer_examples", role=role, wanted=count, found=len(found))
            print(
                f"SFT: {count} {role.value} examples were asked for and {len(found)} are judged; "
                "`cuda-rl tasks build` judges more, which --task-scope all takes",
                file=sys.stderr,
            )
        examples += found
    if not examples:
        raise UsageError("there is no example to train on: ask for more, or for longer tasks")
    return examples


def load_held_out(
    config: SFTConfig,
    make: Callable[..., Sequence[TrainingExample]],
    extra: Sequence[TrainingExample] = (),
) -> list[TrainingExample]:
    """Examples of held-out tasks from `make` (`data.examples.held_out_examples`), the same for one
    seed; the roles in their proportion in training, so that the losses compare: in that of the
    settings, or of `extra` where nothing else is learnt."""
    by_role = _by_role(config)
    if not any(by_role.values()):
        by_role = {role: sum(e.role is role for e in extra) for role in by_role}
    share = config.held_out_examples / sum(by_role.values())
    examples: list[TrainingExample] = []
    for role, count in by_role.items():
        wanted = math.ceil(share * count)
        found = make(role, wanted, config.seed, max_steps=config.max_task_ops) if wanted else ()
        if len(found) < wanted:
            log.warning("fewer_held_out_examples", role=role, wanted=wanted, found=len(found))
        examples += found
    return examples


def check_apart(examples: Sequence[TrainingExample], held_out: Sequence[TrainingExample]) -> None:
    """Raises UsageError where a training example is of a held-out task, or a held-out one is not.
    The split itself is by function: see docs/data.md."""
    leaks = [e.id for e in examples if e.task.split is Split.HELD_OUT]
    wrong = [e.id for e in held_out if e.task.split is not Split.HELD_OUT]
    if leaks or wrong:
        raise UsageError(
            f"{len(leaks)} training examples are of held-out tasks and {len(wrong)} held-out ones "
            f"are not (first: {(leaks + wrong)[0]}): draw them with training_examples and "
            "held_out_examples"
        )


def _by_role(config: SFTConfig) -> dict[Role, int]:
    others = config.optimizer_examples
    return {
        Role.GENERATOR: config.num_examples,
        Role.OPTIMIZER: config.num_examples if others is None else others,
    }
