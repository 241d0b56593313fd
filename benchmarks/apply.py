"""What a verified kernel costs inside a PyTorch program: guards, misses, launches, captured graphs.

    uv run benchmarks/apply.py                 # the guards, on any machine
    uv run benchmarks/apply.py --device cuda   # all bars, on one GPU; minutes, most of them judging

On any machine: processor time of a hit over a call of what would be launched, and of a miss over a
call of the function, for an operation of two tensors. On a GPU: host time over the bare launch and
over the eager call, replays of a captured graph, and the example's modules before and after.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from bench_io import ROOT, at_most, bar, finish, head, this_machine
from gpu_bench import PACKAGES, result_path, this_gpu

from coding_framework.deployment import apply as kernels
from coding_framework.deployment.apply.emulator_launcher import EmulatorLauncher
from coding_framework.deployment.apply.kernel_set import KernelSet, Options
from coding_framework.deployment.apply.launching import PreparedCall, ReadCode
from coding_framework.registry.templates import LaunchTemplate

sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "examples")]

Call = Callable[[], object]
REPEATS = 31


def cpu_ns(call: Call, loops: int) -> float:
    """Processor time of this thread a call: median over repeats."""
    found = []
    for _ in range(REPEATS):
        before = time.thread_time_ns()
        for _ in range(loops):
            call()
        found.append((time.thread_time_ns() - before) / loops)
    return statistics.median(found)


# --- any machine ----------------------------------------------------------------------------------


class _Nothing(EmulatorLauncher):
    """Launches nothing: what is left is the cost of the guards."""

    def __init__(self, output: torch.Tensor) -> None:
        super().__init__()
        self._output = output

    def prepare(self, template: LaunchTemplate, read: ReadCode, index: int) -> PreparedCall:
        outputs = (self._output,)
        return lambda tensors, addresses: outputs


def guards(loops: int) -> dict[str, float]:
    """Nanoseconds of processor time."""
    from support.applied import inputs, offer, template

    x, b = inputs()
    other = torch.randn(5, 32)
    output = torch.randn(4, 32)

    def function(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return output

    decorated = kernels.op("guards")(function)
    made = KernelSet(Path("/nonexistent"), _Nothing(output), Options(check_rate=1e-9))
    made.take([offer(template(op="guards"))])
    direct = cpu_ns(lambda: function(x, b), loops)
    found = {"call_of_the_function": direct}
    found["disabled"] = cpu_ns(lambda: decorated(x, b), loops) - direct
    kernels._ops["guards"].kernels = made
    with torch.no_grad():
        found["hit"] = cpu_ns(lambda: decorated(x, b), loops) - direct
        found["miss_by_shape"] = cpu_ns(lambda: decorated(other, b), loops) - direct
        operator = torch.ops.cuda_rl.guards
        found["hit_through_torch_ops"] = cpu_ns(lambda: operator(x, b), loops) - direct
    wanted = torch.randn(4, 32, requires_grad=True)
    found["miss_by_grad"] = cpu_ns(lambda: decorated(wanted, b), loops) - direct
    stats = kernels.stats()["guards"]
    assert stats["hits"] > loops
    assert set(stats["misses"]) == {"disabled", "shape", "grad"}, stats
    return {name: round(value, 1) for name, value in found.items()}


# --- a GPU ----------------------------------------------------------------------------------------


def host_us(calls: Mapping[str, Call], count: int = 200) -> dict[str, list[float]]:
    """Host time of each call, while the GPU's queue has room: by repeat, in which they take turns,
    so that what else the machine does meets all of them."""
    for call in calls.values():
        for _ in range(20):
            call()
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(REPEATS):
        for name, call in calls.items():
            torch.cuda.synchronize()
            before = time.perf_counter_ns()
            for _ in range(count):
                call()
            found[name].append((time.perf_counter_ns() - before) / count / 1e3)
    torch.cuda.synchronize()
    return found


def over(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Quartiles of the differences of the same repeat."""
    return statistics.quantiles((a - b for a, b in zip(one, other, strict=True)), n=4)


