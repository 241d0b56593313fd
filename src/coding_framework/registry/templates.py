"""Launch templates: what a kernel's host code asks of the device, for any addresses, as data.

Maker: `cuda/templating`, which derives a template from launch plans recorded at several addresses
and judges it again by replaying it. Consumers: `KernelRegistry`, which stores it, and whoever
launches it: no host code of a candidate runs then. A template holds for one shape key.

Memory is numbered in *regions*: the arguments first, in the order of `arguments`, then what the
launching program allocates (outputs and temporaries), then variables of the module. A relocation
names a place in launch parameters, or in uploaded bytes, where the address of a region plus an
offset belongs.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from coding_framework.errors import CodingFrameworkError
from coding_framework.types import DType, InitArg, Record

MAX_LAUNCHES = 64
"""A template with more takes longer to launch than eager PyTorch."""
MAX_TEMPLATE_BYTES = 64 << 20
ALIGNMENT = 256
"""Bytes: of everything that the launching program allocates, as of `cudaMalloc`."""
_WORD = 8
_DIGEST = r"^[0-9a-f]{64}$"

Extents = tuple[Annotated[int, Field(ge=0)], ...]
Dim3 = tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]


class TemplateError(CodingFrameworkError):
    """A launch template is not as it must be; the sentence says how."""


class _Part(Record):
    """Base of what a template is made of: bytes are base64 in JSON."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")


class Argument(_Part):
    """A tensor that the caller gives: an input or a parameter of the module."""

    name: str
    kind: Literal["input", "parameter"]
    dtype: DType
    shape: Extents
    strides: Extents
    """In elements; of an argument with elements they must be equal, but where the extent is 1."""
    alignment: int = Field(ge=1)
    """Bytes: what the address is a multiple of. The template was judged with addresses that are
    multiples of no larger power of two, too."""

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]


class Allocation(_Part):
    """Memory that the launching program gives for one call."""

    nbytes: int = Field(ge=1)
    use: Literal["output", "temporary"]
    """A temporary may be reused once step `last` was enqueued, by work on the same stream."""
    first: int = Field(ge=0)
    """Number of the first step that touches it."""
    last: int = Field(ge=0)
    """Number of the last one."""


class Variable(_Part):
    """A `__device__` or `__constant__` variable of the module that a step names."""

    name: str
    nbytes: int = Field(ge=0)


class Relocation(_Part):
    """The 8 bytes at `at` are the address of a region plus `offset`, little-endian."""

    at: int = Field(ge=0)
    region: int = Field(ge=0)
    offset: int


class Place(_Part):
    """An address: that of a region plus `offset` bytes."""

    region: int = Field(ge=0)
    offset: int = Field(ge=0)


class FillStep(_Part):
    """cudaMemset: every byte becomes `value`."""

    kind: Literal["fill"] = "fill"
    to: Place
    value: int = Field(ge=0, le=255)
    nbytes: int = Field(ge=0)


class CopyStep(_Part):
    """Device to device."""

    kind: Literal["copy"] = "copy"
    to: Place
    source: Place
    nbytes: int = Field(ge=0)


class UploadStep(_Part):
    """Bytes from the host, the same on every call but for the relocations."""

    kind: Literal["upload"] = "upload"
    to: Place
    data: bytes
    relocations: tuple[Relocation, ...] = ()


class LaunchStep(_Part):
    """One kernel launch."""

    kind: Literal["launch"] = "launch"
    entry: str
    """Mangled name of an `.entry` of the module."""
    grid: Dim3
    block: Dim3
    shared_bytes: int = Field(ge=0)
    """Dynamic shared memory."""
    params: bytes
    """The parameter block in the layout of the PTX, zeros where a relocation goes."""
    relocations: tuple[Relocation, ...] = ()
    cooperative: bool = False


Step = Annotated[
    FillStep | CopyStep | UploadStep | LaunchStep,
    Field(discriminator="kind"),
]


class OutputTensor(_Part):
    """A tensor that the call returns: a view of a region."""

    place: Place
    dtype: DType
    shape: Extents
    strides: Extents
    """In elements."""

    @property
    def nbytes(self) -> int:
        """From the first element to the last."""
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        return (last + 1) * DTYPE_BYTES[self.dtype] if math.prod(self.shape) else 0


class DeviceCode(_Part):
    """The module for one architecture. Its bytes lie in the registry, under their digest."""

    sm: str
    """Compute capability times ten, e.g. "90"; of PTX the least that it runs on."""
    form: Literal["cubin", "ptx"]
    sha256: str = Field(pattern=_DIGEST)


