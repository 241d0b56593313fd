"""Makes the launch templates of a correct kernel, and judges each as a template.

What comes out was replayed here, by trusted code, at addresses that chance decided, on draws that
the kernel's verdict never saw, on memory full of poison, and was compared with the float64
reference. Nothing that the candidate's host code says about a template counts.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import ValidationError

from coding_framework.cuda.build.ptx_summary import module_variables, ptx_of, unread_parameters
from coding_framework.cuda.device.device import Device
from coding_framework.cuda.expected.edge_draws import draw_name
from coding_framework.cuda.expected.inputs import bits_of, spanned, tensor_bits
from coding_framework.cuda.expected.reference import Expectation, ReferenceCache
from coding_framework.cuda.expected.tolerance import compare
from coding_framework.cuda.host.case_run import (
    Output,
    SharesMemory,
    output_of,
    store_tensor,
)
from coding_framework.cuda.host.paper_device import ReadsBackError
from coding_framework.cuda.plan.difference import adds_atomically
from coding_framework.cuda.plan.launch_plan import CandidateFault, ModuleInfo, TensorRef
from coding_framework.cuda.templating.derive import NotPortable, derive
from coding_framework.cuda.templating.recording import Recording, record_call
from coding_framework.cuda.templating.replay import carry_out, lay_out
from coding_framework.cuda.timing.backend import Equipment
from coding_framework.cuda.trial.setup import TrialSetting
from coding_framework.registry.digests import kernel_id, shape_key
from coding_framework.registry.templates import (
    ALIGNMENT,
    DTYPE_BYTES,
    Argument,
    DeviceCode,
    LaunchTemplate,
    MadeTemplates,
    TemplateRefusal,
)
from coding_framework.types import Task, TestCase

RECORDINGS = 3
VECTOR_ALIGNMENT = 16
"""Bytes: what a kernel that loads four floats at once needs of its inputs, and no more."""
FIRST_SEED = 1_000_000
"""Draws of templates have seeds that no verdict uses."""
_DRAWS = 2
_POISONS = (0xFF, 0x7B, 0xFB)
"""What memory is filled with before a replay, and temporaries after their last step."""
_MOST_EDGES = 1
_ADDRESSES_MATTER = frozenset({"another_plan", "unexplained_bytes", "replay_differs"})
"""Obstacles that may be gone where all inputs are aligned as cudaMalloc aligns."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The kernel that templates are made of."""

    task: Task
    """As the judge's backend prepared it."""
    task_id: str
    code: str
    setting: TrialSetting
    architecture: int
    """That its cubin is for."""


def make_templates(
    subject: Subject, cases: Sequence[TestCase], references: ReferenceCache
) -> MadeTemplates:
    """A template of each shape set, or why there is none. The kernel need not be correct: a wrong
    one has none. Raises what our own faults raise, and ExtensionWanted where an answer asks for a
    kernel that is not in its build."""
    made, refusals = [], []
    for case in cases:
        try:
            made.append(_make(subject, case, references))
        except NotPortable as found:
            refusals.append(
                TemplateRefusal(
                    shape_key=shape_key(case), obstacle=found.obstacle, reason=found.reason
                )
            )
    code = {c.sha256: data for c, data in _device_code(subject)} if made else {}
    return MadeTemplates(templates=tuple(made), refusals=tuple(refusals), code=code)


def _make(subject: Subject, case: TestCase, references: ReferenceCache) -> LaunchTemplate:
    """Raises NotPortable."""
    try:
        return _make_aligned(subject, case, references, VECTOR_ALIGNMENT)
    except NotPortable as found:
        if found.obstacle not in _ADDRESSES_MATTER:
            raise
    return _make_aligned(subject, case, references, ALIGNMENT)


