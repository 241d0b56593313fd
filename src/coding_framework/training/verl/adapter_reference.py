"""The reference as the policy without its adapter, also where it is computed before anything else.

FSDP2 looks at its first forward which parameters learn, and of what type their gradients are. PEFT
marks an adapter that is switched off as one that does not learn. With the rollout's log-probs taken
as they are (`reuse_rollout_logprobs`) that first forward is the reference's, and the update then
ended with "attempting to assign a gradient with dtype BFloat16". So FSDP looks before.

Bound into verl's engine where this is imported, in training workers.
"""

from __future__ import annotations

from typing import Any

from torch.distributed.fsdp import FSDPModule
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

_WITHOUT_ADAPTER = FSDPEngine.disable_adapter


def _without_adapter(engine: Any) -> Any:
    if isinstance(engine.module, FSDPModule):
        engine.module._get_fsdp_state()._lazy_init()  # does nothing the second time
    return _WITHOUT_ADAPTER(engine)


FSDPEngine.disable_adapter = _without_adapter
