"""Layers of LSTM, GRU and plain recurrent cells: the launches of `cuda/recurrent.cu`."""

from __future__ import annotations

from typing import Any

from coding_framework.data.graph import Node
from coding_framework.data.lower.text import C_TYPES
from coding_framework.errors import UnreadableError

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def layers(lowering: Any, node: Node) -> None:
    """All layers and directions of a node, in their order."""
    x, kind = node["input"], node.base
    if len(x.type.shape) != 3 or "hx" not in node.args or "batch_sizes" in node.args:
        raise UnreadableError(f"there is no kernel for {node.op} of a sequence without a batch or "
                              f"a packed one ({node.line})")  # fmt: skip
    if node["dropout"] and node["train"]:
        raise UnreadableError(
            f"{node.op} draws random numbers for its dropout ({node.line}): set dropout=0, or use "
            ".eval() in __init__"
        )
    per = 4 if node["has_biases"] else 2
    directions = 2 if node["bidirectional"] else 1
    layer_count = int(node["num_layers"])
    if len(node["params"]) != per * directions * layer_count:
        raise UnreadableError(f"there is no kernel for {node.op} with projections ({node.line})")
    scalar = C_TYPES[node.types[0].dtype].kept
    lowering.file("recurrent.cu", SCALAR=scalar)
    hx = node["hx"] if isinstance(node["hx"], list) else [node["hx"]]
    start = [lowering.stored(h).name for h in hx]
    weights = [lowering.stored(p).name for p in node["params"]]
    time, batch = (1, 0) if node["batch_first"] else (0, 1)
    steps, count = (lowering.sizes.name(x.type.shape[a]) for a in (time, batch))
    hidden = lowering.sizes.name(hx[0].type.shape[2])
    host, name = lowering.host, node.name
    results = lowering.results_of(node)
    last = [f"{name}_{what}" for what in ("hidden", "cell")[: len(hx)]]
    options = f"{lowering.graph.arguments[0].name}.options()"
    kind_of = f"{options}.dtype({C_TYPES[node.types[0].dtype].torch})"
    for one in last:
        shape = f"{{{layer_count * directions}, {count}, {hidden}}}"
        host.append(f"auto {one} = torch::empty({shape}, {kind_of});")
    source, width = lowering.stored(x).name, lowering.sizes.name(x.type.shape[2])

    def pointer(tensor: str, offset: str = "") -> str:
        return f"{tensor}.data_ptr<{scalar}>()" + (f" + {offset}" if offset else "")

    for layer in range(layer_count):
        out = f"{name}_{layer}" if layer < layer_count - 1 else f"{name}_out"
        wide = f"{directions} * {hidden}" if directions > 1 else hidden
        dims = [steps, count] if time == 0 else [count, steps]
        host.append(f"auto {out} = torch::empty({{{', '.join(dims)}, {wide}}}, {kind_of});")
        for direction in range(directions):
            place = layer * directions + direction
            w_ih, w_hh, *biases = weights[place * per : (place + 1) * per]
            b_ih, b_hh = (pointer(b) for b in biases) if biases else ("nullptr", "nullptr")
            gates = f"{name}_gates_{place}"
            rows = f"{GATES[kind]} * {hidden}"
            by_step, by_row = (
                (f"{count} * {width}", width) if time == 0 else (width, f"{steps} * {width}")
            )
            host += [
                f"auto {gates} = torch::empty({{{steps}, {count}, {rows}}}, "
                f"{options}.dtype(torch::kFloat32));",
                f"recurrent_input_kernel<<<blocks((int64_t){steps} * {count} * {rows}), 256>>>("
                f"{pointer(source)}, {pointer(w_ih)}, {b_ih}, {gates}.data_ptr<float>(), {steps}, "
                f"{count}, {width}, {rows}, {by_step}, {by_row});",
            ]
            out_step, out_row = (
                (f"{count} * {wide}", wide) if time == 0 else (wide, f"{steps} * {wide}")
            )
            offset = f"{place} * {count} * {hidden}"
            cells = ("nullptr", "nullptr")
            if kind == "lstm":
                cells = (pointer(start[1], offset), pointer(last[1], offset))
            arguments = [
                f"{gates}.data_ptr<float>()", pointer(w_hh), b_hh, pointer(start[0], offset),
                cells[0], pointer(out, f"{direction} * {hidden}"), pointer(last[0], offset),
                cells[1], steps, count, hidden, out_step, out_row, str(direction > 0).lower(),
            ]  # fmt: skip
            host.append(
                f"recurrent_kernel<{kind.upper()}><<<std::max<int64_t>({count}, 1), "
                f"std::min<int64_t>({hidden} * 32, 1024)>>>({', '.join(arguments)});"
            )
        source, width = out, wide
    for number, made in zip(range(3), (source, *last), strict=False):
        if number in results:
            lowering.keep(results[number], made)
