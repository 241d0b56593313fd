"""torch.amp: nothing is cast, for no operator of torch's is run."""

from __future__ import annotations

from typing import Any

from .autograd import no_grad

autocast = no_grad


def custom_fwd(function: Any = None, **_: Any) -> Any:
    return function if function is not None else lambda f: f


custom_bwd = custom_fwd
