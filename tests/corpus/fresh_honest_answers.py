"""Honest KernelBench answers: `ModelNew` with kernels from `load_inline`."""

from __future__ import annotations

from coding_framework.data.kernelbench.problems import problem_task
from corpus.fresh_base import INDEX, FreshHonest
from corpus.sources import Sources

_SOURCES = Sources(__file__, globals())

_PROBLEM = _SOURCES.text("PROBLEM")
_ANSWER = _SOURCES.text("ANSWER")
_ONE = "torch::Tensor run(torch::Tensor x)"
_TWO = "torch::Tensor run(torch::Tensor x, torch::Tensor y)"
_MATRIX = "rows = 64\ncolumns = 96"
_MATRIX_INPUT = "torch.randn(rows, columns)"


def _answer(
    name: str,
    expression: str,
    cuda: str,
    *,
    declaration: str = _ONE,
    call: str = "module.run(x)",
    init: str = "pass",
    arguments: str = "",
    initial: str = "",
    names: str = "x",
    sizes: str = _MATRIX,
    inputs: str = _MATRIX_INPUT,
) -> FreshHonest:
    shared = {"init": init, "arguments": arguments, "names": names}
    problem = _PROBLEM.format(
        expression=expression, sizes=sizes, inputs=inputs, initial=initial, **shared
    )
    answer = _ANSWER.format(
        name=f"fresh_{name}",
        cuda=cuda,
        declaration=declaration,
        function="run",
        call=call,
        **shared,
    )
    given = problem_task(problem, name)
    return FreshHonest(f"fresh/answers/{name}", ("model_new",), given, answer)


_MAP = _SOURCES.text("MAP")


def _map(value: str) -> str:
    return _MAP.format(index=INDEX, value=value, declaration=_ONE)


_ROWS = _SOURCES.text("ROWS")
_TREE = _SOURCES.text("TREE")


def _rows(body: str, shape: str = "x.sizes()") -> str:
    return _ROWS.format(body=body, shape=shape, declaration=_ONE)


_ADD = _TREE.format(join="s[t] + s[t + d]")
_MOST = _TREE.format(join="fmaxf(s[t], s[t + d])")
_EACH = "for (int j = t; j < C; j += 128)"
_OUT = "o[(size_t)blockIdx.x * C + j]"
_LINEAR = _SOURCES.text("LINEAR")
_SCALED = _SOURCES.text("SCALED")
_PAIR = _SOURCES.text("PAIR")
_BOTH = "torch.randn(rows, columns), torch.randn(rows, columns)"
_MATMUL = _SOURCES.text("MATMUL")
_BIAS_ROWS = _SOURCES.text("BIAS_ROWS")

ANSWERS: tuple[FreshHonest, ...] = (
    _answer("swish", "x * torch.sigmoid(x)", _map("v / (1.f + expf(-v))")),
    _answer("hard_tanh", "F.hardtanh(x)", _map("fminf(fmaxf(v, -1.f), 1.f)")),
    _answer("cubic", "x ** 3 - x", _map("v * v * v - v")),
    _answer("volume", "torch.tanh(x) * 2", _map("2.f * tanhf(v)"),
            sizes="batch = 4\nchannels = 6\nside = 20",
            inputs="torch.randn(batch, channels, side, side)"),
    _answer("row_softmax", "torch.softmax(x, dim=1)",
            _rows(f"float a = -INFINITY; {_EACH} a = fmaxf(a, p[j]); {_MOST}  float m = a; a = 0;\n"
                  f"  {_EACH} a += expf(p[j] - m); {_ADD}  {_EACH} {_OUT} = expf(p[j] - m) / a;")),
    _answer("row_total", "torch.sum(x, dim=1, keepdim=True)",
            _rows(f"float a = 0; {_EACH} a += p[j]; {_ADD}  if (t == 0) o[blockIdx.x] = a;",
                  "{R, 1}")),
    _answer("row_top", "torch.max(x, dim=1)[0]",
            _rows(f"float a = -INFINITY; {_EACH} a = fmaxf(a, p[j]); {_MOST}"
                  "  if (t == 0) o[blockIdx.x] = a;", "{R}")),
    _answer("row_rms", "x / torch.sqrt(torch.mean(x ** 2, dim=1, keepdim=True) + 1e-5)",
            _rows(f"float a = 0; {_EACH} a += p[j] * p[j]; {_ADD}"
                  f"  {_EACH} {_OUT} = p[j] / sqrtf(a / C + 1e-5f);")),
    *_SOURCES["answers"],
    _answer("gated", "x * torch.sigmoid(y)", _PAIR.format(value="a / (1.f + expf(-b))"),
            declaration=_TWO, call="module.run(x, y)", names="x, y", inputs=_BOTH),
    _answer("larger_of_two", "torch.maximum(x, y) - x", _PAIR.format(value="fmaxf(a, b) - a"),
            declaration=_TWO, call="module.run(x, y)", names="x, y", inputs=_BOTH),
)  # fmt: skip
