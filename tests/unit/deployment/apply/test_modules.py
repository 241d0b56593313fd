"""Modules of a model that become operations, and get their own forward back."""

from __future__ import annotations

import copy
import io
from pathlib import Path

import pytest
import torch
from torch import nn

from coding_framework.deployment import apply as kernels
from coding_framework.errors import UsageError
from support.applied import applied, bias_gelu, counts, inputs, kernel_set, offer, template

pytestmark = [pytest.mark.unit, pytest.mark.filterwarnings("ignore:kernel sha256")]


class BiasGelu(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.b = nn.Parameter(inputs()[1], requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(x + self.b)


def model() -> nn.Sequential:
    return nn.Sequential(nn.Sequential(BiasGelu()), nn.Identity())


def test_a_module_is_replaced_by_name_and_restored(tmp_path: Path) -> None:
    x, whole = inputs()[0], model()
    names, expected = list(whole.state_dict()), whole(x)
    with applied("m_replace", kernel_set(tmp_path, offer(template(op="m_replace")))):
        kernels.replace(whole, {"0.0": "m_replace"})
        assert torch.allclose(whole(x), expected, atol=1e-6)
        assert list(whole.state_dict()) == names
        assert counts("m_replace") == {"hits": 1}
        kernels.restore(whole)
        assert torch.equal(whole(x), expected)
        assert counts("m_replace") == {"hits": 1}
        kernels.replace(whole, {"0.0": "m_replace"})


def test_a_copy_has_its_own_parameters_and_a_saved_one_its_own_forward(tmp_path: Path) -> None:
    x, whole = inputs()[0], model()
    with applied("m_copy", kernel_set(tmp_path, offer(template(op="m_copy")))):
        kernels.replace(whole, {"0.0": "m_copy"})
        other = copy.deepcopy(whole)
        other[0][0].b.data.add_(1.0)
        assert torch.allclose(other(x), bias_gelu(x, whole[0][0].b + 1.0), atol=1e-6)
        assert torch.allclose(whole(x), bias_gelu(x, whole[0][0].b), atol=1e-6)
        assert counts("m_copy") == {"hits": 2}
        loaded = model()
        file = io.BytesIO()
        torch.save(whole.state_dict(), file)
        file.seek(0)
        loaded.load_state_dict(torch.load(file))


def test_a_replaced_module_compiles_without_a_graph_break(tmp_path: Path) -> None:
    x, whole = inputs()[0], model()
    with applied("m_compile", kernel_set(tmp_path, offer(template(op="m_compile")))):
        kernels.replace(whole, {"0.0": "m_compile"})
        compiled = torch.compile(whole, fullgraph=True, backend="aot_eager")
        with torch.no_grad():
            assert torch.allclose(compiled(x), bias_gelu(x, whole[0][0].b), atol=1e-6)
        assert counts("m_compile") == {"hits": 1}


def test_a_module_of_another_meaning_stays_as_it_was(tmp_path: Path) -> None:
    class Tanh(BiasGelu):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.gelu(x + self.b, approximate="tanh")

    x, whole = inputs()[0], nn.Sequential(Tanh())
    expected = whole(x)
    with applied("m_other", kernel_set(tmp_path, offer(template(op="m_other")))):
        kernels.replace(whole, {"0": "m_other"})
        with pytest.warns(RuntimeWarning, match="does not do what the module '0' does"):
            assert torch.equal(whole(x), expected)
        assert torch.equal(whole(x), expected)
        assert counts("m_other") == {"hits": 0}


def test_what_a_module_lacks_is_said(tmp_path: Path) -> None:
    whole = model()
    with applied("m_lacks", kernel_set(tmp_path)):
        with pytest.raises(UsageError, match="no module 'mlp'"):
            kernels.replace(whole, {"0.0": "m_lacks", "mlp": "m_lacks"})
        with pytest.raises(UsageError, match="no operation 'nothing'"):
            kernels.replace(whole, {"0.0": "nothing"})
        kernels.replace(whole, {"0.0": "m_lacks", "1": "m_lacks"})
        with pytest.raises(UsageError, match="replaced already"):
            kernels.replace(whole, {"0.0": "m_lacks"})
        with pytest.raises(UsageError, match="the module '1' has no b"):
            whole[1](inputs()[0])


def test_a_layer_norm_gives_its_own_attributes() -> None:
    def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
        return nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)

    kernels.op("m_norm")(norm)
    whole, x = nn.Sequential(nn.LayerNorm(32, eps=1e-3)), inputs()[0]
    expected = whole(x)
    kernels.replace(whole, {"0": "m_norm"})
    with torch.no_grad():
        assert torch.equal(whole(x), expected)
    assert kernels.stats()["m_norm"]["misses"] == {"disabled": 1}


class NormGelu(nn.Module):
    """As a task's model is written: its parameters are those of a layer in it."""

    def __init__(self) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(32, eps=1e-3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(self.ln(x))


def test_parameters_of_a_layer_within_are_found_by_themselves() -> None:
    def norm_gelu(
        x: torch.Tensor, ln_weight: torch.Tensor, ln_bias: torch.Tensor, ln_eps: float
    ) -> torch.Tensor:
        return nn.functional.gelu(
            nn.functional.layer_norm(x, x.shape[-1:], ln_weight, ln_bias, ln_eps)
        )

    kernels.op("m_nested")(norm_gelu)
    whole, x = nn.Sequential(NormGelu(), NormGelu()), inputs()[0]
    whole[1].ln.weight.data.mul_(3.0)
    expected = whole(x)
    kernels.replace(whole, {"0": "m_nested", "1": "m_nested"})
    with torch.no_grad():
        assert torch.equal(whole(x), expected)
        assert torch.equal(copy.deepcopy(whole)(x), expected)
        compiled = torch.compile(whole, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(x), expected)
    assert kernels.stats()["m_nested"]["misses"]["disabled"] >= 6


def test_parameters_of_other_names_are_given_by_names() -> None:
    def gamma_gelu(
        x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, eps: float = 1e-3
    ) -> torch.Tensor:
        return nn.functional.gelu(nn.functional.layer_norm(x, x.shape[-1:], gamma, beta, eps))

    kernels.op("m_named")(gamma_gelu)
    whole, x = nn.Sequential(NormGelu()), inputs()[0]
    expected = whole(x)
    kernels.replace(whole, {"0": "m_named"})
    with pytest.raises(UsageError, match=r'or replace with names={"gamma": "ITS.ATTRIBUTE"}'):
        whole(x)
    kernels.restore(whole)
    with pytest.raises(UsageError, match=r"has no ln\.scale, which names gives gamma"):
        kernels.replace(whole, {"0": "m_named"}, names={"gamma": "ln.scale"})
    with pytest.raises(UsageError, match="the parameter 'gama' of names: they have beta, eps"):
        kernels.replace(whole, {"0": "m_named"}, names={"gama": "ln.weight"})
    kernels.replace(whole, {"0": "m_named"}, names={"gamma": "ln.weight", "beta": "ln.bias"})
    with torch.no_grad():
        assert torch.equal(whole(x), expected)
    assert kernels.stats()["m_named"]["misses"] == {"disabled": 1}


def test_a_parameter_that_can_be_two_attributes_is_asked_for() -> None:
    def scaled(x: torch.Tensor, a_b_c: torch.Tensor) -> torch.Tensor:
        return x * a_b_c

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.a_b = nn.Module(), nn.Module()
            self.a.b_c = nn.Parameter(torch.tensor(2.0))
            self.a_b.c = nn.Parameter(torch.tensor(3.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.a_b.c

    kernels.op("m_two")(scaled)
    whole, x = nn.Sequential(Scaled()), inputs()[0]
    with pytest.raises(UsageError, match=r"can be a\.b_c or a_b\.c of the module '0'"):
        kernels.replace(whole, {"0": "m_two"})
    kernels.replace(whole, {"0": "m_two"}, names={"a_b_c": "a_b.c"})
    with torch.no_grad():
        assert torch.equal(whole(x), 3.0 * x)
