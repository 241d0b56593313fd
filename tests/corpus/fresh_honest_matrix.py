"""Honest products, convolutions, pools and attention, written after what public kernels do."""

from __future__ import annotations

from coding_framework.types import DType, Task
from corpus.fresh_base import CPP, INDEX, FreshHonest, extension
from corpus.records import Shape, task
from corpus.sources import Sources

_SOURCES = Sources(__file__, globals())

_FLOAT = ("float32",)


def _call(
    kernels: str,
    inputs: int,
    body: str,
    *,
    head: str = "",
    dtypes: tuple[DType, ...] = _FLOAT,
) -> str:
    """`p0`, `p1`, ... are the inputs' pointers, `x0`, `x1`, ... the tensors."""
    each = dtypes if len(dtypes) == inputs else dtypes * inputs
    pointers = "".join(
        f"  const {CPP[d]}* p{i} = x{i}.data_ptr<{CPP[d]}>(); (void)p{i};\n"
        for i, d in enumerate(each)
    )
    return extension(
        kernels, ", ".join(f"torch::Tensor x{i}" for i in range(inputs)), pointers + body, head
    )


_PRODUCT: dict[str, list[Shape]] = {
    "main": [(48, 64), (64, 40)],
    "odd": [(37, 53), (53, 29)],
    "tiny": [(2, 3), (3, 5)],
}
_MNK = """  const int M = x0.size(0), K = x0.size(1), N = x1.size(1);
  auto out = torch::empty({M, N}, x0.options()); float* po = out.data_ptr<float>();
"""
_MM = "(const float* x, const float* y, float* o, int M, int N, int K)"
_RUN_MM = "  k<<<dim3((N + {c} - 1) / {c}, (M + {r} - 1) / {r}), {t}>>>(p0, p1, po, M, N, K);"


def _mm(kernel: str, rows: int, columns: int, threads: str, head: str = "") -> str:
    launch = _RUN_MM.format(r=rows, c=columns, t=threads)
    return _call(f"__global__ void k{_MM} {{{kernel}}}", 2, _MNK + launch, head=head)


_TILE_16 = _SOURCES.text("TILE_16")
_REGISTERS = _SOURCES.text("REGISTERS")
_DOUBLE_BUFFER = _SOURCES.text("DOUBLE_BUFFER")
_WARP_DOT = _SOURCES.text("WARP_DOT")
_BATCHED: dict[str, list[Shape]] = {
    "main": [(3, 20, 24), (3, 24, 16)],
    "odd": [(2, 13, 17), (2, 17, 11)],
    "tiny": [(1, 2, 3), (1, 3, 2)],
}
_BMM = _SOURCES.text("BMM")
_WMMA = _SOURCES.text("WMMA")
_WMMA_CODE = extension(
    _WMMA,
    "torch::Tensor x, torch::Tensor y",
    "  const int M = x.size(0), K = x.size(1), N = y.size(1);\n"
    "  auto out = torch::empty({M, N}, x.options().dtype(torch::kFloat32));\n"
    "  k<<<dim3((N + 15) / 16, (M + 15) / 16), 32>>>(\n"
    "      reinterpret_cast<const __half*>(x.data_ptr<c10::Half>()),\n"
    "      reinterpret_cast<const __half*>(y.data_ptr<c10::Half>()), out.data_ptr<float>(), M, N,"
    " K);",
    "#include <mma.h>\n#include <cuda_fp16.h>",
)
_TRANSPOSE = _SOURCES.text("TRANSPOSE")
_RC = "  const int R = x0.size(0), C = x0.size(1); (void)R; (void)C;\n"
_MATVEC = _SOURCES.text("MATVEC")
_LINEAR = _SOURCES.text("LINEAR")

# --- convolutions and pools: `x` is [B, C, H, W] -----------------------------------------------

_IMAGES: dict[str, list[Shape]] = {
    "main": [(2, 3, 16, 18)],
    "odd": [(1, 3, 11, 13)],
    "tiny": [(1, 3, 5, 5)],
}
_CONV = _SOURCES.text("CONV")
_DEPTHWISE = _SOURCES.text("DEPTHWISE")
_CONV1D = _SOURCES.text("CONV1D")
_POOL = _SOURCES.text("POOL")
_PLANES = """  const int B = x0.size(0), C = x0.size(1), H = x0.size(2), W = x0.size(3);
  (void)B; (void)C;
"""
_UPSAMPLE = _SOURCES.text("UPSAMPLE")
_GLOBAL_POOL = _SOURCES.text("GLOBAL_POOL")
_PADDED_MAX = _SOURCES.text("PADDED_MAX")
_INSTANCE = _SOURCES.text("INSTANCE")

# --- attention: [heads, length, width] each ----------------------------------------------------

