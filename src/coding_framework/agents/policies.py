"""Models that answer: in this process, behind an OpenAI-compatible server, or scripted for tests.

All keep to `types.Policy`. Heavy imports happen when a policy is made.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coding_framework.agents.chat_request import chat_request
from coding_framework.errors import PolicyAwayError, PolicyError, UsageError
from coding_framework.store.events import log
from coding_framework.types import DTypeName, Generation, Message, Policy, SamplingParams

if TYPE_CHECKING:
    import torch


MOST_ASKED = 1024
"""Requests that a server is handed at once. asyncio's own threads are four more than the cores."""


class TransformersPolicy:
    """A Hugging Face folder in this process; requests that wait are answered as one batch.

    `adapter`: a PEFT folder, merged into the weights. `dtype` auto: bfloat16 where the hardware
    computes in it (a GPU, AVX512_BF16, AMX), else float32. Close it to free the memory.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        adapter: Path | str | None = None,
        dtype: DTypeName = "auto",
        device: str | None = None,
        max_batch: int = 48,
        max_context: int = 4096,
        threads: int | None = None,
    ) -> None:
        from coding_framework.agents.batched_generation import BatchedGenerator

        self.folder = Path(folder)
        model, self.tokenizer = load_model(folder, adapter=adapter, dtype=dtype, device=device)
        self._generator: BatchedGenerator = BatchedGenerator(
            model,
            stop_ids(model, self.tokenizer),
            max_batch=max_batch,
            max_context=max_context,
            threads=threads,
        )
        self._eos = stop_ids(model, self.tokenizer)

    async def generate(self, messages: tuple[Message, ...], sampling: SamplingParams) -> Generation:
        """One answer to a chat. Raises PolicyError where the model fails."""
        prompt = prompt_ids(self.tokenizer, messages)
        answer = await self._generator.generate_ids(prompt, sampling)
        shown = [t for t in answer.response_ids if t not in self._eos]
        return Generation(
            text=self.tokenizer.decode(shown),
            prompt_ids=tuple(prompt),
            response_ids=answer.response_ids,
            logprobs=answer.logprobs,
            finish_reason=answer.finish_reason,
        )

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Replace weights once the running answers have ended."""
        self._generator.load_state_dict(state)

    @property
    def context(self) -> int:
        """Tokens of a prompt with its answer, at most."""
        return int(self._generator.max_context)

    def count(self, messages: tuple[Message, ...]) -> int:
        """Tokens of a prompt, for a `PromptBudget`."""
        return len(prompt_ids(self.tokenizer, messages))

    @property
    def stats(self) -> Any:
        """Counts and busy time of the decode loop (`GenerationStats`)."""
        return self._generator.stats

    def close(self) -> None:
        """Stop the decode loop and free the model."""
        self._generator.close()
        del self._generator


def fast_dtype(device: str) -> str:
    """bfloat16 where the hardware computes in it. Elsewhere float32, which is then faster. Linux is
    asked: torch has no public question for it, and is imported in seconds."""
    if device.startswith("cuda"):
        return "bfloat16"
    cpu = Path("/proc/cpuinfo")
    can = set(cpu.read_text().split()) if cpu.exists() else set()
    return "bfloat16" if can & {"avx512_bf16", "amx_tile"} else "float32"


def load_model(
    folder: Path | str,
    *,
    adapter: Path | str | None = None,
    dtype: DTypeName = "auto",
    device: str | None = None,
) -> tuple[Any, Any]:
    """(model, tokenizer) of a Hugging Face folder, with an adapter merged where one is given.

    Raises UsageError where the folder is no model.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # On Hopper torch prefers cuDNN's attention, which builds a plan for each length: each token.
    torch.backends.cuda.enable_cudnn_sdp(False)
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    wanted = getattr(torch, fast_dtype(place) if dtype == "auto" else dtype)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=wanted)
        if adapter is not None:
            from peft import PeftModel

            model = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
    except (OSError, ValueError) as e:
        raise UsageError(f"no model can be loaded from {adapter or folder}: {_first(e)}") from e
    if tokenizer.chat_template is None:
        raise UsageError(f"the model in {folder} has no chat template: choose an instruct model")
    return model.to(place).eval(), tokenizer


def prompt_ids(tokenizer: Any, messages: tuple[Message, ...]) -> list[int]:
    """Token ids of a chat, ready for the answer; the same in training and sampling."""
    text = tokenizer.apply_chat_template(
        [m.model_dump() for m in messages], tokenize=False, add_generation_prompt=True
    )
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def stop_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Tokens that end an answer: the tokenizer's and the generation config's."""
    more = model.generation_config.eos_token_id
    ids = {tokenizer.eos_token_id, *(more if isinstance(more, list) else [more])}
    return tuple(sorted(i for i in ids if i is not None))


