"""The judge on the templates of fast kernels, at ragged sizes; and on what they avoid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from coding_framework.cuda.many.pool import JudgePool
from coding_framework.data.modules.catalog import find_module
from coding_framework.data.modules.kernels import kernels_of
from coding_framework.data.modules.kernels.convolutions import Convolution
from coding_framework.data.modules.kernels.products import Product
from coding_framework.data.modules.kernels.tensor_cores import Tile
from coding_framework.data.modules.tasks import module_task
from coding_framework.types import Status, Task, TensorSpec, TestCase
from support.whole_kernels import convolution, short, short_convolution, tensor, tiles

pytestmark = pytest.mark.integration
Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]
SMALL = Tile(64, 64, 32)
RELU = ("a = fmaxf(a, 0.0f);",)


def task(
    expression: str, names: str, shapes: tuple[Shapes, ...], terms: Callable[[Shapes], int]
) -> Task:
    """A function of the named inputs, at these shapes."""
    return Task(
        name="fast",
        tier=2,
        family="test",
        ops=("fast",),
        description=expression,
        reference=(
            "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
            f"class Model(nn.Module):\n    def forward(self, {', '.join(names)}):\n"
            f"        return {expression}\n"
        ),
        cases=tuple(
            TestCase(
                name=f"case{number}",
                inputs=tuple(
                    TensorSpec(name=n, shape=s, low=-2.0, high=2.0)
                    for n, s in zip(names, sizes, strict=True)
                ),
                reduction_length=terms(sizes),
                shown=number == 0,
            )
            for number, sizes in enumerate(shapes)
        ),
    )


def product_task(
    product: Product, sizes: tuple[tuple[int, int, int], ...], batch: Shape = ()
) -> Task:
    """x and u of the layouts of a product."""
    x, u = "x", "u"
    x = x if product.x_inner_first else f"{x}.transpose(-1, -2)"
    u = f"{u}.transpose(-1, -2)" if product.u_inner_first else u
    shapes = tuple(
        (
            (*batch, *((m, k) if product.x_inner_first else (k, m))),
            (*batch, *((n, k) if product.u_inner_first else (k, n))),
        )
        for m, k, n in sizes
    )
    return task(
        f"torch.relu({x} @ {u})", "xu", shapes, lambda s: s[0][-1 if product.x_inner_first else -2]
    )


JUDGED_MODULES = (
    "m1_scale_softmax_4a4036", "m1_scale_softmax_c7d1a1", "m1_divide_softmax_eba884",
    "m1_batch_norm_992a89", "m1_layer_norm_20d1bd", "m1_instance_norm_21b9c4",
    "m1_vector_norm_b5ca7d", "m1_huber_loss_6777bf", "m1_scan_f5e459", "m1_scan_eb72f6",
    "m1_std_4d7841", "m1_matmul_tanh_8527c2", "m1_conv_transpose2d_c96d56", "m1_conv1d_44e944",
    "m2_conv2d_square_max_pool2d_be4368", "m2_conv_transpose3d_group_norm_relu_12beaf",
    "m2_linear_softmax_subtract_bias_de2183",
)  # fmt: skip
RAGGED = ((70, 101, 67), (3, 5, 2), (64, 64, 64))


async def right(pool: JudgePool, task: Task, code: str) -> None:
    verdict = await pool.judge(task, code)
    assert verdict.correct, f"{verdict.reason}\n{code}"


async def test_a_product_on_tensor_cores_is_right(emulator_pool: JudgePool) -> None:
    product = Product(post=RELU)
    await right(
        emulator_pool, product_task(product, ((33, 37, 65), (3, 5, 2))), tensor(product, SMALL)
    )


@pytest.mark.slow
@pytest.mark.parametrize("x_first", [True, False])
@pytest.mark.parametrize("u_first", [True, False])
@pytest.mark.parametrize("form", ["tiles", "large", "small", "split", "batched", "short"])
async def test_products_of_every_layout_are_right(
    emulator_pool: JudgePool, form: str, x_first: bool, u_first: bool
) -> None:
    product = Product(x_first, u_first, batched=form == "batched", post=RELU)
    code = {
        "tiles": lambda: tiles(product),
        "large": lambda: tensor(product),
        "small": lambda: tensor(product, SMALL),
        "split": lambda: tensor(product, Tile(128, 64, 32), split=True),
        "batched": lambda: tensor(product, SMALL),
        "short": lambda: short(product),
    }[form]()
    more = {"split": ((5, 700, 9),), "short": ((68, 100, 72),)}.get(form, ())
    sizes = (*RAGGED, *more)
    batch = (3,) if product.batched else ()
    await right(emulator_pool, product_task(product, sizes, batch), code)


async def test_a_short_product_on_tensor_cores_is_right(emulator_pool: JudgePool) -> None:
    """By copies of 4 bytes, and by those of 16 where all rows are multiples of 16 bytes."""
    product = Product(post=RELU)
    for sizes in (((33, 37, 65), (3, 5, 2)), ((33, 40, 68), (4, 4, 4))):
        await right(emulator_pool, product_task(product, sizes), short(product))


@pytest.mark.slow
@pytest.mark.parametrize("name", JUDGED_MODULES)
async def test_fast_kernels_of_modules_are_right(emulator_pool: JudgePool, name: str) -> None:
    """One of each worker and each kind of kernel, at three shape sets, ragged ones among them."""
    module = find_module(name)
    assert module is not None
    for variant in kernels_of(module):
        if variant.level in (2, 3):
            await right(emulator_pool, module_task(module), variant.source)


CONVOLUTIONS = {
    "padded": (
        Convolution((3, 3), padding=(1, 1)),
        (
            ((2, 5, 9, 8), (7, 5, 3, 3)),
            ((1, 3, 7, 11), (65, 3, 3, 3)),
            ((1, 2, 3, 3), (1, 2, 3, 3)),
        ),
    ),
    "strided, dilated, grouped": (
        Convolution((3, 5), (2, 3), (1, 2), (2, 1), 2),
        (((2, 6, 19, 18), (8, 3, 3, 5)), ((1, 4, 17, 31), (6, 2, 3, 5))),
    ),
    "of a sequence": (
        Convolution((4,), (2,), (1,)),
        (((2, 5, 39), (7, 5, 4)), ((1, 3, 200), (3, 3, 4))),
    ),
    "of a volume": (
        Convolution((3, 3, 3), (1, 1, 1), (1, 0, 1)),
        (((2, 3, 5, 6, 7), (7, 3, 3, 3, 3)), ((1, 1, 3, 4, 5), (1, 1, 3, 3, 3))),
    ),
    "transposed": (
        Convolution((3, 3), (2, 2), (1, 1), transposed=True, output_padding=(1, 1)),
        (((2, 5, 9, 8), (5, 7, 3, 3)), ((1, 3, 7, 11), (3, 65, 3, 3))),
    ),
    "transposed, dilated, grouped": (
        Convolution((5,), (3,), (2,), (2,), 2, transposed=True),
        (((2, 6, 19), (6, 4, 5)), ((1, 2, 9), (2, 1, 5))),
    ),
    "transposed, some residues without a tap": (
        Convolution((2, 3), (3, 4), (0, 1), transposed=True),
        (((2, 5, 9, 8), (5, 7, 2, 3)), ((1, 3, 4, 11), (3, 65, 2, 3))),
    ),
    "transposed, of a volume": (
        Convolution((3, 3, 3), (2, 1, 2), (1, 1, 0), transposed=True),
        (((2, 3, 4, 5, 6), (3, 5, 3, 3, 3)), ((1, 2, 2, 3, 3), (2, 1, 3, 3, 3))),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("tile", [Tile(128, 64, 32), Tile(64, 128, 32)], ids=["tall", "wide"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
async def test_convolutions_are_right(emulator_pool: JudgePool, name: str, tile: Tile) -> None:
    conv, sizes = CONVOLUTIONS[name]
    channels = [u[1] * conv.groups if conv.transposed else u[0] for _, u in sizes]
    shapes = tuple((x, u, (c,)) for (x, u), c in zip(sizes, channels, strict=True))
    call = f"conv{'_transpose' if conv.transposed else ''}{len(conv.kernel)}d"
    more = f"output_padding={conv.output_padding or 0}, " if conv.transposed else ""
    expression = (
        f"torch.relu(F.{call}(x, u, b, stride={conv.steps}, padding={conv.margins}, {more}"
        f"groups={conv.groups}, dilation={conv.spread}))"
    )
    fused = replace(conv, bias=True, post=RELU)
    given = task(expression, "xub", shapes, lambda s: s[1][0 if conv.transposed else 1] * conv.taps)
    await right(emulator_pool, given, convolution(fused, tile))
    await right(emulator_pool, given, short_convolution(fused))


@pytest.mark.slow
async def test_plain_tf32_is_wrong_on_the_emulator_too(emulator_pool: JudgePool) -> None:
    """As on a GPU: one product of rounded factors is too coarse for float32."""
    good = tensor(Product(), SMALL)
    bad = good.replace("for (int e = 0; e < 48; e++)", "for (int e = 32; e < 48; e++)")
    given = task("x @ u", "xu", (((16, 2048), (2048, 8)),), lambda s: s[0][1])
    await right(emulator_pool, given, good)
    assert (await emulator_pool.judge(given, bad)).status is Status.WRONG_OUTPUT
