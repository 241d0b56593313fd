"""Who answers in an evaluation: a model in a folder, one behind a server, or answers in files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from coding_framework.errors import UsageError
from coding_framework.evaluation.answers import GivenAgent, answers_digest, matched, read_answers
from coding_framework.evaluation.eval_run import sample_seed
from coding_framework.evaluation.suites import EvalSuite
from coding_framework.run.eval_options import EvalOptions
from coding_framework.run.eval_sampling import Wanted
from coding_framework.store.checkpoints import file_digest
from coding_framework.store.folder import is_model, model_in
from coding_framework.store.model_card import card_of, check_card, prompts_for
from coding_framework.types import Message, Policy, PromptVersion, Role, SamplingParams
from coding_framework.wiring import make_agents, make_policies

_OF_MODELS = ("*.safetensors", "*.json", "*.jinja")
"""Weights, configuration, tokenizer."""


@dataclass(frozen=True)
class Speaker:
    """Who answers what."""

    name: str
    digest: str
    """Of the weights or of the answers. Of a server: of the folder that it is said to serve, where
    that is here, else "unverifiable: ..."."""
    prompts: PromptVersion | None
    """None: answers in files had none of ours."""
    answer_tokens: int | None
    """Most tokens of an answer; None likewise."""
    prompt_tokens: int | None
    """Most tokens of a prompt; None likewise."""
    wanted: Sequence[Wanted]


def speaker_of(
    model: str | None, suites: Sequence[EvalSuite], options: EvalOptions, stack: ExitStack
) -> Speaker:
    """A model's policies are closed with `stack`. model None: the answers of the options. Raises
    UsageError where there is no such model."""
    return _given(suites, options) if model is None else _asked(model, suites, options, stack)


def weights_of(model: str | None, options: EvalOptions) -> Path | None:
    """The folder that a card may lie in; None: of answers, or of a server whose model is no folder
    here, without --card. Raises UsageError where --card names a folder without one."""
    if options.card is not None:
        if card_of(options.card) is None:
            raise UsageError(f"--card {options.card}: there is no model_card.json in it")
        return options.card
    if model is None or (options.server is not None and not is_model(model)):
        return None
    return Path(options.adapter) if options.adapter is not None else model_in(Path(model))


def _given(suites: Sequence[EvalSuite], options: EvalOptions) -> Speaker:
    assert options.answers is not None
    answers = read_answers(options.answers)
    wanted = [
        Wanted(suite, entry, given.sample, {Role.GENERATOR: GivenAgent(given)})
        for suite in suites
        for entry, given in matched(suite, answers)
    ]
    name = f"answers of {options.answers}"
    return Speaker(
        name=name, digest=answers_digest(answers), prompts=None, answer_tokens=None,
        prompt_tokens=None, wanted=wanted,
    )  # fmt: skip


def _asked(
    model: str, suites: Sequence[EvalSuite], options: EvalOptions, stack: ExitStack
) -> Speaker:
    from coding_framework.agents.policies import prompt_limit
    from coding_framework.agents.prompts import PromptBudget

    weights = weights_of(model, options)
    prompts = options.prompts or prompts_for(weights, is_adapter=options.adapter is not None)
    card = check_card(weights, prompts) if weights is not None else None
    tokens = options.answer_tokens(prompts, card.answer_tokens if card is not None else None)
    wanted_limit = options.prompt_tokens(tokens)
    later_tokens = options.optimizer_tokens or tokens
    longest = max(tokens, later_tokens)
    policies, digest = _policies(model, options, stack, wanted_limit + longest)
    generator, optimizer = policies[Role.GENERATOR], policies[Role.OPTIMIZER]
    limit = prompt_limit(generator, wanted_limit, longest)
    budget = PromptBudget(limit, _counter(generator, options))
    sampling = SamplingParams(
        max_new_tokens=tokens,
        temperature=options.heat,
        top_p=options.top_p,
    )
    wanted = []
    for number in range(options.samples):
        for suite in suites:
            for entry in suite.tasks:
                seed = sample_seed(options.seed, entry.task.name, number)
                own = sampling.model_copy(update={"seed": seed})
                agents = make_agents(
                    generator,
                    own,
                    optimizer=optimizer,
                    optimizer_sampling=own.model_copy(update={"max_new_tokens": later_tokens}),
                    budget=budget,
                    prompts=prompts,
                    redraws=options.redraws,
                    redraw_temperature=options.redraw_temperature,
                )
                wanted.append(Wanted(suite, entry, number, agents))
    return Speaker(
        name=model, digest=digest, prompts=prompts, answer_tokens=tokens, prompt_tokens=limit,
        wanted=wanted,
    )  # fmt: skip


def _counter(policy: Policy, options: EvalOptions) -> Callable[[tuple[Message, ...]], int]:
    from coding_framework.agents.policies import prompt_ids, token_counter

    if options.tokenizer is None:
        return token_counter(policy)
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    return lambda messages: len(prompt_ids(tokenizer, messages))


def _policies(
    model: str, options: EvalOptions, stack: ExitStack, context: int
) -> tuple[Mapping[Role, Policy], str]:
    """Who speaks for each role, and the digest of the weights. Closed with `stack`. context: most
    tokens of a prompt and its answer together."""
    adapter = None if options.adapter is None else Path(options.adapter)
    if options.server is not None:
        from coding_framework.agents.policies import OpenAIPolicy

        policy = OpenAIPolicy(options.server, model)
        roles = (Role.GENERATOR, Role.OPTIMIZER)
        # A run that goes on may ask another address, or the folder itself.
        known = _digest(Path(model), adapter) if is_model(model) else ""
        return dict.fromkeys(roles, policy), known or f"unverifiable: {options.server}"
    from coding_framework.agents.models import resolve_model

    local = model_in(Path(model))
    has_roles = local.is_dir() and not is_model(local)
    folder = local if has_roles else resolve_model(str(local) if local.is_dir() else model)
    policies = make_policies(
        folder,
        stack,
        device=None if options.device == "auto" else options.device,
        dtype=options.dtype,
        adapter=adapter,
        max_context=context,
    )
    return policies, _digest(folder, adapter)


def _digest(folder: Path, adapter: Path | None) -> str:
    """Of a model's weights and those of its adapter."""
    return " ".join(weights_digest(path) for path in (folder, adapter) if path is not None)


def weights_digest(folder: Path) -> str:
    """Of all files below the folder that make the model, with an adapter a role those too."""
    files = sorted(path for kind in _OF_MODELS for path in folder.rglob(kind))
    said = [(str(p.relative_to(folder)), p.stat().st_size, file_digest(p)) for p in files]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()
