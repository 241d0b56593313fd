"""How fast the fast kernel templates are, on 12 shapes each that were chosen before any was timed.

    uv run python benchmarks/fast_kernels.py [--minutes 5] [--work FOLDER]

Needs a GPU and nvcc. The sources are the templates' own, compiled against a header of a few lines
(`kernel_runner`), so that a build takes seconds. A kernel's result is compared with float64 on the
same inputs: an error above 8 eps sqrt(K) times the result's root mean square is `wrong` and has no
time. Times are medians of device time between two events, the L2 emptied before each call. `eager`
is PyTorch as users have it (cuDNN's convolutions in TF32), `eager_fp32` PyTorch in full float32. A
shape's figure for a group of kernels is that of its fastest one: templates are chosen by shape.
`short` are the kernels that are taught (`short_tensor_cores`).
Resumable: rows are kept in FOLDER (default runs/fast_kernels). Writes
benchmarks/results/fast_kernels.GPU.json.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import math
import statistics
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from bench_io import ROOT, bar
from gpu_bench import Deadline, Row, Rows, session_here, write_report

from coding_framework.cuda.toolchain.architecture import detect_architecture
from coding_framework.cuda.toolchain.slots import available_cores
from coding_framework.cuda.toolchain.toolkit import find_toolkit
from coding_framework.data.modules.kernels import convolutions, transposed
from coding_framework.data.modules.kernels.convolutions import Convolution
from coding_framework.data.modules.kernels.products import Product, short, tensor, tiles
from coding_framework.data.modules.kernels.tensor_cores import Tile

Shape = tuple[int, ...]
_HEADERS = ROOT / "benchmarks" / "kernel_runner"
_SMALL, _NARROW = Tile(64, 64, 32), Tile(128, 64, 32)

PRODUCT_SHAPES: tuple[Shape, ...] = (
    (4096, 4096, 4096), (1024, 1024, 1024), (2048, 8192, 2048), (8192, 512, 8192),
    (1000, 1234, 777), (4000, 4001, 4003), (1536, 768, 3072), (128, 4096, 4096),
    (333, 5000, 2999), (257, 524288, 255), (5000, 67, 5000), (2047, 2049, 2051),
)  # fmt: skip
"""Rows, inner extent, columns."""
CONV_SHAPES: tuple[tuple[Shape, int, Convolution], ...] = (
    ((16, 64, 128, 128), 128, Convolution((3, 3), bias=True)),
    ((16, 128, 56, 56), 256, Convolution((3, 3), padding=(1, 1), bias=True)),
    ((8, 256, 56, 56), 512, Convolution((1, 1), bias=True)),
    ((32, 3, 224, 224), 64, Convolution((7, 7), (2, 2), (3, 3), bias=True)),
    ((7, 61, 63, 65), 131, Convolution((3, 3), padding=(1, 1), bias=True)),
    ((8, 96, 64, 64), 96, Convolution((5, 5), (1, 1), (4, 4), (2, 2), bias=True)),
    ((8, 128, 64, 64), 128, Convolution((3, 3), padding=(1, 1), groups=2, bias=True)),
    ((16, 64, 65, 63), 64, Convolution((3, 5), (2, 1), (1, 2), bias=True)),
    ((16, 64, 8192), 128, Convolution((3,), bias=True)),
    ((5, 48, 10001), 100, Convolution((7,), (2,), (3,), bias=True)),
    ((4, 32, 16, 64, 64), 64, Convolution((3, 3, 3), bias=True)),
    ((3, 24, 15, 33, 31), 56, Convolution((3, 3, 3), (1, 2, 2), (1, 1, 1), bias=True)),
)
TRANSPOSED_SHAPES: tuple[tuple[Shape, int, Convolution], ...] = tuple(
    (
        shape,
        out,
        Convolution(k, s, p, groups=groups, transposed=True, output_padding=more, bias=True),
    )
    for shape, out, k, s, p, groups, more in (
        ((16, 64, 64, 64), 128, (3, 3), (2, 2), (1, 1), 1, (1, 1)),
        ((8, 64, 128, 128), 64, (3, 3), (1, 1), (0, 0), 1, (0, 0)),
        ((8, 128, 64, 64), 64, (4, 4), (2, 2), (1, 1), 1, (0, 0)),
        ((16, 96, 33, 31), 97, (5, 3), (2, 2), (2, 1), 1, (1, 0)),
        ((16, 64, 32, 32), 64, (3, 3), (3, 3), (0, 0), 1, (0, 0)),
        ((8, 64, 64, 64), 64, (7, 7), (1, 1), (3, 3), 1, (0, 0)),
        ((8, 128, 56, 56), 128, (3, 3), (2, 2), (1, 1), 2, (1, 1)),
        ((16, 128, 2048), 64, (4,), (2,), (1,), 1, (0,)),
        ((7, 61, 3001), 67, (5,), (3,), (2,), 1, (0,)),
        ((8, 64, 4096), 128, (3,), (1,), (1,), 1, (0,)),
        ((4, 32, 16, 32, 32), 64, (3, 3, 3), (2, 2, 2), (1, 1, 1), 1, (1, 1, 1)),
        ((3, 24, 9, 17, 19), 40, (3, 3, 3), (1, 2, 2), (1, 1, 0), 1, (0, 1, 0)),
    )
)


@dataclass(frozen=True)
class Case:
    """One kernel on one shape."""

    group: str
    kernel: str
    shape: str
    expression: str
    inputs: tuple[tuple[str, Shape], ...]
    terms: int
    gflop: float
    code: Callable[[], str]

    @property
    def key(self) -> str:
        return f"{self.group}/{self.shape}/{self.kernel}"


def _products() -> Iterator[Case]:
    kinds = {
        "product": ("x @ u", Product()),
        "linear": ("F.linear(x, u)", Product(u_inner_first=True)),
        "product of a transpose": ("x.t() @ u", Product(x_inner_first=False)),
    }
    for group, (expression, product) in kinds.items():
        shapes = PRODUCT_SHAPES if group == "product" else PRODUCT_SHAPES[:8]
        for m, k, n in shapes:
            x = (m, k) if product.x_inner_first else (k, m)
            u = (n, k) if product.u_inner_first else (k, n)
            few = math.ceil(m / 128) * math.ceil(n / 64) < 264
            codes: dict[str, Callable[[], str]] = {
                "3xTF32 128x128": lambda product=product: tensor(product),
                "3xTF32 64x64": lambda product=product: tensor(product, _SMALL),
                "short": lambda product=product: short(product),
            }
            if group == "product":
                codes["SIMT 128x128"] = lambda product=product: tiles(product)
            if few or k > 100_000:
                codes["3xTF32 split"] = lambda product=product: tensor(product, _NARROW, split=True)
            for kernel, code in codes.items():
                if k > 100_000 and kernel != "3xTF32 split":
                    continue
                yield Case(
                    group, kernel, f"{m}x{k}x{n}", expression, (("x", x), ("u", u)), k,
                    2e-9 * m * k * n, code,
                )  # fmt: skip


def _extent(conv: Convolution, axis: int, size: int) -> int:
    k, s, p, d = (v[axis] for v in (conv.kernel, conv.steps, conv.margins, conv.spread))
    if conv.transposed:
        return (size - 1) * s - 2 * p + d * (k - 1) + 1 + (conv.output_padding or (0,) * 3)[axis]
    return (size + 2 * p - d * (k - 1) - 1) // s + 1


def _convolutions() -> Iterator[Case]:
    for shapes in (CONV_SHAPES, TRANSPOSED_SHAPES):
        for shape, out, conv in shapes:
            each = shape[1] // conv.groups
            weight = (
                (shape[1], out // conv.groups, *conv.kernel)
                if conv.transposed
                else (out, each, *conv.kernel)
            )
            places = [_extent(conv, axis, size) for axis, size in enumerate(shape[2:])]
            name = f"conv{'_transpose' if conv.transposed else ''}{len(conv.kernel)}d"
            more = f"output_padding={conv.output_padding or 0}, " if conv.transposed else ""
            expression = (
                f"torch.relu(F.{name}(x, u, b, stride={conv.steps}, padding={conv.margins}, {more}"
                f"groups={conv.groups}, dilation={conv.spread}))"
            )
            post = Convolution(**{**_fields(conv), "post": ("a = fmaxf(a, 0.0f);",)})
            tile = convolutions.tile_of(out // conv.groups)
            count = math.prod(shape[2:] if conv.transposed else places)
            gflop = 2e-9 * shape[0] * each * out * conv.taps * count
            module = transposed if conv.transposed else convolutions
            codes: dict[str, Callable[[], str]] = {
                f"3xTF32 {tile.rows}x{tile.columns}": lambda module=module, post=post, tile=tile: (
                    module.tensor(post, tile)
                ),
                "short": lambda post=post: convolutions.short(post),
            }
            for kernel, code in codes.items():
                yield Case(
                    "convolution" if not conv.transposed else "transposed convolution",
                    kernel,
                    f"{'x'.join(map(str, shape))} to {out}, "
                    f"kernel {'x'.join(map(str, conv.kernel))}, "
                    f"stride {conv.steps}, groups {conv.groups}",
                    expression,
                    (("x", shape), ("u", weight), ("b", (out,))),
                    each * conv.taps,
                    gflop,
                    code,
                )


def _fields(conv: Convolution) -> dict[str, object]:
    return {name: getattr(conv, name) for name in conv.__dataclass_fields__}


class _Tensor(ctypes.Structure):
    """As in kernel_runner."""

    _fields_ = (("data", ctypes.c_void_p), ("dims", ctypes.c_int64), ("sizes", ctypes.c_int64 * 8))


class Runner:
    """Builds kernels, runs them on torch's tensors, and times."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")

    @cached_property
    def _block(self) -> torch.Tensor:
        return torch.empty(4 << 30, dtype=torch.uint8, device="cuda")

    def build(self, code: str) -> Path:
        """The kernel's library; kept by its source."""
        name = hashlib.sha256(code.encode()).hexdigest()[:20]
        library = self._folder / f"{name}.so"
        if not library.exists():
            toolkit = find_toolkit()
            source = self._folder / f"{name}.cu"
            source.write_text(code)
            command = [
                str(toolkit.nvcc), "-shared", "-Xcompiler", "-fPIC", "-std=c++17", "-O3",
                f"-arch=sm_{detect_architecture(toolkit)}", "-I", str(_HEADERS),
                str(source), "-o", str(library),
            ]  # fmt: skip
            subprocess.run(command, check=True, capture_output=True)
        return library

    def caller(self, library: Path, inputs: Sequence[torch.Tensor]) -> Callable[[], int]:
        """One call of the kernel: the address of its result."""
        run = ctypes.CDLL(str(library)).run_kernel
        run.restype = ctypes.c_void_p
        given = (_Tensor * len(inputs))()
        for place, x in zip(given, inputs, strict=True):
            place.data, place.dims = x.data_ptr(), x.dim()
            for axis, extent in enumerate(x.shape):
                place.sizes[axis] = extent
        block = ctypes.c_void_p(self._block.data_ptr())

        def call() -> int:
            at = run(given, block)
            if at is None:
                raise RuntimeError("the launch failed")
            return int(at)

        return call

    def result(self, at: int, like: torch.Tensor) -> torch.Tensor:
        """What lies at an address inside the block."""
        start = at - self._block.data_ptr()
        return self._block[start : start + 4 * like.numel()].view(torch.float32).view(like.shape)

    def poison(self, count: int) -> None:
        """Fill the block's first floats with NaN."""
        self._block[: 4 * count].fill_(255)

    def median_ms(self, call: Callable[[], object]) -> float:
        """Device time of a call, the L2 emptied before it."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        times: list[float] = []
        for number in range(33):
            self._flush.zero_()
            start.record()
            call()
            end.record()
            end.synchronize()
            if number >= 3:
                times.append(start.elapsed_time(end))
            if number >= 12 and sum(times) > 60.0:
                break
        return statistics.median(times)


def _shape_rows(runner: Runner, group: Sequence[Case], rows: Rows) -> None:
    """All kernels of one shape, and PyTorch's two times on it."""
    first = group[0]
    torch.manual_seed(0)
    inputs = [torch.rand(shape, device="cuda") * 4 - 2 for _, shape in first.inputs]
    names = {"F": torch.nn.functional, "torch": torch}
    code = compile(first.expression, "<reference>", "eval")

    def eager(*given: torch.Tensor) -> torch.Tensor:
        found = eval(code, {**names, **dict(zip((n for n, _ in first.inputs), given, strict=True))})
        assert isinstance(found, torch.Tensor)
        return found

    common: Row = {"group": first.group, "shape": first.shape, "gflop": first.gflop}
    torch.backends.cudnn.allow_tf32 = True
    common["eager_ms"] = runner.median_ms(lambda: eager(*inputs))
    torch.backends.cudnn.allow_tf32 = False
    common["eager_fp32_ms"] = runner.median_ms(lambda: eager(*inputs))
    exact = eager(*(x.double() for x in inputs))
    eps, rms = torch.finfo(torch.float32).eps, exact.square().mean().sqrt()
    bound = 8 * eps * math.sqrt(first.terms) * rms
    plain = float((eager(*inputs) - exact).abs().max() / bound)
    for case in group:
        call = runner.caller(runner.build(case.code()), inputs)
        runner.poison(exact.numel())
        error = float((runner.result(call(), exact) - exact).abs().max() / bound)
        row: Row = {**common, "kernel": case.kernel, "error": error, "eager_fp32_error": plain,
                    "status": "correct" if error <= 1 else "wrong"}  # fmt: skip
        if error <= 1:
            row["kernel_ms"] = runner.median_ms(call)
            row["tflops"] = case.gflop / row["kernel_ms"]
        rows.add(case.key, row)
        print(f"{case.key:100} {row['status']} {error:.3f} {row.get('tflops', 0):.1f}", flush=True)