def _make_aligned(
    subject: Subject, case: TestCase, references: ReferenceCache, alignment: int
) -> LaunchTemplate:
    setting = subject.setting
    with ExitStack() as held:
        held.enter_context(setting.backend.room(subject.task, case))
        expectation = references.get(subject.task, case, FIRST_SEED)
        if any(tensor.numel() == 0 for tensor in expectation.tensors):
            raise NotPortable("empty_tensor", "an input without elements has no address")
        if any(spec.strides or spec.start for spec in case.inputs):
            raise NotPortable("strided_input", "a template's inputs are contiguous")
        equipment = held.enter_context(setting.backend.equip(expectation, False))
        equipment.device.meter = setting.meter
        try:
            module = equipment.device.load(setting.build)
            recordings = [
                record_call(setting, module, expectation, equipment, seed, alignment)
                for seed in range(RECORDINGS)
            ]
        except ReadsBackError as e:
            raise NotPortable("read_back", "the host code reads from the device") from e
        except CandidateFault as fault:
            raise NotPortable("host_fault", fault.reason) from fault
        try:
            template = _template(subject, case, recordings, module, expectation, alignment)
        except ValidationError as e:  # what it asks for, or says that it returns, cannot be
            raise NotPortable("impossible", e.errors()[0]["msg"]) from e
        _Replays(subject, case, template, module, equipment, references).require_right()
    return template


def _template(
    subject: Subject,
    case: TestCase,
    recordings: Sequence[Recording],
    module: ModuleInfo,
    expectation: Expectation,
    alignment: int,
) -> LaunchTemplate:
    ptx = ptx_of(subject.setting.build)
    steps = derive(recordings, module, unread_parameters(ptx))
    names = [spec.name for spec in case.inputs] + list(expectation.signature.parameter_names)
    arguments = tuple(
        Argument(
            name=name,
            kind="input" if i < len(case.inputs) else "parameter",
            dtype=ref.dtype,
            shape=ref.shape,
            strides=ref.strides,
            alignment=alignment,
        )
        for i, (name, ref) in enumerate(zip(names, recordings[0].arguments, strict=True))
    )
    return LaunchTemplate(
        kernel=kernel_id(subject.code),
        op=subject.task.name,
        task=subject.task_id,
        shape_key=shape_key(case),
        arguments=arguments,
        init_args=expectation.signature.init_args,
        deterministic=not (subject.task.atomic_order or adds_atomically(ptx)),
        code=tuple(code for code, _ in _device_code(subject)),
        module_state=any(space == "global" for space, _ in module_variables(ptx)),
        variables=steps.variables,
        allocations=steps.allocations,
        steps=steps.steps,
        outputs=steps.outputs,
    )


def _device_code(subject: Subject) -> list[tuple[DeviceCode, bytes]]:
    sm, found = str(subject.architecture), []
    for form in ("cubin", "ptx"):
        data = (Path(subject.setting.build) / f"device.{form}").read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        found.append((DeviceCode(sm=sm, form=form, sha256=digest), data))
    return found


