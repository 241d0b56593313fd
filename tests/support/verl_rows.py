"""verl's tokenizer and queue of rows as tests have them: in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch


class Tokenizer:
    """One token a character."""

    eos_token_id = 0

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> str:
        return "".join(m["content"] for m in messages)

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(c) for c in text]}

    def decode(self, ids: tuple[int, ...], **_: Any) -> str:
        return "".join(chr(i) for i in ids)


class Queue:
    """verl's queue of rows, in memory."""

    def __init__(self, **columns: list[torch.Tensor]) -> None:
        self.columns = columns
        self.keys = [f"u_{n}_0_0" for n in range(len(next(iter(columns.values()))))]
        self.partition_id = "train"
        self.extra_info: dict[str, Any] = {"temperature": 1.0}
        self.tags = [{"seq_len": len(row)} for row in next(iter(columns.values()))]

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> Any:
        from coding_framework.training.verl.rows import nested

        rows = [self.keys.index(key) for key in keys]
        return {name: nested([self.columns[name][r] for r in rows]) for name in select_fields}

    def kv_batch_put(self, keys: list[str], partition_id: str, fields: Any) -> str:
        for name in fields.keys():  # noqa: SIM118 (a TensorDict iterates over rows)
            column = self.columns.setdefault(name, [torch.empty(0)] * len(self.keys))
            for key, row in zip(keys, fields[name].unbind(), strict=True):
                column[self.keys.index(key)] = row
        return f"{len(keys)} rows"

    def select_keys(self, keys: list[str]) -> Any:
        part = SimpleNamespace(keys=list(keys), extra_info={}, partition_id="train")
        part.reorder = lambda order: setattr(part, "keys", [part.keys[i] for i in order])
        return part
