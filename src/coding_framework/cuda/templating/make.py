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

from pydantic import ValidationError

from coding_framework.cuda.build.ptx_summary import module_variables, ptx_of, unread_parameters
from coding_framework.cuda.expected.edge_draws import draw_name
from coding_framework.cuda.expected.reference import Expectation, ReferenceCache
from coding_framework.cuda.host.case_run import Execution
from coding_framework.cuda.host.paper_device import ReadsBackError
from coding_framework.cuda.plan.difference import adds_atomically
from coding_framework.cuda.plan.launch_plan import CandidateFault, ModuleInfo
from coding_framework.cuda.templating.derive import NotPortable, derive
from coding_framework.cuda.templating.recording import Recording, record_call
from coding_framework.cuda.templating.replay import Layout, lay_out
from coding_framework.cuda.trial.comparing import Comparing
from coding_framework.cuda.trial.kept_state import same_bits
from coding_framework.cuda.trial.setup import TrialSetting
from coding_framework.registry.digests import kernel_id, shape_key
from coding_framework.registry.templates import (
    ALIGNMENT,
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
"""What memory is filled with before a replay."""
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
        comparing = Comparing(subject.task, case, references, equipment)
        _Replays(template, module, comparing).require_right()
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

    def __init__(self, template: LaunchTemplate, module: ModuleInfo, comparing: Comparing) -> None:
        self._template = template
        self._module = module
        self._comparing = comparing
        self._random = random.Random(os.urandom(16))

    def require_right(self) -> None:
        """Raises NotPortable where a replay faults, or differs from the reference. Draws take turns
        at two layouts of memory, one with arguments as badly aligned as the template allows; the
        first draw is replayed at both."""
        task, case = self._comparing.task, self._comparing.case
        seeds = [FIRST_SEED, *range(FIRST_SEED, FIRST_SEED + _DRAWS)]
        if case in task.cases:  # those of real size have no edge draws
            seeds += self._comparing.references.edges(task, case)[:_MOST_EDGES]
        self._require_shapes()
        try:
            layouts = [self._lay_out(shifted=shifted) for shifted in (True, False)]
            one, other, *_ = [self._replay(s, layouts[i % 2], i) for i, s in enumerate(seeds)]
        except CandidateFault as fault:
            raise NotPortable("replay_fails", fault.reason) from fault
        if self._template.deterministic and not same_bits(one, other):
            raise NotPortable(
                "replay_differs", "replayed at other addresses, the same inputs gave other bits"
            )

    def _require_shapes(self) -> None:
        """Before an output is read: one that repeats a few bytes may claim to be of any size."""
        expected = self._comparing.expect(FIRST_SEED).outputs
        for i, (o, e) in enumerate(zip(self._template.outputs, expected, strict=False)):
            wanted = tuple(e.native.shape)
            if tuple(o.shape) != wanted:
                claim = f"output {i}: shape {tuple(o.shape)}, expected {wanted}"
                raise NotPortable("replay_differs", claim)

    def _lay_out(self, *, shifted: bool) -> Layout:
        equipment, tensors = self._comparing.equipment, self._comparing.expect(FIRST_SEED).tensors
        return lay_out(
            self._template, equipment.device, self._module, tensors, self._random,
            limits=equipment.limits, shifted=shifted,
        )  # fmt: skip

    def _replay(self, seed: int, layout: Layout, number: int) -> Execution:
        expectation = self._comparing.expect(seed)
        fill = _POISONS[number % len(_POISONS)]
        execution = layout.run.replay(layout.plan, expectation.tensors, fill=fill)
        if execution.guard is not None:
            raise NotPortable("replay_fails", execution.guard)
        found = self._comparing.test(expectation, execution)
        if not found.passed:
            raise NotPortable("replay_differs", f"replayed on {draw_name(seed)}: {found.detail}")
        return execution
