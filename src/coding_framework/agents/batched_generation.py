"""Token ids in, token ids and log-probs out: one decode loop shared by all waiting requests.

On 2 cores a language model answers many requests at once for little more than the price of one, so
requests are collected, prefilled together (equal prompts once) and decoded as one batch; a finished
one makes room for the next. Guaranteed: an answer comes from one set of weights (a swap waits until
the running ones have ended, while new ones wait for it); an answer with a seed does not depend on
what else is in the batch beyond floating-point rounding; a failure of the model reaches every
waiting caller as PolicyError. Not guaranteed: equal bits between batch sizes.

transformers' own continuous batching (5.10) has one seed for all requests, so that no answer could
be drawn again, and took 4.6 times the processor time on 2 cores (24 answers of 48 tokens to six
prompts of 200, SmolLM2-135M in float32: 53 s and 11 s).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import math
import random
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch

from coding_framework.agents.kv_slots import ATTENTION_NAME, KVSlots
from coding_framework.agents.threads import ThreadChoice
from coding_framework.errors import PolicyError, UsageError
from coding_framework.types import SamplingParams

FinishReason = Literal["stop", "length"]
_GATHER_S = 0.01
"""How long an idle generator waits for more requests before it starts: they come in groups."""
_IDLE_S = 2.0
"""After so long without a request the memory of keys and values goes back to the system: while RL
updates the policy, the trainer needs it."""
_PREFILL_TOKENS = 4096
"""Most tokens of one prefill forward, padding included: bounds its memory."""
_TOP = 256
"""Candidates looked at first for top_p; a row whose mass lies further out is sorted in full."""


class GeneratedIds(NamedTuple):
    """One answer. `logprobs` are under the distribution sampled from: after temperature, top_k and
    top_p; at temperature 0 under the model's own (temperature 1)."""

    response_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason


@dataclass
class GenerationStats:
    """Counts since the generator was made."""

    requests: int = 0
    prompt_tokens: int = 0
    prefilled_tokens: int = 0
    """Fewer than prompt_tokens where prompts are equal."""
    steps: int = 0


@dataclass(eq=False)
class _Request:
    prompt: tuple[int, ...]
    sampling: SamplingParams
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[GeneratedIds]
    rng: random.Random
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


@dataclass(eq=False)
class _Swap:
    state: Mapping[str, torch.Tensor]
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