class _Replays:
    """A template on one device, held against the reference."""

    def __init__(
        self,
        subject: Subject,
        case: TestCase,
        template: LaunchTemplate,
        module: ModuleInfo,
        equipment: Equipment,
        references: ReferenceCache,
    ) -> None:
        self._task = subject.task
        self._case = case
        self._template = template
        self._module = module
        self._equipment = equipment
        self._device: Device = equipment.device
        self._references = references
        self._random = random.Random(os.urandom(16))

    def require_right(self) -> None:
        """Raises NotPortable where a replay faults, or differs from the reference. Draws take turns
        at two layouts of memory, one with arguments as badly aligned as the template allows; the
        first draw is replayed at both."""
        seeds = [FIRST_SEED, *range(FIRST_SEED, FIRST_SEED + _DRAWS)]
        if self._case in self._task.cases:  # those of real size have no edge draws
            seeds += self._references.edges(self._task, self._case)[:_MOST_EDGES]
        try:
            layouts = [self._lay_out(shifted=shifted) for shifted in (True, False)]
        except CandidateFault as fault:
            raise NotPortable("replay_fails", fault.reason) from fault
        one, other, *_ = (self._replay(s, layouts[i % 2], i) for i, s in enumerate(seeds))
        if self._template.deterministic and not _same(one, other):
            raise NotPortable(
                "replay_differs", "replayed at other addresses, the same inputs gave other bits"
            )

    def _lay_out(self, *, shifted: bool) -> tuple[int, ...]:
        template, device, module = self._template, self._device, self._module
        return lay_out(template, device, module, self._random, shifted=shifted).addresses

    def _replay(self, seed: int, addresses: Sequence[int], number: int) -> tuple[Output, ...]:
        expectation = self._references.get(self._task, self._case, seed)
        self._require_shapes(expectation)
        try:
            outputs = self._outputs(expectation, addresses, _POISONS[number % len(_POISONS)])
        except CandidateFault as fault:
            raise NotPortable("replay_fails", fault.reason) from fault
        wrong = self._wrong(expectation, outputs)
        if wrong is not None:
            raise NotPortable("replay_differs", f"replayed on {draw_name(seed)}: {wrong}")
        return outputs

    def _require_shapes(self, expectation: Expectation) -> None:
        """Before an output is read: one that repeats a few bytes may claim to be of any size."""
        for i, (o, expected) in enumerate(
            zip(self._template.outputs, expectation.outputs, strict=False)
        ):
            wanted = tuple(expected.native.shape)
            if tuple(o.shape) != wanted:
                claim = f"output {i}: shape {tuple(o.shape)}, expected {wanted}"
                raise NotPortable("replay_differs", claim)

    def _outputs(
        self, expectation: Expectation, addresses: Sequence[int], poison: int
    ) -> tuple[Output, ...]:
        template, device, first = self._template, self._device, len(self._template.arguments)
        for address, tensor in zip(addresses, expectation.tensors, strict=False):
            store_tensor(device, address, tensor)
        for number, block in enumerate(template.allocations):
            device.fill(addresses[first + number], poison, block.nbytes)

        def end_lives(step: int) -> None:
            for number, block in enumerate(template.allocations):
                if block.use == "temporary" and block.last == step:
                    device.fill(addresses[first + number], poison, block.nbytes)

        carry_out(template, device, addresses, end_lives)
        self._require_inputs_unchanged(expectation, addresses)
        places = [addresses[o.place.region] + o.place.offset for o in template.outputs]
        return tuple(
            self._read(TensorRef(address, o.shape, o.strides, o.dtype), expectation)
            for address, o in zip(places, template.outputs, strict=True)
        )

    def _require_inputs_unchanged(self, expectation: Expectation, addresses: Sequence[int]) -> None:
        guard = self._device.check_guards()
        if guard is not None:
            raise NotPortable("replay_fails", guard)
        for i, tensor in enumerate(expectation.tensors):
            bits = tensor_bits(tensor)
            if not torch.equal(self._fetch(addresses[i], len(bits), expectation), bits):
                raise NotPortable("replay_differs", f"the replay changed input {i}")

    def _read(self, ref: TensorRef, expectation: Expectation) -> Output:
        nbytes = spanned(ref.shape, ref.strides) * DTYPE_BYTES[ref.dtype]  # type: ignore[index]
        return output_of(ref, self._fetch(ref.address, nbytes, expectation))

    def _fetch(self, address: int, nbytes: int, expectation: Expectation) -> torch.Tensor:
        """Bytes of the device, where the expectation's tensors are."""
        on_gpu = any(tensor.is_cuda for tensor in expectation.tensors)
        if nbytes and on_gpu and isinstance(self._device, SharesMemory):
            return self._device.give(address, nbytes)
        return bits_of(self._device.download(address, nbytes) if nbytes else b"")

    def _wrong(self, expectation: Expectation, outputs: Sequence[Output]) -> str | None:
        wrong = self._first_wrong(expectation, outputs)
        if wrong is None:
            return None
        steadier = self._references.steadier(self._task, self._case, expectation.seed)
        return wrong if steadier is expectation else self._first_wrong(steadier, outputs)

    def _first_wrong(self, expectation: Expectation, outputs: Sequence[Output]) -> str | None:
        if len(outputs) != len(expectation.outputs):
            return f"{len(outputs)} tensors came out, not {len(expectation.outputs)}"
        for i, (output, expected) in enumerate(zip(outputs, expectation.outputs, strict=True)):
            with self._equipment.computing():
                found = compare(output.tensor, output.strides, expected, self._equipment.find_worst)
            if output.defect or not found.passed:
                return f"output {i}: {output.defect or found.detail}"
        return None


def _same(one: Sequence[Output], other: Sequence[Output]) -> bool:
    return all(torch.equal(a.raw, b.raw) for a, b in zip(one, other, strict=True))