class ScriptedPolicy:
    """Answers from a list, then from its last entry on; or by a function of the messages."""

    def __init__(self, answers: Iterable[str] | Callable[[tuple[Message, ...]], str]) -> None:
        self._function = answers if callable(answers) else None
        self._answers = [] if callable(answers) else list(answers)
        self.prompts: list[tuple[Message, ...]] = []

    async def generate(self, messages: tuple[Message, ...], sampling: SamplingParams) -> Generation:
        """The next answer of the script; its token ids are the UTF-8 bytes."""
        self.prompts.append(messages)
        if self._function is not None:
            text = self._function(messages)
        elif not self._answers:
            raise PolicyError("the script has no answer: give at least one")
        else:
            text = self._answers[min(len(self.prompts), len(self._answers)) - 1]
        text = _unicode(text)
        await asyncio.sleep(0)
        prompt = "\n".join(m.content for m in messages)
        return Generation(
            text=text,
            prompt_ids=tuple(prompt.encode("utf-8", "surrogatepass")),
            response_ids=tuple(text.encode("utf-8", "surrogatepass")),
        )


class OpenAIPolicy:
    """A model behind an OpenAI-compatible server (`/v1/chat/completions`: vLLM, ours).

    Such servers give no token ids, so what they answer cannot be trained on.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str = "",
        timeout_s: float = 600.0,
        attempts: int = 3,
    ) -> None:
        """Raises UsageError for an address without http:// or https://."""
        if not base_url.startswith(("http://", "https://")):
            raise UsageError(
                f"the server {base_url!r} is no address: give one like http://localhost:8000/v1"
            )
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._model = model
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._threads = ThreadPoolExecutor(MOST_ASKED, thread_name_prefix="asking")

    async def generate(self, messages: tuple[Message, ...], sampling: SamplingParams) -> Generation:
        """One answer to a chat; a server that is busy or away is asked again."""
        body = chat_request(self._model, messages, sampling)
        loop = asyncio.get_running_loop()
        for attempt in range(1, self._attempts + 1):
            try:
                reply = await loop.run_in_executor(self._threads, self._post, body)
                self._require_own(reply)
                return _generation(reply)
            except urllib.error.HTTPError as e:
                if e.code not in (408, 429) and e.code < 500:
                    raise PolicyError(f"{self._url} refused the request: {_first(e)}") from e
                error: Exception = e
            except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as e:
                error = e
            log.warning("server_failed", url=self._url, attempt=attempt, error=str(error)[:200])
            await asyncio.sleep(0.5 * 2**attempt if attempt < self._attempts else 0)
        raise PolicyAwayError(
            f"{self._url} did not answer in {self._attempts} tries ({_first(error)}): see that "
            "the server runs"
        )

    def _require_own(self, reply: Any) -> None:
        """Raises PolicyError where another model has answered."""
        said = reply.get("model", self._model)
        if self._model not in str(said):
            raise PolicyError(
                f"{self._url} answered as {str(said)[:100]!r} when {self._model!r} was asked: name "
                "the model as the server does"
            )

    def _post(self, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            self._url, data=json.dumps(body).encode(), headers=self._headers
        )
        with urllib.request.urlopen(request, timeout=self._timeout_s) as response:
            return json.loads(response.read())


def prompt_limit(policy: Policy, wanted: int, answer: int) -> int:
    """Most tokens of a prompt: as many as are wanted, or what an answer of so many leaves of the
    model's context, where that is known here. A longer prompt is shortened; where an answer leaves
    nothing, the model says so itself."""
    context = getattr(policy, "context", None)
    left = wanted if context is None else context - answer
    return min(wanted, left) if left > 0 else wanted


def token_counter(policy: Policy) -> Callable[[tuple[Message, ...]], int]:
    """Counts a prompt's tokens, for a `PromptBudget`: by the policy's own tokens; where it knows
    none (a server), four characters are one."""
    count: Callable[[tuple[Message, ...]], int] | None = getattr(policy, "count", None)
    return count or (lambda messages: sum(len(m.content) for m in messages) // 4)


def _generation(reply: Any) -> Generation:
    choice = reply["choices"][0]
    stopped = choice.get("finish_reason") != "length"
    text = _unicode(choice["message"]["content"] or "")
    usage = reply.get("usage")
    told = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return Generation(
        text=text,
        finish_reason="stop" if stopped else "length",
        counted=told if type(told) is int and told >= 0 else None,
    )


def _unicode(text: str) -> str:
    """Text without lone surrogates, which JSON can carry and records cannot: a malformed answer is
    an answer, and ends as a verdict."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _first(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]
