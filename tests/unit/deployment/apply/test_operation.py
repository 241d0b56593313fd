"""A decorated function runs a kernel where every guard holds, and itself where one does not."""

from __future__ import annotations

import json
import os
import signal
import threading
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from coding_framework.deployment import apply as kernels
from coding_framework.deployment.apply.emulator_launcher import EmulatorLauncher
from coding_framework.deployment.apply.kernel_set import KernelSet, Options
from coding_framework.deployment.apply.launching import LaunchError
from coding_framework.errors import CodingFrameworkError, UsageError
from coding_framework.registry.templates import Argument, OutputTensor, Place
from support.applied import (
    applied,
    bias_gelu,
    counts,
    inputs,
    kernel_set,
    offer,
    ptx,
    template,
)

pytestmark = [pytest.mark.unit, pytest.mark.filterwarnings("ignore:kernel sha256")]


def one(folder: Path, name: str, **changes: object):
    """A set with the right kernel for 4 x 32 as an operation of that name."""
    return kernel_set(folder, offer(template(op=name), **changes))


def test_a_kernel_runs_where_its_verdict_holds_and_the_function_elsewhere(tmp_path: Path) -> None:
    x, b = inputs()
    with applied("t_hit", one(tmp_path, "t_hit")) as fused:
        for _ in range(3):
            assert torch.allclose(fused(x, b), bias_gelu(x, b), atol=1e-6)
        assert torch.equal(fused(*inputs(5)), bias_gelu(*inputs(5)))
        assert torch.equal(fused(x=x.double(), b=b.double()), bias_gelu(x.double(), b.double()))
        assert counts("t_hit") == {"hits": 3, "shape": 1, "dtype": 1}
        assert kernels.stats()["t_hit"]["checks"] == 1
        assert kernels.stats()["t_hit"]["ns_per_call"] > 0
        wanted = {"float32[5,32];float32[32]": 1, "float64[4,32];float64[32]": 1}
        assert kernels.stats()["t_hit"]["wanted"] == wanted


@pytest.mark.parametrize(
    ("reason", "arguments"),
    [
        ("strides", lambda x, b: (x[:1].expand(4, 32), b)),
        ("strides", lambda x, b: (torch.randn(32, 4).t(), b)),
        ("strides", lambda x, b: (torch.randn(4, 64)[:, :32], b)),
        ("alignment", lambda x, b: (torch.randn(129)[1:].view(4, 32), b)),
        ("dtype", lambda x, b: (x.half(), b.half())),
        ("shape", lambda x, b: (x[:0], b)),
        ("shape", lambda x, b: (x[0, 0], b)),
        ("grad", lambda x, b: (x.clone().requires_grad_(), b)),
        ("arguments", lambda x, b: (torch.complex(x, x).conj().imag, b)),
        ("arguments", lambda x, b: (x.to_sparse().to_dense().as_subclass(Sub), b)),
    ],
)
def test_each_guard_falls_back_and_says_why(tmp_path: Path, reason: str, arguments) -> None:
    name = f"t_guard_{next(_numbers)}"
    given = arguments(*inputs())
    with applied(name, one(tmp_path, name)) as fused:
        assert torch.equal(fused(*given), bias_gelu(*given))
        assert counts(name) == {"hits": 0, reason: 1}


class Sub(torch.Tensor):
    pass


def wrapped(transform: Callable[..., Any], *args: Any) -> torch.Tensor:
    """What a function sees in a transformation, kept after it."""
    seen: list[torch.Tensor] = []
    transform(lambda t: (seen.append(t), (t * 1).sum())[1])(*args)
    return seen[0]


def freed(x: torch.Tensor) -> torch.Tensor:
    x.untyped_storage().resize_(0)
    return x