def measure(cases: Sequence[Case], rows: Rows, deadline: Deadline) -> None:
    """Build all that is missing, then time it, shape by shape."""
    missing = [case for case in cases if case.key not in rows]
    runner = Runner(rows.folder / "build")
    with ThreadPoolExecutor(available_cores()) as threads:
        list(threads.map(runner.build, {case.code() for case in missing}))
    torch.backends.cuda.matmul.allow_tf32 = False
    with torch.no_grad():
        for key in dict.fromkeys((case.group, case.shape) for case in missing):
            if not deadline:
                _shape_rows(runner, [c for c in missing if (c.group, c.shape) == key], rows)


def _table(rows: Rows) -> list[Row]:
    """A line for each shape: its fastest correct kernel against both baselines."""
    best: dict[tuple[str, str, bool], Row] = {}
    for row in rows:
        key = (row["group"], row["shape"], row["kernel"].startswith("SIMT"))
        if "kernel_ms" in row and (key not in best or row["kernel_ms"] < best[key]["kernel_ms"]):
            best[key] = row
    return [
        {
            **{name: row[name] for name in ("group", "shape", "kernel", "kernel_ms", "tflops")},
            "times_eager": row["eager_ms"] / row["kernel_ms"],
            "times_eager_fp32": row["eager_fp32_ms"] / row["kernel_ms"],
        }
        for row in best.values()
    ]