_HEADS: dict[str, list[Shape]] = {
    "main": [(4, 32, 16)] * 3,
    "odd": [(3, 19, 11)] * 3,
    "tiny": [(1, 2, 4)] * 3,
}
_THREE_PASSES = _SOURCES.text("THREE_PASSES")
_ONLINE = _SOURCES.text("ONLINE")
_LD = """  const int H = x0.size(0), L = x0.size(1), D = x0.size(2);
  auto out = torch::empty_like(x0);
"""
_ATTEND = "F.softmax(q @ k.transpose(1, 2) / q.size(2) ** 0.5{mask}, dim=2) @ v"
_MASK = " + torch.full((q.size(1), q.size(1)), float('-inf'), dtype=q.dtype).triu(1)"
_LAUNCH_3 = "  k<<<dim3(L, H), 32, L * 4>>>(p0, p1, p2, out.data_ptr<float>(), L, D);"
_LAUNCH_1 = "  k<<<dim3((L + 31) / 32, H), 32>>>(p0, p1, p2, out.data_ptr<float>(), L, D);"


def _attention(name: str, code: str, masked: bool) -> FreshHonest:
    expression = _ATTEND.format(mask=_MASK if masked else "")
    return _made("attention", task(name, expression, _HEADS, names="q k v", reduction=(32, 19, 4)),
                 code)  # fmt: skip


def _made(pattern: str, given: Task, code: str) -> FreshHonest:
    return FreshHonest(f"fresh/{pattern}/{given.name}", (pattern,), given, code)


def _product(name: str, code: str) -> FreshHonest:
    return _made("matmul", task(name, "x @ y", _PRODUCT, names="x y", reduction=(64, 53, 3)), code)


def _pool(name: str, expression: str, value: str) -> FreshHonest:
    body = _PLANES + (
        "  int h = H / 2, w = W / 2, n = B * C * h * w;\n"
        "  auto out = torch::empty({B, C, h, w}, x0.options());\n"
        "  k<<<(n + 127) / 128, 128>>>(p0, out.data_ptr<float>(), H, W, h, w, n);"
    )
    kernel = _POOL.format(index=INDEX, value=value)
    return _made("pooling", task(name, expression, _IMAGES), _call(kernel, 1, body))


_SAME = _SOURCES.text("SAME")
_MATRICES: dict[str, list[Shape]] = {"main": [(40, 72)], "odd": [(37, 53)], "tiny": [(3, 5)]}
_AND_VECTOR: dict[str, list[Shape]] = {
    "main": [(40, 72), (72,)],
    "odd": [(37, 53), (53,)],
    "tiny": [(3, 5), (5,)],
}

