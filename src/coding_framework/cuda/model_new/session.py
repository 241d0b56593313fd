"""The host process of an answer, and how `ModelNew` is called in it.

`AnswerSession` is to the judge what `HostSession` is for a `.cu` candidate: one call takes the
tensors of a draw and gives the outputs. Inside, the first call builds the model, so that whatever
its `__init__` asks of the device belongs to the recorded plan.
"""

from __future__ import annotations

from collections.abc import Sequence

from coding_framework.cuda.expected.signature import ModelSignature
from coding_framework.cuda.host.session import HostSession
from coding_framework.cuda.host.wire import AboutCall, HostArg
from coding_framework.cuda.plan.launch_plan import CandidateFault, TensorRef
from coding_framework.types import Status


class AnswerSession:
    """`HostProcess` of an answer."""

    def __init__(self, host: HostSession, signature: ModelSignature, *, anew: bool) -> None:
        """anew: the process made a model of the answer before: it is imported again first. Raises
        CandidateFault where that fails."""
        self._host = host
        if anew:
            host.call((), function="import")
        self._signature = signature
        self._built = False
        self.functions: dict[str, int] = {}
        """Empty: `forward` of a model takes tensors only, and that is seen to here."""

    @property
    def about(self) -> AboutCall:
        """Of the last call; nobody looks at the variables of Python."""
        return self._host.about

    @property
    def busy_ms(self) -> float | None:
        """Of its process."""
        return self._host.busy_ms

    def call(
        self, arguments: Sequence[HostArg], *, function: str = "forward"
    ) -> tuple[TensorRef, ...]:
        """`ModelNew.forward` on inputs, given inputs, parameters and scalars. Raises
        CandidateFault."""
        names = self._signature.parameter_names
        tensors = [a for a in arguments if isinstance(a, TensorRef)]
        split = len(tensors) - len(names)
        inputs, parameters = tensors[:split], tensors[split:]
        if not self._built:
            self._construct(parameters)
            self._built = True
        return self._host.call(inputs, function=function)

    def _construct(self, parameters: list[TensorRef]) -> None:
        signature = self._signature
        made = self._host.call(
            (
                signature.init_args,
                signature.parameter_names,
                tuple(parameters),
                signature.scalar_positions,
            ),
            function="construct",
        )
        if made:
            raise CandidateFault(Status.RUNTIME_ERROR, "the construction of ModelNew gave tensors")