@pytest.mark.parametrize(
    "change",
    [
        torch._neg_view,
        lambda x: torch._efficientzerotensor(x.shape),
        lambda x: x.rename("rows", "columns"),
        lambda x: x.to("meta"),
        lambda x: x.to_sparse(),
        lambda x: x.to_sparse_csr(),
        lambda x: x.to_mkldnn(),
        lambda x: torch.nested.nested_tensor([x]),
        lambda x: x.as_subclass(Sub),
        torch._to_functional_tensor,
        lambda x: wrapped(torch.vmap, x.expand(2, 4, 32)),
        lambda x: wrapped(torch.func.grad, x),
        lambda x: wrapped(torch.func.functionalize, x),
        lambda x: freed(x.clone()),
    ],
)
def test_what_is_no_plain_tensor_is_the_functions_where_plain_ones_hit(
    tmp_path: Path, change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """All of them have the extents and strides of a tensor that hits."""
    name = f"t_plain_{next(_numbers)}"
    x, b = inputs()
    expected = bias_gelu(x, b)
    with applied(name, one(tmp_path, name), lambda x, b: expected) as fused:
        for _ in range(2):
            fused(x, b)
        other = change(x)
        with torch.no_grad():
            assert fused(other, b) is expected
        assert fused(x, b) is not expected
        assert counts(name) == {"hits": 3, "arguments": 1}


def test_a_function_that_fails_is_called_once(tmp_path: Path) -> None:
    calls: list[int] = []

    def failing(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        raise RuntimeError("of its own")

    x, b = inputs()
    with applied("t_fails", one(tmp_path, "t_fails"), failing) as fused:
        for given in ((x.clone().requires_grad_(), b), inputs(5), inputs(5)):
            with pytest.raises(RuntimeError, match="of its own"):
                fused(*given)
        assert len(calls) == 3
        assert counts("t_fails") == {"hits": 0, "grad": 1, "shape": 2}


def test_parameters_may_have_any_names(tmp_path: Path) -> None:
    def same(len: torch.Tensor, op: torch.Tensor, repr: float = 1.0) -> torch.Tensor:
        return bias_gelu(len, op)

    x, b = inputs()
    made = kernel_set(tmp_path, offer(template(op="t_names", init_args=(1.0,))))
    with applied("t_names", made, same) as fused:
        for _ in range(3):
            assert torch.allclose(fused(op=b, len=x), same(x, b), atol=1e-6)
        assert counts("t_names") == {"hits": 3}


def test_parameters_may_be_called_as_the_generated_text_calls_its_own(tmp_path: Path) -> None:
    def same(__op: torch.Tensor, ___route: torch.Tensor) -> torch.Tensor:
        return bias_gelu(__op, ___route)

    x, b = inputs()
    with applied("t_own", one(tmp_path, "t_own"), same) as fused:
        for _ in range(3):
            assert torch.allclose(fused(x, ___route=b), same(x, b), atol=1e-6)
        fused(*inputs(5))
        assert counts("t_own") == {"hits": 3, "shape": 1}


def test_misses_are_counted_whatever_becomes_of_the_kernels(tmp_path: Path) -> None:
    with applied("t_count", one(tmp_path, "t_count")) as fused:
        for _ in range(3):
            fused(*inputs(5))
        kernels._ops["t_count"].forget_routes()
        fused(*inputs(5))
        kernels._ops["t_count"].forget()
        fused(*inputs(5))
        assert counts("t_count") == {"hits": 0, "shape": 4, "disabled": 1}
        assert kernels.stats()["t_count"]["wanted"] == {"float32[5,32];float32[32]": 4}


_numbers = iter(range(10_000))


def test_a_shape_of_two_to_the_31_elements_is_only_looked_up(tmp_path: Path) -> None:
    def first(x: torch.Tensor) -> torch.Tensor:
        return x[:1].clone()

    with applied("t_huge", one(tmp_path, "t_huge"), first) as op:
        assert op(torch.empty(1, dtype=torch.int8).expand(2**31 + 1)).shape == (1,)
        assert counts("t_huge") == {"hits": 0, "arguments": 1}


def test_a_view_of_another_tensor_runs_where_it_lies_as_the_verdict_asks(tmp_path: Path) -> None:
    whole, b = torch.randn(3, 4, 32), inputs()[1]
    with applied("t_view", one(tmp_path, "t_view")) as fused:
        assert torch.allclose(fused(whole[1], b), bias_gelu(whole[1], b), atol=1e-6)
        assert counts("t_view") == {"hits": 1}


def test_inputs_may_lie_in_each_other(tmp_path: Path) -> None:
    """The plan writes to memory of its own alone."""
    x, _ = inputs()
    with applied("t_overlap", one(tmp_path, "t_overlap")) as fused:
        for b in (x[1], x[3]):
            assert torch.allclose(fused(x, b), bias_gelu(x, b), atol=1e-6)
        assert counts("t_overlap") == {"hits": 2}


def test_tensors_of_rank_0_have_kernels_of_their_own(tmp_path: Path) -> None:
    scalar = {"dtype": "float32", "shape": (), "strides": ()}
    made = template(
        1, 1, op="t_rank_0", shape_key="float32[];float32[]",
        arguments=tuple(
            Argument(name=name, kind="input", alignment=16, **scalar) for name in ("x", "b")
        ),
        outputs=(OutputTensor(place=Place(region=2, offset=0), **scalar),),
    )  # fmt: skip
    x, b = torch.tensor(0.5), torch.tensor(-2.0)
    with applied("t_rank_0", kernel_set(tmp_path, offer(made))) as fused:
        for _ in range(2):
            assert torch.allclose(fused(x, b), bias_gelu(x, b), atol=1e-6)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(lambda a, c: fused(a, c), (x, b), check_trace=False)
        assert torch.allclose(traced(x + 1, b), bias_gelu(x + 1, b))
        fused(x.reshape(1, 1), b.reshape(1))
        assert counts("t_rank_0") == {"hits": 2, "mode": 1, "shape": 1}


def test_gradients_flow_through_the_function_and_not_within_no_grad(tmp_path: Path) -> None:
    x, b = inputs()
    x.requires_grad_()
    with applied("t_grad", one(tmp_path, "t_grad")) as fused:
        fused(x, b).sum().backward()
        expected = torch.autograd.grad(bias_gelu(x, b).sum(), x)[0]
        assert torch.equal(x.grad, expected)
        with torch.no_grad():
            assert not fused(x, b).requires_grad
        with torch.inference_mode():
            assert fused(x, b).is_inference()
        assert counts("t_grad") == {"hits": 2, "grad": 1}


def test_forward_mode_gradients_vmap_and_traces_see_the_function(tmp_path: Path) -> None:
    x, b = inputs()
    with applied("t_modes", one(tmp_path, "t_modes")) as fused:
        fused(x, b)
        _, tangent = torch.func.jvp(lambda t: fused(t, b), (x,), (torch.ones_like(x),))
        _, expected = torch.func.jvp(lambda t: bias_gelu(t, b), (x,), (torch.ones_like(x),))
        assert torch.allclose(tangent, expected)
        both = torch.stack([x, x + 1])
        assert torch.allclose(torch.vmap(fused, (0, None))(both, b), bias_gelu(both, b))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(lambda a, c: fused(a, c), (x, b), check_trace=False)
        assert torch.allclose(traced(x + 1, b), bias_gelu(x + 1, b))
        assert counts("t_modes")["hits"] == 1


def test_autocast_that_changes_dtypes_and_deterministic_mode_are_guards(tmp_path: Path) -> None:
    def product(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu((x + b) @ torch.eye(32, dtype=x.dtype))

    x, b = inputs()
    with applied("t_cast", one(tmp_path, "t_cast"), product) as fused:
        with torch.autocast("cpu", torch.bfloat16):
            assert [fused(x, b).dtype for _ in range(3)] == [torch.bfloat16] * 3
        assert fused(x, b).dtype == torch.float32
        assert counts("t_cast") == {"hits": 1, "autocast": 3}
    with applied("t_keep", one(tmp_path, "t_keep")) as fused:
        with torch.autocast("cpu", torch.bfloat16):
            assert [fused(x, b).dtype for _ in range(3)] == [torch.float32] * 3
        assert counts("t_keep") == {"hits": 2, "autocast": 1}
    sums = offer(template(op="t_order", deterministic=False))
    with applied("t_order", kernel_set(tmp_path, sums)) as fused:
        torch.use_deterministic_algorithms(True)
        try:
            fused(x, b)
        finally:
            torch.use_deterministic_algorithms(False)
        fused(x, b)
        assert counts("t_order") == {"hits": 1, "deterministic": 1}


def test_scalars_must_be_those_of_the_verdict_and_of_their_type(tmp_path: Path) -> None:
    def scaled(x: torch.Tensor, b: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return bias_gelu(x, b) * scale

    x, b = inputs()
    made = kernel_set(tmp_path, offer(template(op="t_scalar", init_args=(1.0,))))
    with applied("t_scalar", made, scaled) as op:
        op(x, b)
        for other in (2.0, 1, True, float("nan"), -1.0):
            assert op(x, b, other).shape == x.shape
        assert counts("t_scalar") == {"hits": 1, "scalars": 5}


def test_an_output_that_is_a_view_of_an_input_is_never_replaced(tmp_path: Path) -> None:
    def view(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return x.view(4, 32)

    x, b = inputs()
    with applied("t_alias", one(tmp_path, "t_alias"), view) as op:
        assert op(x, b).data_ptr() == x.data_ptr()
        assert torch.ops.cuda_rl.t_alias(x, b).data_ptr() != x.data_ptr()
        assert counts("t_alias") == {"hits": 0, "aliases": 2}


def test_disabled_is_for_this_thread_and_enable_of_nothing_is_refused(tmp_path: Path) -> None:
    x, b = inputs()
    with applied("t_off", one(tmp_path, "t_off")) as fused:
        with kernels.disabled():
            fused(x, b)
            other = threading.Thread(target=fused, args=(x, b))
            other.start()
            other.join()
        assert counts("t_off") == {"hits": 1, "disabled": 1}
    with pytest.raises(UsageError, match="no kernel registry"):
        kernels.enable(tmp_path / "nothing", device="emulator")


def test_statuses_staleness_and_canaries_decide_who_may_use_a_kernel(tmp_path: Path) -> None:
    x, b = inputs()

    def reason(**changes: object) -> dict[str, int]:
        name = f"t_status_{next(_numbers)}"
        options = changes.pop("options", {})
        made = kernel_set(tmp_path, offer(template(op=name), **changes), **options)
        with applied(name, made) as fused:
            fused(x, b)
            return counts(name)

    assert reason(status="verified") == {"hits": 0, "status": 1}
    assert reason(status="retired") == {"hits": 0, "status": 1}
    assert reason(status="canary") == {"hits": 0, "status": 1}
    assert reason(status="canary", options={"canary_share": 1.0}) == {"hits": 1}
    assert reason(stale=True) == {"hits": 0, "stale": 1}
    assert reason(stale=True, options={"allow_stale": True}) == {"hits": 1}


def test_canaries_are_drawn_by_process(monkeypatch: pytest.MonkeyPatch) -> None:
    from coding_framework.deployment.apply.kernel_set import canary_number

    def number(host: int) -> float:
        monkeypatch.setattr("socket.gethostname", lambda: str(host))
        return canary_number()

    drawn = [number(host) for host in range(400)]
    assert number(7) == drawn[7]
    assert 0.4 < sum(drawn) / len(drawn) < 0.6
    assert 40 < sum(number < 0.2 for number in drawn) < 120


def test_the_fastest_of_the_kernels_that_hold_is_taken(tmp_path: Path) -> None:
    offers = [
        offer(template(op="t_fast", kernel="slow"), kernel_ms=2.0),
        offer(template(op="t_fast", kernel="fast", entry="through"), kernel_ms=1.0),
    ]
    with applied("t_fast", kernel_set(tmp_path, *offers)) as fused:
        fused(*inputs())
        route = next(iter(kernels._ops["t_fast"]._routes.values()))
        assert route.offer is offers[1]


# --- faults ---------------------------------------------------------------------------------------


def test_another_meaning_of_a_name_is_found_by_the_first_call(tmp_path: Path) -> None:
    x, b = inputs()
    made = kernel_set(tmp_path, offer(template(op="t_meaning", entry="wrong")))
    with applied("t_meaning", made) as fused:
        with pytest.warns(RuntimeWarning, match="first wrong element"):
            assert torch.equal(fused(x, b), bias_gelu(x, b))
        fused(x, b)
        assert counts("t_meaning") == {"hits": 0, "mismatch": 1, "quarantined": 1}
    assert not (tmp_path / "quarantine").exists()
    strict = kernel_set(tmp_path, offer(template(op="t_strict", entry="wrong")), strict=True)
    with (
        applied("t_strict", strict) as fused,
        pytest.raises(kernels.KernelMismatch, match="t_strict"),
    ):
        fused(x, b)


def test_a_later_mismatch_is_found_by_a_sampled_check_and_written_down(tmp_path: Path) -> None:
    x, b = inputs()
    rare = x.clone()
    rare[2, 3] = 60.0
    made = kernel_set(tmp_path, offer(template(op="t_rare", entry="sometimes")), check_rate=1.0)
    with applied("t_rare", made) as fused:
        fused(x, b)
        assert torch.equal(fused(rare, b), bias_gelu(rare, b))
        assert counts("t_rare") == {"hits": 1, "mismatch": 1}
    (written,) = (tmp_path / "quarantine").iterdir()
    assert json.loads(written.read_text())["kernel"] == template().kernel
    again = one(tmp_path, "t_next")
    with applied("t_next", again) as fused:
        fused(x, b)
        assert counts("t_next") == {"hits": 0, "quarantined": 1}


def test_checks_come_as_often_as_they_are_asked_for(tmp_path: Path) -> None:
    made = one(tmp_path, "none")
    for rate, gap in ((0.1, 9.0), (0.01, 99.0)):
        made.options = kernels.Options(check_rate=rate)
        drawn = [made.calls_to_next_check(made.offers["none"][0]) for _ in range(4000)]
        assert abs(sum(drawn) / len(drawn) - gap) < 0.1 * gap


def test_a_launch_fault_is_written_down_before_it_is_raised(tmp_path: Path) -> None:
    x, b = inputs()
    made = kernel_set(tmp_path, offer(template(op="t_fault", entry="faulty")))
    with applied("t_fault", made) as fused:
        with pytest.raises(kernels.KernelFault, match=r"quarantine/.*keeps it from being used"):
            fused(x, b)
        assert torch.equal(fused(x, b), bias_gelu(x, b))
        assert counts("t_fault") == {"hits": 0, "quarantined": 1}
    assert list((tmp_path / "quarantine").glob("*.json"))


def test_the_quarantine_of_a_registry_that_cannot_be_written_is_kept_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path / "cache"))
    registry = tmp_path / "registry"
    registry.mkdir()
    (registry / "quarantine").write_text("a file where the folder should be")
    x, b = inputs()
    made = kernel_set(registry, offer(template(op="t_readonly", entry="faulty")))
    with applied("t_readonly", made) as fused, pytest.raises(kernels.KernelFault, match="cache"):
        fused(x, b)
    assert kernel_set(registry).out.keys() == {template().kernel}


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("cannot be read", {"read": lambda digest: Path("/nothing/here").read_bytes()}),
        ("was changed", {"read": lambda digest: ptx()[:100] + b"!" + ptx()[101:]}),
        ("no PTX", {"code": ()}),
        ("shared memory", {"shared": 1 << 20}),
    ],
)
def test_what_cannot_be_loaded_falls_back_with_one_warning(
    tmp_path: Path, words: str, changes: dict
) -> None:
    name, x, b = f"t_load_{next(_numbers)}", *inputs()
    made = template(op=name)
    if "code" in changes:
        cubin = made.code[0].model_copy(update={"form": "cubin"})
        made = made.model_copy(update={"code": (cubin,)})
    if "shared" in changes:
        step = made.launches[0].model_copy(update={"shared_bytes": changes["shared"]})
        made = made.model_copy(update={"steps": (step,)})
    read = {"read": changes["read"]} if "read" in changes else {}
    with applied(name, kernel_set(tmp_path, offer(made, **read))) as fused:
        with pytest.warns(RuntimeWarning, match=words) as told:
            results = [fused(x, b) for _ in range(3)]
        assert all(torch.equal(result, bias_gelu(x, b)) for result in results)
        assert len(told) == 1
        assert counts(name) == {"hits": 0, "quarantined": 3}


def test_a_fork_has_no_kernels_until_it_enables_them(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    x, b = inputs()
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(1)  # PyTorch's own pool of threads does not survive a fork
    with applied("t_fork", one(tmp_path, "t_fork")) as fused:
        fused(x, b)
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            right = torch.equal(fused(x, b), bias_gelu(x, b))
            os._exit(0 if right and counts("t_fork") == {"hits": 1, "fork": 1} else 1)
        assert os.waitpid(child, 0)[1] == 0
        fused(x, b)
        assert counts("t_fork") == {"hits": 2}


def test_threads_at_once_get_their_own_results(tmp_path: Path) -> None:
    made = kernel_set(tmp_path, offer(template(op="t_threads", entry="through")))
    failures: list[str] = []
    with applied("t_threads", made) as fused:

        def work(seed: int) -> None:
            generator = torch.Generator().manual_seed(seed)
            for _ in range(5):
                x, b = torch.randn(4, 32, generator=generator), torch.randn(32, generator=generator)
                if not torch.allclose(fused(x, b), bias_gelu(x, b), atol=1e-6):
                    failures.append(f"thread {seed}")

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert counts("t_threads") == {"hits": 20}


class Capturing(EmulatorLauncher):
    """As while a graph is captured, where nothing can be waited for."""

    now = True

    def capturing(self) -> bool:
        return self.now


def test_nothing_is_loaded_or_checked_while_a_graph_is_captured(tmp_path: Path) -> None:
    x, b = inputs()
    launcher = Capturing()
    made = KernelSet(tmp_path, launcher, Options(check_rate=1.0))
    made.take([offer(template(op="t_capture"))])
    with applied("t_capture", made) as fused:
        fused(x, b)
        launcher.now = False
        fused(x, b)
        launcher.now = True
        fused(x, b)
        assert counts("t_capture") == {"hits": 2, "capture": 1}
        assert kernels.stats()["t_capture"]["checks"] == 1


class Lost(EmulatorLauncher):
    """A device on which an earlier launch did harm that shows when it is waited for."""

    broken = False

    def wait(self, index: int) -> None:
        if self.broken:
            raise LaunchError("it accessed an illegal address", certain=False)


def test_a_fault_that_shows_later_is_blamed_on_all_that_ran(tmp_path: Path) -> None:
    launcher = Lost()
    offers = [
        offer(template(4, op="t_later", kernel="one")),
        offer(template(5, op="t_later", kernel="other")),
        offer(template(6, op="t_later", kernel="not yet")),
    ]
    made = KernelSet(tmp_path, launcher, Options())
    made.take(offers)
    with applied("t_later", made) as fused:
        for _ in range(2):
            fused(*inputs(4))
            fused(*inputs(5))
        launcher.broken = True
        with pytest.raises(kernels.KernelFault, match="one of 2 kernels"):
            fused(*inputs(6))
    told = [json.loads(path.read_text()) for path in (tmp_path / "quarantine").iterdir()]
    assert {t["kernel"] for t in told} == {offers[0].kernel, offers[1].kernel}
    assert [t["certain"] for t in told] == [False, False]


# --- definitions ----------------------------------------------------------------------------------


def test_two_functions_of_one_name_are_refused_and_a_cell_run_again_is_not(tmp_path: Path) -> None:
    with applied("t_name", one(tmp_path, "t_name")):
        with pytest.raises(UsageError, match=r"t_name.*already, at .*applied\.py"):
            kernels.op("t_name")(lambda x: x)
        again = kernels.op("t_name")(bias_gelu)
        assert torch.allclose(again(*inputs()), bias_gelu(*inputs()), atol=1e-6)


@pytest.mark.parametrize(
    "function",
    [lambda *x: x[0], lambda x, *, b: x, lambda x, b=None: x, lambda x, b=torch.float32: x],
)
def test_parameters_that_are_no_tensors_or_numbers_are_refused(function) -> None:
    with pytest.raises(CodingFrameworkError, match="parameter"):
        kernels.op(f"t_parameters_{next(_numbers)}")(function)


def test_wrong_calls_raise_what_the_function_would(tmp_path: Path) -> None:
    with applied("t_wrong_call", one(tmp_path, "t_wrong_call")) as fused:
        with pytest.raises(TypeError, match="missing"):
            fused(inputs()[0])
        with pytest.raises(RuntimeError, match="size of tensor"):
            fused(torch.randn(4, 31), inputs()[1])
