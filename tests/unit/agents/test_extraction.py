"""Whatever a model answers, extraction gives a kernel or says why not."""

from __future__ import annotations

import json
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coding_framework.agents.extraction import MAX_CODE_CHARS, extract_kernel

KERNEL = (
    "#include <torch/extension.h>\n\n__global__ void k(float* o) { o[0] = 1.0f; }\n\n"
    "torch::Tensor forward(torch::Tensor x) { return x; }\n\n"
    'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }\n'
)


def fenced(code: str, tag: str = "cuda") -> str:
    return f"```{tag}\n{code}```"


@pytest.mark.parametrize("tag", ["cuda", "cpp", "c++", "CUDA", "cu", "", "cuda title=k.cu"])
def test_one_block_is_taken_whatever_its_tag(tag: str) -> None:
    found = extract_kernel(f"Here it is:\n{fenced(KERNEL, tag)}\nIt is fast.")
    assert found.code == KERNEL
    assert found.note == "one block"


MODEL = (
    "import torch\nfrom torch import nn\nfrom torch.utils.cpp_extension import load_inline\n\n"
    'ext = load_inline("k", "", "__global__ void k() {}", functions=["f"])\n\n\n'
    "class ModelNew(nn.Module):\n    def forward(self, x):\n        return ext.f(x)\n"
)


@pytest.mark.parametrize("tag", ["python", "py", "Python", ""])
def test_a_python_block_with_a_model_is_a_kernel(tag: str) -> None:
    usage = fenced("model = ModelNew()\nprint(model(x))\n", "python")
    found = extract_kernel(f"Mine:\n{fenced(MODEL, tag)}\nUse it so:\n{usage}")
    assert found.code == MODEL
    assert found.note == "one block"


def test_a_model_without_a_fence_is_taken_from_its_first_import() -> None:
    found = extract_kernel("Here you are.\n" + MODEL)
    assert found.code == MODEL
    assert "first import" in found.note


def test_python_without_a_model_is_no_kernel() -> None:
    found = extract_kernel(fenced("import torch\nprint(torch.ones(3))\n", "python"))
    assert found.code is None


def test_of_several_blocks_the_last_whole_kernel_is_taken() -> None:
    later = KERNEL.replace("1.0f", "2.0f")
    answer = "\n".join([fenced(KERNEL), "Better:", fenced(later), fenced("nvcc k.cu", "bash")])
    found = extract_kernel(answer)
    assert found.code == later
    assert "2 blocks: took number 2" in found.note


def test_a_fragment_after_the_kernel_does_not_replace_it() -> None:
    found = extract_kernel(fenced(KERNEL) + "\nLaunch it so:\n" + fenced("k<<<1, 1>>>(o);"))
    assert found.code == KERNEL


def test_a_truncated_fence_gives_what_is_there() -> None:
    found = extract_kernel("Sure.\n```cuda\n" + KERNEL[:80])
    assert found.code is not None
    assert found.code.strip() == KERNEL[:80].strip()
    assert "never closed" in found.note


def test_source_without_a_fence_is_taken_from_its_first_line() -> None:
    found = extract_kernel("The kernel:\n" + KERNEL)
    assert found.code == KERNEL
    assert "no fence" in found.note


_EXPLAINED = MODEL.replace(
    "    def forward",
    '    """So:\n\n    ```\n    ModelNew()(x)\n    ```\n    """\n\n    def forward',
)
_AT_THE_MARGIN = MODEL + '\nTOLD = """\n```\nModelNew()(x)\n```\n"""\n'