class LaunchTemplate(_Part):
    """One call of a verified kernel on one shape key (version 1). See the module's docstring."""

    template: Literal[1] = 1
    kernel: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    """Kernel id: digest of the source."""
    op: str
    task: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    shape_key: str
    """Inputs as dtype[extents], joined by semicolons; parameters are not in it."""
    arguments: tuple[Argument, ...]
    init_args: tuple[InitArg, ...] = ()
    """Arguments of the reference's constructor, which the launches were recorded with: scalars of
    a call must equal them."""
    deterministic: bool
    """Two calls on the same inputs give the same bits."""
    code: tuple[DeviceCode, ...] = Field(min_length=1)
    variables: tuple[Variable, ...] = ()
    module_state: bool = False
    """The module has variables that kernels may write: calls on two streams need a module each."""
    allocations: tuple[Allocation, ...] = ()
    steps: tuple[Step, ...]
    """In the order in which they are enqueued on one stream."""
    outputs: tuple[OutputTensor, ...]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        launches = sum(isinstance(step, LaunchStep) for step in self.steps)
        if not 1 <= launches <= MAX_LAUNCHES:
            raise ValueError(f"a template has 1 to {MAX_LAUNCHES} launches, this one {launches}")
        for step in self.steps:
            match step:
                case FillStep() | UploadStep():
                    size = step.nbytes if isinstance(step, FillStep) else len(step.data)
                    self._require_inside(step.to, size)
                case CopyStep():
                    self._require_inside(step.to, step.nbytes)
                    self._require_inside(step.source, step.nbytes)
            if isinstance(step, UploadStep):
                self._require_relocations(step.data, step.relocations)
            elif isinstance(step, LaunchStep):
                self._require_relocations(step.params, step.relocations)
            if isinstance(step, FillStep | CopyStep | UploadStep) and self._is_argument(step.to):
                raise ValueError("a step writes to an argument: arguments are read-only")
        for output in self.outputs:
            self._require_output(output)
        return self

    def _is_argument(self, place: Place) -> bool:
        return place.region < len(self.arguments)

    def _require_inside(self, place: Place, nbytes: int) -> None:
        if place.region >= self.regions or place.offset + nbytes > self.region_bytes(place.region):
            raise ValueError(
                f"{nbytes} bytes at offset {place.offset} of region {place.region} are not there"
            )

    def _require_relocations(self, data: bytes, relocations: Sequence[Relocation]) -> None:
        ends = -1
        for r in relocations:
            if r.at < ends or r.at + _WORD > len(data) or r.region >= self.regions:
                raise ValueError(f"the relocation at byte {r.at} is not possible")
            ends = r.at + _WORD

    def _require_output(self, output: OutputTensor) -> None:
        if len(output.shape) != len(output.strides):
            raise ValueError("an output has another number of strides than of extents")
        region = output.place.region
        owned = range(len(self.arguments), len(self.arguments) + len(self.allocations))
        if region not in owned or self.allocation(region).use != "output":
            raise ValueError("an output lies in no allocation for outputs")
        self._require_inside(output.place, output.nbytes)

    # --- what a launching program asks ------------------------------------------------------------

    @property
    def regions(self) -> int:
        """How many regions there are; a launching program has an address for each."""
        return len(self.arguments) + len(self.allocations) + len(self.variables)

    @property
    def launches(self) -> tuple[LaunchStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, LaunchStep))

    def allocation(self, region: int) -> Allocation:
        """The allocation that a region is."""
        return self.allocations[region - len(self.arguments)]

    def region_bytes(self, region: int) -> int:
        """Size of a region."""
        if region < len(self.arguments):
            return self.arguments[region].nbytes
        rest = region - len(self.arguments)
        if rest < len(self.allocations):
            return self.allocations[rest].nbytes
        return self.variables[rest - len(self.allocations)].nbytes

    # --- as JSON ----------------------------------------------------------------------------------

    def canonical_json(self) -> bytes:
        """Sorted keys, no spaces, UTF-8: the same bytes for the same template."""
        text = json.dumps(
            self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"),
            ensure_ascii=False, allow_nan=False,
        )  # fmt: skip
        return text.encode("utf-8")

    @property
    def sha256(self) -> str:
        """Digest of the canonical JSON: the template's address in a registry."""
        return hashlib.sha256(self.canonical_json()).hexdigest()

    @classmethod
    def from_json(cls, data: bytes) -> LaunchTemplate:
        """The inverse of `canonical_json`. Raises TemplateError for anything that it did not
        make."""
        if len(data) > MAX_TEMPLATE_BYTES:
            raise TemplateError(
                f"the template has {len(data)} bytes; {MAX_TEMPLATE_BYTES} are allowed"
            )
        try:
            template = cls.model_validate_json(data)
        except ValidationError as e:
            first = e.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the whole"
            raise TemplateError(f"this is no launch template: {where}: {first['msg']}") from e
        if template.canonical_json() != data:
            raise TemplateError("this launch template is not in its canonical form")
        return template


DTYPE_BYTES: dict[DType, int] = {
    "float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "int8": 1, "uint8": 1,
    "int16": 2, "int32": 4, "int64": 8, "bool": 1,
}  # fmt: skip


def patched(data: bytes, relocations: Sequence[Relocation], addresses: Sequence[int]) -> bytes:
    """Launch parameters, or uploaded bytes, with the addresses of regions put in."""
    if not relocations:
        return data
    block = bytearray(data)
    for r in relocations:
        struct.pack_into("<Q", block, r.at, addresses[r.region] + r.offset)
    return bytes(block)


class TemplateRefusal(Record):
    """Why a shape key has no template."""

    shape_key: str
    obstacle: str
    """A word of docs/registry.md, e.g. "read_back"."""
    reason: str
    """A sentence."""


class MadeTemplates(_Part):
    """The templates of one kernel. Maker: `cuda/templating`. Consumer: `KernelRegistry`."""

    templates: tuple[LaunchTemplate, ...] = ()
    refusals: tuple[TemplateRefusal, ...] = ()
    code: Mapping[str, bytes] = Field(default_factory=dict)
    """The device code that the templates name, by digest."""