MATRIX_KERNELS: tuple[FreshHonest, ...] = (
    _product("tile_of_16", _mm(_TILE_16, 16, 16, "dim3(16, 16)")),
    _product("register_tile", _mm(_REGISTERS, 32, 32, "64")),
    _product("double_buffer", _mm(_DOUBLE_BUFFER, 16, 16, "dim3(16, 16)")),
    _product("warp_a_dot", _mm(_WARP_DOT, 1, 4, "dim3(32, 4)")),
    _made(
        "matmul",
        task("batched", "torch.bmm(x, y)", _BATCHED, names="x y", reduction=(24, 17, 3)),
        _call(
            _BMM,
            2,
            "  const int B = x0.size(0), M = x0.size(1), K = x0.size(2), N = x1.size(2);\n"
            "  auto out = torch::empty({B, M, N}, x0.options());\n"
            "  k<<<dim3((N + 31) / 32, M, B), 32, K * 4>>>(p0, p1, out.data_ptr<float>(), M, N,"
            " K);",
        ),
    ),
    _made(
        "tensor_cores",
        task("wmma_half", "x.float() @ y.float()", _PRODUCT, names="x y",
             dtypes=("float16", "float16"), reduction=(64, 53, 3)),
        _WMMA_CODE,
    ),
    _made(
        "shared",
        task("transpose", "x.t().contiguous()", _MATRICES),
        _call(
            _TRANSPOSE,
            1,
            _RC + "  auto out = torch::empty({C, R}, x0.options());\n"
            "  k<<<dim3((C + 31) / 32, (R + 31) / 32), dim3(32, 8)>>>(p0, out.data_ptr<float>(),"
            " R, C);",
        ),
    ),
    _made(
        "shuffle",
        task("matvec", "x @ y", _AND_VECTOR, names="x y", reduction=(72, 53, 5)),
        _call(
            _MATVEC,
            2,
            _RC + "  auto out = torch::empty({R}, x0.options());\n"
            "  k<<<(R + 3) / 4, dim3(32, 4)>>>(p0, p1, out.data_ptr<float>(), R, C);",
        ),
    ),
    _made(
        "parameters",
        task("linear_relu", "F.relu(self.f(x))", {"main": [(24, 32)], "odd": [(13, 32)],
             "tiny": [(1, 32)]}, init=": self.f = nn.Linear(32, 20)", reduction=(32, 32, 32)),
        _call(
            _LINEAR,
            3,
            "  const int M = x0.size(0), K = x0.size(1), N = x1.size(0);\n"
            "  auto out = torch::empty({M, N}, x0.options());\n"
            "  k<<<dim3((N + 31) / 32, M), 32>>>(p0, p1, p2, out.data_ptr<float>(), M, N, K);",
        ),
    ),
    _made(
        "convolution",
        task("conv_3x3", "self.f(x)", _IMAGES, init=": self.f = nn.Conv2d(3, 5, 3, padding=1)",
             reduction=(27, 27, 27)),
        _call(
            _CONV,
            3,
            _PLANES + "  const int K = x1.size(0), n = B * H * W;\n"
            "  auto out = torch::empty({B, K, H, W}, x0.options());\n"
            "  k<<<dim3((n + 127) / 128, K), 128, C * 36>>>(p0, p1, p2, out.data_ptr<float>(), C,"
            " H, W, K, n);",
        ),
    ),
    _made(
        "convolution",
        task("depthwise", "self.f(x)", _IMAGES,
             init=": self.f = nn.Conv2d(3, 3, 3, groups=3, bias=False)", reduction=(9, 9, 9)),
        _call(
            _DEPTHWISE,
            2,
            _PLANES + "  const int n = B * C * (H - 2) * (W - 2);\n"
            "  auto out = torch::empty({B, C, H - 2, W - 2}, x0.options());\n"
            "  k<<<(n + 63) / 64, 64>>>(p0, p1, out.data_ptr<float>(), C, H, W, n);",
        ),
    ),
    _made(
        "convolution",
        task("conv1d_shared", "F.conv1d(x.unsqueeze(1), y.view(1, 1, 5), padding=2).squeeze(1)",
             {"main": [(6, 300), (5,)], "odd": [(3, 131), (5,)], "tiny": [(1, 3), (5,)]},
             names="x y", reduction=(5, 5, 5)),
        _call(
            _CONV1D,
            2,
            "  const int R = x0.size(0), L = x0.size(1), n = R * L; auto out = "
            "torch::empty_like(x0);\n"
            "  k<<<dim3((L + 127) / 128, R), 128>>>(p0, p1, out.data_ptr<float>(), L, n);",
        ),
    ),
    _pool("max_pool", "F.max_pool2d(x, 2)",
          "fmaxf(fmaxf(a[0], a[1]), fmaxf(a[W], a[W + 1]))"),
    _pool("average_pool", "F.avg_pool2d(x, 2)", "(a[0] + a[1] + a[W] + a[W + 1]) * 0.25f"),
    _made(
        "pooling",
        task("padded_max_pool", "F.max_pool2d(x, 3, stride=1, padding=1)", _IMAGES),
        _call(_PADDED_MAX, 1, _SAME + "  k<<<(n + 127) / 128, 128>>>(p0, po, H, W, n);"),
    ),
    _made(
        "pooling",
        task("global_average", "x.mean((2, 3))", _IMAGES, reduction=(288, 143, 25)),
        _call(
            _GLOBAL_POOL,
            1,
            _PLANES + "  auto out = torch::empty({B, C}, x0.options());\n"
            "  k<<<B * C, 32>>>(p0, out.data_ptr<float>(), H * W);",
        ),
    ),
    _made(
        "resampling",
        task("nearest_twice", "F.interpolate(x, scale_factor=2.0, mode='nearest')", _IMAGES),
        _call(
            _UPSAMPLE,
            1,
            _PLANES + "  const int n = x0.numel() * 4;\n"
            "  auto out = torch::empty({B, C, 2 * H, 2 * W}, x0.options());\n"
            "  k<<<(n + 127) / 128, 128>>>(p0, out.data_ptr<float>(), H, W, n);",
        ),
    ),
    _made(
        "welford",
        task("instance_norm", "F.instance_norm(x)", _IMAGES, reduction=(288, 143, 25)),
        _call(_INSTANCE, 1, _SAME + "  k<<<B * C, 64>>>(p0, po, H * W);"),
    ),
    _attention("three_passes", _call(_THREE_PASSES.replace("CAUSAL", "false"), 3,
                                     _LD + _LAUNCH_3), False),
    _attention("three_passes_causal", _call(_THREE_PASSES.replace("CAUSAL", "j > i"), 3,
                                            _LD + _LAUNCH_3), True),
    _attention("online", _call(_ONLINE.replace("CAUSAL_END", "L"), 3, _LD + _LAUNCH_1), False),
    _attention("online_causal", _call(_ONLINE.replace("CAUSAL_END", "i + 1"), 3,
                                      _LD + _LAUNCH_1), True),
)  # fmt: skip
