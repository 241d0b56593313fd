"""Tensor-core kernels of transposed convolutions.

The outputs whose coordinates leave the same residue by the stride are reached by the same taps, so
each residue is a convolution of stride 1 with those taps, and all of them are one launch. The
weights are packed first, by residue, so that their rows are contiguous along the channels out.
"""

from __future__ import annotations

from math import prod

from coding_framework.data.cuda import cuda_text, fill
from coding_framework.data.modules.kernels.convolutions import (
    MOST_TAPS,
    TENSOR,
    Convolution,
    common,
    flat,
    launch_lines,
    out_extents,
    part,
    post_lines,
)
from coding_framework.data.modules.kernels.tensor_cores import (
    COPY,
    COPY_ONE,
    PARTS,
    Parts,
    Tile,
    copies,
    multiply,
    source_offsets,
    store,
)

_PACK = cuda_text("transposed_weights.cu")
"""The compiler sorts the taps: a policy that was shown the sorted numbers wrote others, or did not
stop, for most kernels and strides that it had not seen."""


def _keep(conv: Convolution) -> str:
    """The statement that takes tap `d` where it reaches the outputs of residue `phase`."""
    reached = [
        f"({part('phase', conv.steps, axis)} + {margin} - {_tap('d', conv, axis)}) % {step} == 0"
        for axis, (step, margin) in enumerate(zip(conv.steps, conv.margins, strict=True))
        if step > 1
    ]
    take = "o.tap[n++] = d;"
    return f"if ({' && '.join(reached)}) {take}" if reached else take


def _tap(index: str, conv: Convolution, axis: int) -> str:
    """How far the tap of this number reaches along an axis."""
    tap, spread = part(index, conv.kernel, axis), conv.spread[axis]
    return f"({tap}) * {spread}" if spread > 1 else tap


def tensor_parts(conv: Convolution, tile: Tile) -> Parts:
    """One implicit product for each residue, by 3xTF32 on tensor cores."""
    if conv.taps > MOST_TAPS:
        raise ValueError(f"{conv.taps} taps: the kernel has bits for {MOST_TAPS} of them")
    extents, steps = conv.extents, conv.steps
    phases, many = prod(steps), conv.groups > 1
    counts = tuple(
        f"o{e}" if s == 1 else f"((o{e} + {s - 1}) / {s})"
        for e, s in zip(extents, steps, strict=True)
    )
    group = f"blockIdx.z / {phases}" if many and phases > 1 else "blockIdx.z"
    residue = f"blockIdx.z % {phases}" if many else "blockIdx.z"
    residue = residue if phases > 1 else "0"
    setup = [f"int phase = {residue}, reached = order.first[phase + 1] - order.first[phase];"]
    if many:
        setup.append(f"x += (size_t)({group}) * c * {' * '.join(extents)};")
        start = f"(size_t)({group}) * {' * '.join(map(str, conv.kernel))} + order.first[phase]"
        setup.append(f"u += ({start}) * c * ((n + 3) & ~3);")
    else:
        setup.append("u += (size_t)order.first[phase] * c * ((n + 3) & ~3);")
    starts, within, place = [], [], []
    taps = ["tap = order.tap[order.first[phase] + d]"]
    for axis, extent in enumerate(extents):
        step, margin = steps[axis], conv.margins[axis]
        starts.append(f"i{extent} = {part('y', counts, axis)}")
        tap = _tap("tap", conv, axis)
        if step > 1:
            setup.append(f"int f{extent} = {part('phase', steps, axis)};")
            taps.append(f"t{extent} = (f{extent} + {margin} - {tap}) / {step}")
            place.append(f"{part('QQ', counts, axis)} * {step} + f{extent}")
        else:
            taps.append(f"t{extent} = {margin} - {tap}")
            place.append(part("QQ", counts, axis))
        within.append(f"(unsigned)(i{extent} + t{extent}) < {extent}")
    volume, out = " * ".join(extents), out_extents(conv)
    channels = f"{conv.groups} * c" if many else "c"
    at_start = flat([f"i{e}" for e in extents], extents)

    image = (
        f"q / places * (size_t)(n * {conv.groups}) + ({group}) * n"
        if many
        else "q / places * (size_t)n"
    )
    column, total = [], " * ".join(out)
    if phases > 1:
        column = [
            f"int p{e} = {p.replace('QQ', '(q % places)')};"
            for e, p in zip(extents, place, strict=True)
        ]
        outside = [f"p{e} >= o{e}" for e, s in zip(extents, steps, strict=True) if s > 1]
        column.append(f"if ({' || '.join(outside)}) return;")
        column.append(
            f"float* at = o + ({image}) * {total} + {flat([f'p{e}' for e in extents], out)};"
        )
    else:
        column.append(f"float* at = o + ({image}) * {total} + q % places;")
    post = post_lines(conv, f"({group})")
    device = fill(
        TENSOR,
        **common(conv, tile),
        phase=setup,
        places=" * ".join(counts),
        reached="reached",
        start=[f"int {', '.join(starts)};"],
        base=f"(size_t)(v / places) * {channels} * {volume} + {at_start}",
        tap=[f"int {', '.join(taps)};"],
        within=" && ".join(within),
        tap_of="f / c",
        offset=flat(["f % c", *(f"t{e}" for e in extents)], ("", *extents)),
        row="nw = (n + 3) & ~3",
        offsets=source_offsets(tile, "fu", tile.rows, "r0", "n", "nw", inner_first=False),
        load_weights=copies(tile, "a", "u", "fu", tile.rows, "nw", inner_first=False),
        walk=multiply(tile, left_inner_first=False, right_inner_first=False),
        store=store(tile, ("n", "count"), post, f"at[(size_t)r * {total}]", column),
    )  # fmt: skip
    pack = fill(_PACK, taps=" * ".join(map(str, conv.kernel)), phases=phases, keep=_keep(conv))
    launch = [
        "int nw = (n + 3) / 4 * 4, count = u.numel() / n * nw;",
        "auto z = torch::empty({count}, u.options());",
        "pack<<<(count + 255) / 256, 256>>>"
        "(u.data_ptr<float>(), z.data_ptr<float>(), c, n, nw, count);",
        *launch_lines(conv, tile, " * ".join(("m", *counts)), conv.groups * phases),
    ]
    return Parts((COPY, COPY_ONE, PARTS), [*pack, "", *device], launch)