def _indented(text: str, by: str) -> str:
    return "\n".join(by + line for line in text.split("\n"))


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (fenced(_EXPLAINED, "python"), _EXPLAINED),
        (fenced(_AT_THE_MARGIN, "python"), _AT_THE_MARGIN),
        (fenced(MODEL + '# """\n', "python") + "\nThat is all.", MODEL + '# """\n'),
        ("- This one:\n\n" + _indented(fenced(MODEL, "python"), "  "), MODEL),
        ("2. " + _indented(fenced(KERNEL), "   ").lstrip(), KERNEL),
        ("\t* deep:\n" + _indented(fenced(KERNEL), "\t"), KERNEL),
        (_indented(fenced(KERNEL), "> "), KERNEL),
        (_indented(fenced(KERNEL), "> > "), KERNEL),
        (fenced(KERNEL.rstrip()) + "\nDone.", KERNEL),
        (fenced(KERNEL.rstrip()) + "\n" + fenced("k<<<1, 1>>>(o);\n"), KERNEL),
        ("My kernel: " + fenced(KERNEL), KERNEL),
        (fenced(KERNEL, "cuda:fast/kernel.cu"), KERNEL),
        (fenced(KERNEL, "{.cuda .numberLines}"), KERNEL),
        (fenced(KERNEL, "text"), KERNEL),
        (fenced(KERNEL, "hip"), KERNEL),
        (f"<think>\n__global__ or not?\n</think>\n<answer>\n{KERNEL}</answer>\nSo.", KERNEL),
        (f"<code>\n{MODEL}</code>\n", MODEL),
        (json.dumps({"name": "submit", "arguments": {"code": KERNEL}}), KERNEL),
        (json.dumps({"arguments": json.dumps({"code": KERNEL})}), KERNEL),
        ("```json\n" + json.dumps({"kernel": MODEL}, indent=1) + "\n```", MODEL),
        (json.dumps({"content": "Here:\n" + fenced(KERNEL) + "\nso."}), KERNEL),
        (fenced(KERNEL) + "\n" + fenced("__global__ void k(float* o);  // of forward {\n"), KERNEL),
    ],
)
def test_a_kernel_is_found_as_models_write_answers(answer: str, code: str) -> None:
    assert extract_kernel(answer).code == code


@settings(max_examples=200)
@given(st.lists(st.sampled_from([" ", "\t", "\r", "x", "\n", "\u00a0", "\ufeff", "\f"])))
def test_a_block_is_taken_byte_for_byte(parts: list[str]) -> None:
    code = KERNEL + "".join(parts) + "\n"
    assert extract_kernel(fenced(code)).code == code


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        ("", "empty"),
        ("  \n ", "empty"),
        ("I cannot do that.", "no code block"),
        (fenced("print(1)\n", "python"), "none of them CUDA"),
        ("```\n```", "none of them CUDA"),
    ],
)
def test_an_answer_without_a_kernel_says_so(answer: str, note: str) -> None:
    found = extract_kernel(answer)
    assert found.code is None
    assert note in found.note


def test_a_longer_fence_holds_a_shorter_one() -> None:
    code = KERNEL + "// ```\n"
    found = extract_kernel(f"````cuda\n{code}````")
    assert found.code == code


def test_nul_bytes_are_kept_for_the_judge_and_named() -> None:
    found = extract_kernel(fenced(KERNEL + "\0"))
    assert found.code is not None
    assert "\0" in found.code
    assert "NUL" in found.note


def test_code_beyond_the_limit_is_refused_not_cut() -> None:
    found = extract_kernel(fenced(KERNEL + "// " + "x" * MAX_CODE_CHARS + "\n"))
    assert found.code is None
    assert "refused" in found.note


@pytest.mark.parametrize("piece", ["```", "```cuda\n", "`", "~~~\n", "__global__", "\n", "a```b\n"])
def test_a_hundred_thousand_characters_take_no_time(piece: str) -> None:
    start = time.thread_time()
    extract_kernel((piece * (100_000 // len(piece) + 1))[:100_000])
    assert time.thread_time() - start < 1.0


@settings(max_examples=300, deadline=None)
@given(st.text())
def test_any_text_gives_an_extraction(text: str) -> None:
    found = extract_kernel(text)
    assert found.note


_PIECES = st.sampled_from(
    ["```", "```cuda\n", "```\n", "~~~", "\n", "\0", "\r\n", " ", "__global__", KERNEL, "forward",
     "#include", "prose ", "\u2028", "\ud800", "````", "```python\n"]
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.lists(_PIECES, max_size=25).map("".join))
def test_any_mix_of_fences_and_source_gives_an_extraction(text: str) -> None:
    found = extract_kernel(text)
    assert found.note
    assert found.code is None or found.code.strip()


def test_five_thousand_malformed_answers_end_in_an_extraction() -> None:
    rng = random.Random(0)
    whole = f"Reason.\n{fenced(KERNEL)}\nDone."
    for _ in range(5000):
        text = list(whole)
        for _ in range(rng.randrange(1, 12)):
            at = rng.randrange(len(text))
            text[at : at + rng.randrange(20)] = rng.choice(["", "`", "\0", "```", "\n", "é"])
        assert extract_kernel("".join(text)).note