def gpu_us(call: Call, calls: int = 50) -> float:
    """Time on the GPU a call, by events: median over repeats."""
    for _ in range(5):
        call()
    found = []
    for _ in range(REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        found.append(1e3 * start.elapsed_time(end) / calls)
    return statistics.median(found)


def bare_launch(x: torch.Tensor, bias: torch.Tensor, output: torch.Tensor) -> Call:
    """The kernel of `bias_gelu` at these tensors, launched with everything prepared."""
    routes = kernels._ops["bias_gelu"]._routes.values()
    prepared = next(r.call for r in routes if r.offer and _fits(r.offer.template, x))
    frame = prepared.__globals__["module_of"](0).new_frame()  # type: ignore[union-attr]
    addresses = [x.data_ptr(), bias.data_ptr(), output.data_ptr()]
    for slot, (region, offset) in zip(frame.slots, frame.places, strict=True):
        slot.value = addresses[region] + offset
    (step,) = frame.steps

    def launch(owned: object = (frame, output)) -> None:  # the parameters, and what it writes to
        frame.stream.value = torch._C._cuda_getCurrentRawStream(x.get_device())
        error = step()
        if error:
            raise RuntimeError(f"the driver refuses the bare launch: error {error}")

    return launch


def _fits(template: LaunchTemplate, x: torch.Tensor) -> bool:
    return template.arguments[0].shape == tuple(x.shape)


def graph_of(call: Call, calls: int = 20) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    return graph


def on_gpu(registry: Path | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What was measured, and the bars. A part that fails says why and holds none of its bars; the
    others go on."""
    import apply_to_a_model as example

    small, large = example.Sizes(2, 8, 32, 2), example.Sizes(8, 1024, 1024, 16)
    parts: dict[str, Callable[[], Any]] = {
        "dispatch": lambda: _dispatch(small, example.bias_gelu),
        "opcheck": lambda: _opcheck(small),
        "modules": lambda: _modules(large, example),
        "example": lambda: example.compare(large, "cuda"),
        "compiled_without_a_graph_break": lambda: _compiled(large, example),
    }
    found: dict[str, Any] = {}
    bars: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary, torch.no_grad():
        folder = registry or Path(temporary)
        if registry is None:
            example.register(folder, ROOT / "examples" / "apply", small, large, "cuda")
        kernels.enable(folder)
        for name, part in parts.items():
            started = time.monotonic()
            try:
                found[name] = part()
                bars += _BARS.get(name, lambda value: [])(found[name])
            except Exception as e:
                traceback.print_exc()
                found[name] = {"error": f"{type(e).__name__}: {e}"[:2000]}
                bars.append(bar(f"{name} ends without an error", True, False, False))
            print(f"{name}: {time.monotonic() - started:.0f} s, {found[name]}", flush=True)
        found["statistics"] = kernels.stats()
        kernels.disable()
    return found, bars


def _dispatch_bars(found: dict[str, Any]) -> list[dict[str, Any]]:
    replay = found["graph_us"] / found["bare_graph_us"]
    return [
        at_most("dispatch over the bare launch, us", 12.0, found["hit_over_bare_us"]),
        at_most("a miss over the eager call, us", 3.0, found["miss_over_eager_us"]),
        bar("calls of Python at replay of a captured graph", 0, found["calls_at_replay"],
            found["calls_at_replay"] == 0),
        at_most("replay of a captured graph over one of bare launches", 1.02, replay),
    ]  # fmt: skip


def _module_bars(found: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    before = sum(m["eager_us"] for m in found.values())
    after = sum(m["kernel_us"] for m in found.values())
    return [bar("replaced modules, times faster", 1.2, before / after, before / after >= 1.2)]


_BARS: dict[str, Callable[[Any], list[dict[str, Any]]]] = {
    "dispatch": _dispatch_bars,
    "opcheck": lambda found: [bar("opcheck passes", True, found, found)],
    "modules": _module_bars,
    "compiled_without_a_graph_break": lambda found: [
        bar("torch.compile without a graph break", True, found, found["agrees"] and found["hits"])
    ],
}


def _dispatch(s: Any, fused: Callable[..., Any]) -> dict[str, Any]:
    x = torch.randn(s.batch, s.length, s.hidden, device="cuda")
    bias = torch.randn(s.hidden, device="cuda")
    other = torch.randn(s.batch, s.length + 1, s.hidden, device="cuda")
    reference = kernels._ops["bias_gelu"].function
    fused(x, bias)
    bare = bare_launch(x, bias, torch.empty_like(x))

    def nothing(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return x

    times = host_us({
        "bare": bare,
        "hit": lambda: fused(x, bias),
        "torch_ops": lambda: torch.ops.cuda_rl.bias_gelu(x, bias),
        "eager": lambda: reference(other, bias),
        "miss": lambda: fused(other, bias),
        "python": lambda: nothing(x, bias),
    })  # fmt: skip
    found: dict[str, Any] = {f"{n}_us": statistics.median(us) for n, us in times.items()}
    found["python_ns"] = 1e3 * found.pop("python_us")  # how fast the machine's Python is
    for one, other_one in (("hit", "bare"), ("miss", "eager")):
        low, middle, high = over(times[one], times[other_one])
        found[f"{one}_over_{other_one}_us"] = middle
        found[f"{one}_over_{other_one}_quartiles_us"] = [low, high]
    graph, of_bare = graph_of(lambda: fused(x, bias)), graph_of(bare)
    before = kernels.stats()["bias_gelu"]["calls"]
    found["graph_us"], found["bare_graph_us"] = gpu_us(graph.replay), gpu_us(of_bare.replay)
    found["calls_at_replay"] = kernels.stats()["bias_gelu"]["calls"] - before
    return found


def _opcheck(s: Any) -> bool:
    x = torch.randn(s.batch, s.length, s.hidden, device="cuda")
    bias = torch.randn(s.hidden, device="cuda")
    torch.library.opcheck(torch.ops.cuda_rl.bias_gelu.default, (x, bias))
    return True


def _modules(s: Any, example: Any) -> dict[str, dict[str, float]]:
    """Each replaced module of the example at its inputs, in all layers together."""
    model = example.make_model(s).to("cuda")
    inputs: dict[str, tuple[torch.Tensor, ...]] = {}
    paths = example.replaced(s)
    hooks = [
        model.get_submodule(path).register_forward_pre_hook(
            lambda module, args, path=path: inputs.__setitem__(path, args)
        )
        for path in paths
    ]
    model(torch.randn(s.batch, s.length, s.width, device="cuda"))
    for hook in hooks:
        hook.remove()
    found = {}
    for path, op in paths.items():
        module, given = model.get_submodule(path), inputs[path]
        eager = gpu_us(lambda m=module, a=given: m(*a))
        kernels.replace(model, {path: op})
        found[path] = {"eager_us": eager, "kernel_us": gpu_us(lambda m=module, a=given: m(*a))}
        kernels.restore(model)
    return found


def _compiled(s: Any, example: Any) -> dict[str, Any]:
    model = example.make_model(s).to("cuda")
    x = torch.randn(s.batch, s.length, s.width, device="cuda")
    expected = model(x)
    kernels.replace(model, example.replaced(s))
    model(x)  # outside of the compiler the modules are compared with their operations
    before = {name: kernels.stats()[name]["hits"] for name in example.REFERENCES}
    compiled = torch.compile(model, fullgraph=True)
    difference = float((compiled(x) - expected).abs().max())
    hits = {name: kernels.stats()[name]["hits"] - before[name] for name in before}
    return {
        "agrees": difference < 1e-4,
        "largest_difference": difference,
        "hits": all(hits.values()),
        "hits_by_operation": hits,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("none", "cuda"), default="none")
    parser.add_argument("--registry", type=Path, metavar="DIR", help="with the example's kernels")
    parser.add_argument("--loops", type=int, default=5000, help="calls a repeat, without a GPU")
    parser.add_argument("--output", type=Path, metavar="FILE")
    args = parser.parse_args(arguments)
    machine = this_machine()
    report: dict[str, Any] = {**head("apply", packages=PACKAGES, machine=machine)}
    report["guards_ns"] = guards(args.loops)
    report["bars"] = [
        at_most("guards of a hit, us of processor time", 12.0, report["guards_ns"]["hit"] / 1e3),
        at_most("a miss over the function, us of processor time", 3.0,
                report["guards_ns"]["miss_by_shape"] / 1e3),
    ]  # fmt: skip
    if args.device == "cuda":
        report["gpu"] = this_gpu().name
        report["measured"], bars = on_gpu(args.registry)
        report["bars"] += bars
    path = args.output or (result_path("apply") if args.device == "cuda" else None)
    return 0 if finish(report, path) else 1


if __name__ == "__main__":
    raise SystemExit(main())
