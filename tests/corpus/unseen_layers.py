"""Honest kernels for layers and odd signatures, by an author who had not read the judge."""

# ruff: noqa: E501 - kernels stay on the lines on which their authors would write them

from __future__ import annotations

from coding_framework.types import Task
from corpus.records import MATRIX, Honest, task
from corpus.sources import Sources

_SOURCES = Sources(__file__, globals())


def _layer(name: str, features: str, of: Task, code: str) -> Honest:
    module = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }\n'
    return Honest(
        name,
        tuple(features.split()),
        "#include <torch/extension.h>\n#include <cuda_runtime.h>\n" + code + module,
        of,
        "unseen",
    )


LINEAR = task(
    "linear_layer",
    "self.linear(x)",
    {"main": [(32, 48)], "odd": [(7, 48)], "tiny": [(1, 48)]},
    init=": self.linear = nn.Linear(48, 20)",
    reduction=(48, 48, 48),
)
CONV = task(
    "conv2d",
    "self.conv(x)",
    {"main": [(2, 3, 12, 14)], "odd": [(1, 3, 7, 5)], "tiny": [(1, 3, 3, 3)]},
    init=": self.conv = nn.Conv2d(3, 4, 3, padding=1)",
    reduction=(27, 27, 27),
)
BATCH_NORM = task(
    "scale_shift",
    "x * self.weight + self.bias",
    MATRIX,
    init=": self.weight = nn.Parameter(torch.tensor(1.5)); self.bias = nn.Parameter(torch.tensor(-0.5))",
)
SCALED = task(
    "scaled",
    "x * self.alpha + self.shift",
    MATRIX,
    init="alpha, shift: self.alpha = alpha; self.shift = shift",
    init_args=(1.75, -3.0),
)
MAX_POOL = task(
    "max_pool",
    "F.max_pool2d(x, 2)",
    {"main": [(2, 4, 16, 24)], "odd": [(1, 3, 7, 9)], "tiny": [(1, 1, 2, 3)]},
)
AVERAGE_POOL = task(
    "average_pool",
    "F.avg_pool2d(x, 3, stride=2)",
    {"main": [(2, 4, 17, 25)], "odd": [(1, 3, 7, 9)], "tiny": [(1, 1, 3, 3)]},
    reduction=(9, 9, 9),
)
CHANNEL_MEAN = task(
    "channel_mean",
    "x.mean(dim=(2, 3))",
    {"main": [(4, 6, 12, 20)], "odd": [(3, 5, 7, 9)], "tiny": [(1, 1, 2, 3)]},
    reduction=(240, 63, 6),
)
BATCHED = task(
    "batched_matmul",
    "torch.bmm(x, y)",
    {
        "main": [(3, 20, 24), (3, 24, 16)],
        "odd": [(2, 7, 11), (2, 11, 5)],
        "tiny": [(1, 1, 2), (1, 2, 3)],
    },
    names="x y",
    reduction=(24, 11, 2),
)
MATVEC = task(
    "matvec",
    "x @ y",
    {"main": [(64, 96), (96,)], "odd": [(37, 53), (53,)], "tiny": [(3, 5), (5,)]},
    names="x y",
    reduction=(96, 53, 5),
)
OUTER = task(
    "outer",
    "torch.outer(x, y)",
    {"main": [(64,), (96,)], "odd": [(37,), (53,)], "tiny": [(3,), (5,)]},
    names="x y",
)
DIAGONAL = task(
    "diagonal_matmul",
    "torch.diag(x) @ y",
    {"main": [(48,), (48, 40)], "odd": [(17,), (17, 29)], "tiny": [(2,), (2, 3)]},
    names="x y",
)
ATTENTION = task(
    "attention",
    "F.softmax(q @ k.t() / 4.0, dim=1) @ v",
    {
        "main": [(24, 16), (32, 16), (32, 16)],
        "odd": [(9, 16), (13, 16), (13, 16)],
        "tiny": [(1, 16), (2, 16), (2, 16)],
    },
    names="q k v",
    reduction=(32, 16, 16),
    bounds=(-2.0, 2.0),
)
EMBEDDING = task(
    "gather_rows",
    "y[x]",
    {"main": [(50,), (40, 24)], "odd": [(13,), (40, 7)], "tiny": [(1,), (40, 3)]},
    names="x y",
    dtypes=("int64", "float32"),
    bounds=(0.0, 39.0),
)
GREATER = task("greater", "x > 0.25", MATRIX)
TRIANGLE = task(
    "lower_triangle", "torch.tril(x)", {"main": [(48, 48)], "odd": [(37, 37)], "tiny": [(3, 3)]}
)
MSE = task(
    "mse",
    "F.mse_loss(x, y)",
    {"main": [(64, 96)] * 2, "odd": [(37, 53)] * 2, "tiny": [(3, 5)] * 2},
    names="x y",
    reduction=(6144, 1961, 15),
)
CONCAT = task(
    "concatenate",
    "torch.cat([x, y], dim=1)",
    {"main": [(20, 30), (20, 17)], "odd": [(7, 9), (7, 5)], "tiny": [(1, 1), (1, 2)]},
    names="x y",
)
FLIP = task("flip", "torch.flip(x, dims=[1])", MATRIX)
BIAS = task(
    "bias_relu",
    "F.relu(x + y)",
    {"main": [(64, 96), (96,)], "odd": [(37, 53), (53,)], "tiny": [(3, 5), (5,)]},
    names="x y",
)
SCALAR_INPUT = task(
    "times_scalar",
    "x * y",
    {"main": [(64, 96), ()], "odd": [(37, 53), ()], "tiny": [(3, 5), ()]},
    names="x y",
)
COSINE = task(
    "cosine",
    "F.cosine_similarity(x, y, dim=1)",
    {"main": [(64, 96)] * 2, "odd": [(37, 53)] * 2, "tiny": [(3, 5)] * 2},
    names="x y",
    reduction=(96, 53, 5),
    bounds=(0.1, 2.0),
)
CONV1D = task(
    "conv1d",
    "F.conv1d(x, y)",
    {
        "main": [(2, 3, 40), (5, 3, 3)],
        "odd": [(1, 2, 11), (3, 2, 3)],
        "tiny": [(1, 1, 3), (1, 1, 3)],
    },
    names="x y",
    reduction=(9, 6, 3),
)
MASKED = task(
    "masked_fill",
    "x.masked_fill(y, -1.0)",
    {"main": [(64, 96)] * 2, "odd": [(37, 53)] * 2, "tiny": [(3, 5)] * 2},
    names="x y",
    dtypes=("float32", "bool"),
)
GROUP_NORM = task(
    "instance_norm",
    "F.instance_norm(x)",
    {"main": [(2, 4, 10, 12)], "odd": [(1, 3, 7, 9)], "tiny": [(1, 1, 2, 3)]},
    reduction=(120, 63, 6),
)

UNSEEN_LAYERS = _SOURCES["unseen_layers"]
