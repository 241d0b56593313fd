"""Module tasks at other sizes: the same function, sizes that go together, other names."""

from __future__ import annotations

import math
import re
from itertools import islice, product

import pytest
import torch

from coding_framework.data.mixture import sft_mixture
from coding_framework.data.modules.catalog import all_drafts
from coding_framework.data.modules.operations import ELEMENTWISE
from coding_framework.data.modules.other_names import OTHER_NAMES, parameters_of, with_arguments
from coding_framework.data.modules.pool import shown_drafts
from coding_framework.data.modules.records import ModuleDraft, Operation
from coding_framework.data.modules.sizes import MOST_ELEMENTS, at_other_sizes
from coding_framework.data.modules.tasks import module_task, written
from coding_framework.data.synthesis.receipts import MODULES_PATH, packaged_receipts
from coding_framework.evaluation.suites import load_suite
from coding_framework.registry.digests import task_digest
from drawing.families import tensor_draft
from support.judged_modules import judged_jobs

pytestmark = pytest.mark.unit
TYPES = {"float32": torch.float32, "int64": torch.int64}
SMALL = frozenset({"resampling", "embedding"})


def some_of_each_family(count: int) -> list[ModuleDraft]:
    found: dict[str, list[ModuleDraft]] = {}
    for draft in all_drafts():
        ones = found.setdefault(draft.family, [])
        if len(ones) < count:
            ones.append(draft)
    return [draft for ones in found.values() for draft in ones]


def test_a_module_of_each_family_runs_at_other_sizes() -> None:
    moved = 0
    for draft in some_of_each_family(3):
        other = at_other_sizes(draft)
        assert other == at_other_sizes(draft)
        assert (other.name, other.key, other.sizes) == (draft.name, draft.key, draft.sizes)
        assert other.gpu_sizes[1:] == draft.gpu_sizes[1:]
        assert other.gpu_sizes[0].keys() == draft.gpu_sizes[0].keys()
        moved += other.gpu_sizes != draft.gpu_sizes
        task = module_task(other, renamed=True)
        scope: dict[str, type[torch.nn.Module]] = {}
        exec(task.reference, scope)
        with torch.device("meta"), torch.no_grad():
            given = [torch.empty(s.shape, dtype=TYPES[s.dtype]) for s in task.gpu_cases[0].inputs]
            result = scope["Model"](*task.init_args)(*given)
        results = result if isinstance(result, (tuple, list)) else [result]
        if draft.family not in SMALL:
            assert all(t.numel() < 2**31 for t in (*given, *results)), draft.key  # `int` counts
    families = {draft.family for draft in all_drafts()}
    assert moved >= 3 * len(families - SMALL) - 8


@pytest.mark.parametrize("family", ["linear_layer", "matrix_product", "distance"])
def test_what_a_layer_makes_is_no_larger_than_inputs_may_be(family: str) -> None:
    """A linear layer was drawn with results of 3.1e9 elements, which no GPU of 80 GiB judges."""
    tried = 0
    for draft in [d for d in all_drafts() if d.family == family and d.rank == 4][:3]:
        for number in range(40):
            other = at_other_sizes(draft, number)
            task = module_task(other)
            scope: dict[str, type[torch.nn.Module]] = {}
            exec(task.reference, scope)
            with torch.device("meta"), torch.no_grad():
                given = [torch.empty(s.shape) for s in task.gpu_cases[0].inputs]
                result = scope["Model"](*task.init_args)(*given)
            assert result.numel() <= MOST_ELEMENTS, other.gpu_sizes[0]
            tried += other.gpu_sizes != draft.gpu_sizes
    assert tried >= 30


def test_names_of_constants_are_others_and_mean_the_same() -> None:
    words = [*OTHER_NAMES, *(name for names in OTHER_NAMES.values() for name in names)]
    assert len(words) == len(set(words))
    renamed = 0
    for draft in some_of_each_family(6):
        plain, other = (written(draft, renamed=r) for r in (False, True))
        renamed += plain.constructor.keys() != other.constructor.keys()
        assert [*plain.constructor.values()] == [*other.constructor.values()]
        assert not other.constructor.keys() & {g.name for g in draft.inputs}
    assert renamed > 40


def test_attributes_have_other_names_in_the_module_and_its_kernels_and_mean_the_same() -> None:
    word = re.compile(r"(?<!\w)[A-Za-z_]\w*")
    attribute = re.compile(r"\bself\.(\w+)")
    seen: set[str] = set()
    moved = 0
    norms = (d for d in all_drafts() if d.family == "rms_normalisation")
    for draft in (*islice(norms, 16), *some_of_each_family(2)):
        own, module = (module_task(draft, renamed=r) for r in (False, True))
        plain = {*attribute.findall(written(draft, renamed=True).source(""))}
        for job in judged_jobs(draft):
            code = with_arguments(job.code, own, module)
            before, after = word.findall(job.code), word.findall(code)
            called = dict(zip(before, after, strict=True))
            assert [called[w] for w in before] == after, "each word has one new name"
            assert len({*called.values()}) == len(called), "and no two words have the same"
            assert word.sub("", job.code) == word.sub("", code)
            moved += any(called.get(w, w) != w for w in ("scale", "mean"))
            given = re.search(r"torch::Tensor forward\(([^)]*)\)", code)
            assert given is not None
            handed = [argument.split()[-1] for argument in given[1].split(",")]
            assert handed == [*(g.name for g in draft.inputs), *parameters_of(module)]
        seen |= {*attribute.findall(module.reference)} - plain
    assert {"scale", "gamma", "additive", "body", "classifier"} <= seen
    assert moved > 2, "a local of the kernel, beside a parameter of that name"