def _bars(table: Sequence[Row], rows: Rows) -> list[Row]:
    wrong = [row["key"] for row in rows if row["status"] != "correct"]
    bars = [bar("kernels that are not correct", 0, len(wrong), not wrong)]

    def line(group: str, shape: str, *, simt: bool = False) -> Row | None:
        return next(
            (r for r in table if r["group"] == group and r["shape"] == shape
             and r["kernel"].startswith("SIMT") == simt), None,
        )  # fmt: skip

    def least(what: str, target: float, value: float | None) -> None:
        bars.append(bar(what, target, value, value is not None and value >= target))

    large = "4096x4096x4096"
    for what, name, target, simt in (
        ("SIMT product, 4096^3, TFLOPS", "tflops", 42.0, True),
        ("3xTF32 product, 4096^3, TFLOPS", "tflops", 70.0, False),
        ("3xTF32 product, 4096^3, times eager_fp32", "times_eager_fp32", 1.3, False),
    ):
        found = line("product", large, simt=simt)
        least(what, target, found[name] if found else None)
    for group in ("product", "linear", "product of a transpose"):
        times = [
            r["times_eager_fp32"] for r in table
            if r["group"] == group and not r["kernel"].startswith("SIMT")
        ]  # fmt: skip
        lowest = min(times, default=None)
        least(f"3xTF32 {group}, least times eager_fp32 of its shapes", 1.0, lowest)
    for group in ("convolution", "transposed convolution"):
        found_rates = [r["tflops"] for r in table if r["group"] == group]
        middle = statistics.median(found_rates) if found_rates else None
        least(f"{group}, median TFLOPS of its shapes", 50.0, middle)
        least(f"{group}, highest TFLOPS of its shapes", 50.0, max(found_rates, default=None))
    return bars


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--work", type=Path, default=None)
    given = parser.parse_args()
    session = session_here("fast_kernels")
    cases = [*_products(), *_convolutions()]
    rows = Rows("fast_kernels", given.work)
    measure(cases, rows, Deadline(given.minutes))
    table = _table(rows)
    for row in table:
        times = f"{row['times_eager']:.2f} {row['times_eager_fp32']:.2f}"
        names = f"{row['group']:24} {row['shape']:80} {row['kernel']:15}"
        print(f"{names} {row['tflops']:6.1f} {times}")
    figures = {"table": table, "rows": sorted(rows, key=lambda row: str(row["key"]))}
    raise SystemExit(0 if write_report("fast_kernels", _bars(table, rows), figures, session) else 1)


if __name__ == "__main__":
    main()