class BatchedGenerator:
    """A causal language model of transformers (Llama, Qwen2 and the like) behind a queue.

    The generator owns `model`: it sets eval mode and its own attention function. `threads` bounds
    torch's threads in the whole process; None leaves them as they are. On a CPU it decodes with
    fewer where other processes take the cores.
    """

    def __init__(
        self,
        model: Any,
        eos_token_ids: Sequence[int],
        *,
        max_batch: int = 48,
        max_context: int = 4096,
        threads: int | None = None,
    ) -> None:
        layer_types = set(getattr(model.config, "layer_types", None) or ["full_attention"])
        if layer_types != {"full_attention"}:
            raise UsageError(
                f"{type(model).__name__} mixes attention kinds {sorted(layer_types)}: choose a "
                "model with full attention in every layer (Llama, Qwen2)"
            )
        if threads is not None:
            torch.set_num_threads(threads)
        self._model = model.eval()
        model.set_attn_implementation(ATTENTION_NAME)
        self._head = model.get_output_embeddings()
        self._eos = frozenset(eos_token_ids)
        self._max_batch = max_batch
        self.max_context: int = min(max_context, model.config.max_position_embeddings)
        self._device = next(model.parameters()).device
        self._cache = KVSlots(model.config, max_batch, model.dtype, self._device)
        self._waiting: deque[_Request] = deque()
        self._swaps: deque[_Swap] = deque()
        self._running: list[_Request] = []
        self._next_ids = torch.zeros(max_batch, dtype=torch.long, device=self._device)
        self._wake = threading.Condition()
        self._closed = False
        self._threads = ThreadChoice(1 if self._device.type != "cpu" else None)
        self.stats = GenerationStats()
        self._thread = threading.Thread(target=self._serve, name="generation", daemon=True)
        self._thread.start()

    # --- for callers ------------------------------------------------------------------------

    async def generate_ids(
        self, prompt_ids: Sequence[int], sampling: SamplingParams
    ) -> GeneratedIds:
        """Answer one prompt. Raises UsageError where prompt and answer exceed the context, and
        PolicyError where the model fails or the generator is closed."""
        if not prompt_ids:
            raise UsageError("the prompt is empty: give at least one token")
        if len(prompt_ids) + sampling.max_new_tokens > self.max_context:
            raise UsageError(
                f"{len(prompt_ids)} prompt tokens and {sampling.max_new_tokens} new ones exceed "
                f"the context of {self.max_context}: shorten the prompt or the answer"
            )
        loop = asyncio.get_running_loop()
        seed = sampling.seed if sampling.seed is not None else random.SystemRandom().getrandbits(63)
        request = _Request(
            tuple(prompt_ids), sampling, loop, loop.create_future(), random.Random(seed)
        )
        with self._wake:
            if self._closed:
                raise PolicyError("the generator is closed: make a new one")
            self._waiting.append(request)
            self._wake.notify()
        return await request.future

    def load_state_dict(self, state: Mapping[str, torch.Tensor], timeout_s: float = 600.0) -> None:
        """Replace weights by name (a part of them is allowed, an unknown name is not). Blocks until
        the running answers have ended and the swap is done."""
        swap = _Swap(state)
        with self._wake:
            if self._closed:
                raise PolicyError("the generator is closed: make a new one")
            self._swaps.append(swap)
            self._wake.notify()
        if not swap.done.wait(timeout_s):
            raise PolicyError(f"the weights were not swapped within {timeout_s:.0f} s")
        if swap.error is not None:
            raise swap.error

    def close(self) -> None:
        """Stop; callers that wait get PolicyError."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    # --- the loop (one thread owns model, cache and `_running`) --------------------------------

    def _serve(self) -> None:
        while self._wait_for_work():
            try:
                with torch.inference_mode():
                    self._admit()
                    if self._running:
                        self._threads.set()
                        self._step()
            except Exception as e:  # the boundary: whatever broke, every caller must hear of it
                self._fail(PolicyError(f"the model failed to answer: {e}"))
        self._fail(PolicyError("the generator was closed while it answered"))

    def _wait_for_work(self) -> bool:
        with self._wake:
            while not (self._closed or self._running or self._waiting or self._swaps):
                if not self._wake.wait(_IDLE_S if self._cache.capacity else None):
                    self._release()
            if self._closed:
                return False
            idle = not self._running and not self._swaps
        if idle:
            self._gather()
        if self._swaps and not self._running:
            self._swap_weights()
        return True

    def _release(self) -> None:
        self._cache.release()
        with contextlib.suppress(AttributeError):  # glibc alone has it, and keeps what was freed
            ctypes.CDLL(None).malloc_trim(0)

    def _gather(self) -> None:
        """Requests of one group arrive within milliseconds: start when none came for a while."""
        seen = 0
        while seen != len(self._waiting) < self._max_batch:
            seen = len(self._waiting)
            time.sleep(_GATHER_S)

    def _swap_weights(self) -> None:
        while self._swaps:
            swap = self._swaps.popleft()
            try:
                result = self._model.load_state_dict(swap.state, strict=False)
                if result.unexpected_keys:
                    raise PolicyError(
                        f"unknown weights {result.unexpected_keys[:3]} for this model: they must "
                        "have the names of its state_dict"
                    )
            except Exception as e:
                swap.error = e
            swap.done.set()

    def _fail(self, error: PolicyError) -> None:
        with self._wake:
            failed = [*self._running, *self._waiting]
            self._waiting.clear()
            self._running.clear()
            for swap in self._swaps:
                swap.error = error
                swap.done.set()
            self._swaps.clear()
        for request in failed:
            _deliver(request, error)

    def _admit(self) -> None:
        """Move waiting requests into free slots and prefill them, unless a swap is due."""
        with self._wake:
            free = 0 if self._swaps else self._max_batch - len(self._running)
            new = [self._waiting.popleft() for _ in range(min(free, len(self._waiting)))]
        new = [r for r in new if not r.future.cancelled()]
        if not new:
            return
        first = len(self._running)
        new.sort(key=lambda r: (len(r.prompt), r.prompt))
        self._running.extend(new)
        self._cache.reserve(max(len(r.prompt) + r.sampling.max_new_tokens for r in self._running))
        self.stats.requests += len(new)
        leaders: dict[tuple[int, ...], list[int]] = {}
        for slot, request in enumerate(new, start=first):
            leaders.setdefault(request.prompt, []).append(slot)
            self.stats.prompt_tokens += len(request.prompt)
        logits = torch.empty(0)
        for chunk in _chunks(list(leaders.items())):
            logits = self._prefill([p for p, _ in chunk], [slots[0] for _, slots in chunk])
            rows = [row for row, (_, slots) in enumerate(chunk) for _ in slots]
            slots = [slot for _, group in chunk for slot in group]
            for _, group in chunk:
                for copy in group[1:]:
                    self._cache.copy(group[0], copy)
            self._take(logits[rows], slots)
        self._retire()

    def _prefill(self, prompts: list[tuple[int, ...]], slots: list[int]) -> torch.Tensor:
        """Logits (prompts, vocabulary) of the first new token of each."""
        longest = max(map(len, prompts))
        ids = torch.zeros(len(prompts), longest, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.tensor(prompt)
        lengths = [len(p) for p in prompts]
        self._cache.begin_prefill(slots, lengths)
        self.stats.prefilled_tokens += sum(lengths)
        positions = torch.arange(longest, device=self._device)[None].expand(len(prompts), -1)
        hidden = self._hidden(ids.to(self._device), positions, None)
        rows = torch.arange(len(prompts), device=self._device)
        last = hidden[rows, torch.tensor(lengths, device=self._device) - 1]
        return self._head(last).float()  # type: ignore[no-any-return]

    def _step(self) -> None:
        used = len(self._running)
        positions = self._cache.begin_decode(used)
        hidden = self._hidden(self._next_ids[:used, None], positions[:, None], self._cache.mask)
        self._take(self._head(hidden[:, 0]).float(), list(range(used)))
        self.stats.steps += 1
        self._retire()

    def _hidden(
        self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        out = self._model.base_model(
            input_ids=ids,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            slot_mask=mask,
        )
        return out.last_hidden_state  # type: ignore[no-any-return]

    def _take(self, logits: torch.Tensor, slots: list[int]) -> None:
        """Sample one token for each of `slots` from its row of logits (float32)."""
        requests = [self._running[slot] for slot in slots]
        tokens, logprobs = sample_tokens(
            logits, [r.sampling for r in requests], [r.rng.random() for r in requests]
        )
        self._next_ids[torch.tensor(slots, device=self._device)] = tokens
        for request, token, logprob in zip(
            requests, tokens.tolist(), logprobs.tolist(), strict=True
        ):
            request.ids.append(token)
            request.logprobs.append(logprob)

    def _retire(self) -> None:
        """Deliver what is finished; the last running slot moves into each hole."""
        for slot in range(len(self._running) - 1, -1, -1):
            request = self._running[slot]
            stopped = request.ids[-1] in self._eos
            full = len(request.ids) >= request.sampling.max_new_tokens
            if not (stopped or full or request.future.cancelled()):
                continue
            last = len(self._running) - 1
            if slot != last:
                self._cache.copy(last, slot)
                self._next_ids[slot] = self._next_ids[last]
                self._running[slot] = self._running[last]
            self._running.pop()
            reason: FinishReason = "stop" if stopped else "length"
            _deliver(request, GeneratedIds(tuple(request.ids), tuple(request.logprobs), reason))


def _deliver(request: _Request, result: GeneratedIds | PolicyError) -> None:
    def settle() -> None:
        if request.future.done():
            return
        if isinstance(result, PolicyError):
            request.future.set_exception(result)
        else:
            request.future.set_result(result)

    try:
        request.loop.call_soon_threadsafe(settle)
    except RuntimeError:  # the caller's event loop is closed: nobody waits any more
        return


def _chunks(
    prompts: list[tuple[tuple[int, ...], list[int]]],
) -> list[list[tuple[tuple[int, ...], list[int]]]]:
    """Split prompts (sorted by length) so that no prefill exceeds `_PREFILL_TOKENS`."""
    chunks: list[list[tuple[tuple[int, ...], list[int]]]] = []
    for item in prompts:
        if chunks and (len(chunks[-1]) + 1) * len(item[0]) <= _PREFILL_TOKENS:
            chunks[-1].append(item)
        else:
            chunks.append([item])
    return chunks


def sample_tokens(
    logits: torch.Tensor, sampling: Sequence[SamplingParams], uniforms: Sequence[float]
) -> tuple[torch.Tensor, torch.Tensor]:
    """One token and its log-prob for each row of `logits` (rows, vocabulary; float32).

    By inversion: row i takes the token at which the cumulative probability passes `uniforms[i]`, so
    a row's token depends on its own number alone. Returns (rows,) int64 and (rows,) float32.
    """
    temperature = torch.tensor([s.temperature or 1.0 for s in sampling], device=logits.device)
    scaled = logits / temperature[:, None]
    for row, s in enumerate(sampling):
        if s.temperature > 0 and (0 < s.top_k < logits.shape[1] or s.top_p < 1):
            scaled[row] = _truncated(scaled[row], s)
    logprobs = torch.log_softmax(scaled, dim=-1)
    greedy = torch.tensor([s.temperature == 0 for s in sampling], device=logits.device)
    cumulative = logprobs.exp().cumsum(dim=-1, dtype=torch.float64)
    wanted = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)
    drawn = torch.searchsorted(cumulative, (wanted * cumulative[:, -1])[:, None], right=True)
    drawn = drawn[:, 0].clamp_(max=logits.shape[1] - 1)
    tokens = torch.where(greedy, scaled.argmax(dim=-1), drawn)
    return tokens, logprobs.gather(1, tokens[:, None])[:, 0]


def _truncated(row: torch.Tensor, s: SamplingParams) -> torch.Tensor:
    """The row with everything outside top_k and top_p at -inf; the best token always stays."""
    kept = torch.full_like(row, -math.inf)
    wanted = s.top_k or row.numel()
    count = min(wanted, _TOP) if s.top_p < 1 else wanted
    while True:
        values, indices = row.topk(min(count, row.numel()))
        total = torch.logsumexp(row if wanted >= row.numel() else row.topk(wanted).values, dim=-1)
        mass_before = (values - total).exp().cumsum(-1) - (values - total).exp()
        inside = mass_before < s.top_p
        if not bool(inside[-1]) or values.numel() >= min(wanted, row.numel()):
            kept[indices[inside]] = values[inside]
            return kept
        count = wanted