def test_an_argument_keeps_its_name_where_no_word_is_free_for_the_local() -> None:
    for draft in (d for d in all_drafts() if d.family == "rms_normalisation" and judged_jobs(d)):
        own, module = (module_task(draft, renamed=r) for r in (False, True))
        naive = judged_jobs(draft)[0].code
        code = with_arguments(naive, own, module)
        if "float inverse" in code:
            break
    assert "self.scale" in module.reference
    taken = f"{naive}// inverse ratio"
    assert with_arguments(taken, own, module) == taken


def test_what_pytorch_takes_anyway_is_left_out_of_some_renamed_modules() -> None:
    said = {name: row for name, row in ELEMENTWISE.items() if row.usual}
    assert len(said) == 7
    for name, row in said.items():
        operation = Operation(name, row.choices[0])
        drafts = [tensor_draft("activation", rank, operation) for rank in (1, 2, 3, 4)]
        sources = [
            module_task(draft, spelling, renamed=True).reference
            for draft, spelling in product(drafts, range(20))
        ]
        short = (f"F.{name}(x)", f"functional.{name}(x)", f"{row.layer.split('(')[0]}()")
        bare = [any(s in source for s in short) for source in sources]
        assert 0.2 < sum(bare) / len(bare) < 0.8, name
        assert not any(s in module_task(draft).reference for s in short for draft in drafts)
        scope = {"F": torch.nn.functional, "nn": torch.nn, "x": torch.linspace(-30.0, 30.0, 61)}
        explicit = eval(row.functions[0].format(x="x", **dict(row.choices[0])), scope)
        assert torch.equal(eval(short[0], scope), explicit)
        assert torch.equal(eval(f"{short[2]}(x)", scope), explicit)


def test_a_renamed_module_computes_the_same() -> None:
    """Also where two constants of one name have different values: one is a literal then."""
    twice = [d for d in all_drafts() if sum(o.name == "scale" for o in d.operations) > 1][:4]
    for draft in (*twice, *some_of_each_family(1)):
        tasks = [module_task(draft, renamed=r) for r in (False, True)]
        results = []
        for task in tasks:
            scope: dict[str, type[torch.nn.Module]] = {}
            exec(task.reference, scope)
            case = task.cases[0]
            torch.manual_seed(1)
            model = scope["Model"](*case.init_args)
            given = [
                torch.rand(s.shape) if s.dtype == "float32" else torch.zeros(s.shape, dtype=int)
                for s in case.inputs
            ]
            results.append(model(*given))
        assert torch.equal(*results), draft.key


def test_several_sizes_of_one_module_differ() -> None:
    draft = next(d for d in all_drafts() if d.family == "softmax")
    found = [at_other_sizes(draft, number).gpu_sizes[0] for number in range(20)]
    assert len({tuple(sizes.values()) for sizes in found}) > 15
    usual = math.prod(draft.gpu_sizes[0].values())
    assert any(math.prod(sizes.values()) > 2 * usual for sizes in found)
    assert any(2 * math.prod(sizes.values()) < usual for sizes in found)


def test_a_share_of_the_mixtures_answers_is_at_other_sizes() -> None:
    drafts = [d for d in shown_drafts() if judged_jobs(d)][:120]
    parts = {}
    for share in (0.0, 0.67, 1.0):
        mixture = sft_mixture(
            packaged_receipts(MODULES_PATH), unjudged=True, total=240, drafts=drafts, functions={},
            other_sizes=share, fits=lambda _: True,
        )  # fmt: skip
        parts[share] = [*mixture.parts["best kernel"], *mixture.parts["another spelling"]]
    usual = {task_digest(module_task(d, n)) for d in drafts for n in (0, 1)}
    shares = {
        share: sum(task_digest(e.task) not in usual for e in found) / len(found)
        for share, found in parts.items()
    }
    assert shares[0.0] == 0.0
    assert 0.5 < shares[0.67] < 0.8
    assert shares[1.0] > 0.9
    assert [e.task.name for e in parts[0.67]] == [e.task.name for e in parts[0.0]]
    assert all(bool(e.receipt) != e.id.endswith("/other-sizes") for e in parts[0.67])
    assert len({e.id for e in parts[0.67]}) == len(parts[0.67])


def test_judged_answers_are_of_the_usual_sizes_alone() -> None:
    drafts = [d for d in shown_drafts() if judged_jobs(d)][:8]
    shipped = packaged_receipts(MODULES_PATH)
    found = sft_mixture(shipped, total=24, drafts=drafts, functions={}, other_sizes=1.0)
    assert len(found.parts["best kernel"]) == 8
    assert all(e.receipt and "/other-sizes" not in e.id for e in found.parts["best kernel"])


def test_the_suite_at_other_sizes_has_the_held_out_tasks() -> None:
    usual, other = (load_suite(f"modules{more}:40") for more in ("", "-other-sizes"))
    assert [e.task.name for e in usual.tasks] == [e.task.name for e in other.tasks]
    assert [e.task.cases for e in usual.tasks] == [e.task.cases for e in other.tasks]
    pairs = zip(usual.tasks, other.tasks, strict=True)
    assert sum(a.task.gpu_cases != b.task.gpu_cases for a, b in pairs) > 35
    assert usual.digest != other.digest
