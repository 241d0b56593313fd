"""A CUDA kernel that was judged correct, as `cuda-rl kernel publish` ships it.

This file stands alone: it needs PyTorch, and the driver's libcuda. Only device code that was judged
runs here, launched as its template says; nothing of its author's host code is in this folder. It
takes the shapes of `DOMAIN` and no others. `receipt.json` holds who judged it, and on what.
"""

import base64
import ctypes
import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import torch

FOLDER = Path(__file__).parent
KERNEL = json.loads((FOLDER / "kernel.json").read_text())
NAME = KERNEL["name"]
DOMAIN = {shape["key"]: shape for shape in KERNEL["shapes"]}
"""By the shapes of the inputs, as float32[4096,8192];float32[8192]."""
_POINTER, _SIZE, _END = 1, 2, 0  # CU_LAUNCH_PARAM_BUFFER_POINTER, ..._SIZE, ..._END
_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class Driver:
    """The driver's functions that a template needs, on PyTorch's current stream."""

    def __init__(self):
        self._cuda = ctypes.CDLL("libcuda.so.1")

    def architecture(self, device):
        major, minor = torch.cuda.get_device_capability(device)
        return 10 * major + minor

    def empty(self, count, dtype, device):
        return torch.empty(count, dtype=dtype, device=device)

    def load(self, image):
        torch.cuda.current_stream().synchronize()  # PyTorch's context is this thread's then
        module = ctypes.c_void_p()
        self._check(self._cuda.cuModuleLoadData(ctypes.byref(module), image + b"\0"))
        return module

    def variable(self, module, name):
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        found = self._cuda.cuModuleGetGlobal_v2
        self._check(found(ctypes.byref(address), ctypes.byref(size), module, name.encode()))
        return address.value

    def function(self, module, entry, shared):
        function = ctypes.c_void_p()
        found = self._cuda.cuModuleGetFunction(ctypes.byref(function), module, entry.encode())
        self._check(found)
        if shared:
            self._check(self._cuda.cuFuncSetAttribute(function, _DYNAMIC_SHARED, shared))
        return function

    def launch(self, function, grid, block, shared, params):
        block_of_params = ctypes.create_string_buffer(params, max(1, len(params)))
        size = ctypes.c_size_t(len(params))
        extra = (ctypes.c_void_p * 5)(
            _POINTER, ctypes.addressof(block_of_params), _SIZE, ctypes.addressof(size), _END
        )
        self._check(
            self._cuda.cuLaunchKernel(function, *grid, *block, shared, self._stream(), None, extra)
        )

    def fill(self, address, value, nbytes):
        to, count = ctypes.c_uint64(address), ctypes.c_size_t(nbytes)
        self._check(self._cuda.cuMemsetD8Async(to, ctypes.c_ubyte(value), count, self._stream()))

    def copy(self, to, source, nbytes):
        ends = ctypes.c_uint64(to), ctypes.c_uint64(source)
        copied = self._cuda.cuMemcpyDtoDAsync_v2(*ends, ctypes.c_size_t(nbytes), self._stream())
        self._check(copied)

    def upload(self, to, data):
        given = ctypes.c_uint64(to), data, ctypes.c_size_t(len(data))
        self._check(self._cuda.cuMemcpyHtoDAsync_v2(*given, self._stream()))

    def _stream(self):
        return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def _check(self, error):
        if error:
            raise RuntimeError(f"{NAME}: the CUDA driver's error {error}")


class Prepared:
    """A template with its module loaded on a device."""

    def __init__(self, template, driver, architecture):
        self._template, self._driver = template, driver
        self._module = driver.load(_code(template, architecture))
        self._functions = {
            step["entry"]: driver.function(
                self._module,
                step["entry"],
                max(s.get("shared_bytes", 0) for s in template["steps"]),
            )
            for step in template["steps"]
            if step["kind"] == "launch"
        }

    def __call__(self, tensors):
        template, driver = self._template, self._driver
        device = tensors[0].device
        outputs = {o["place"]["region"]: o for o in template["outputs"]}
        addresses = [tensor.data_ptr() for tensor in tensors]
        held = []
        for region, allocation in enumerate(template["allocations"], start=len(tensors)):
            dtype = getattr(torch, outputs[region]["dtype"]) if region in outputs else torch.uint8
            count = -(-allocation["nbytes"] // dtype.itemsize)
            held.append(driver.empty(count, dtype, device))
            addresses.append(held[-1].data_ptr())
        addresses += [driver.variable(self._module, v["name"]) for v in template["variables"]]

        def at(place):
            return addresses[place["region"]] + place["offset"]

        for step in template["steps"]:
            kind = step["kind"]
            if kind == "launch":
                driver.launch(
                    self._functions[step["entry"]],
                    step["grid"],
                    step["block"],
                    step["shared_bytes"],
                    _patched(step["params"], step["relocations"], addresses),
                )
            elif kind == "fill":
                driver.fill(at(step["to"]), step["value"], step["nbytes"])
            elif kind == "copy":
                driver.copy(at(step["to"]), at(step["source"]), step["nbytes"])
            else:
                data = _patched(step["data"], step["relocations"], addresses)
                driver.upload(at(step["to"]), data)
        found = []
        for output in template["outputs"]:
            memory = held[output["place"]["region"] - len(tensors)]
            start = memory.storage_offset() + output["place"]["offset"] // memory.itemsize
            found.append(memory.as_strided(output["shape"], output["strides"], start))
        return found[0] if len(found) == 1 else tuple(found)


def call(*tensors, driver=None):
    """The function on tensors of `DOMAIN`: the inputs, then the parameters, in the order of
    `ARGUMENTS`. Raises ValueError for anything else, by what is not as it was judged."""
    shape = _shape(tensors)
    template = _template(shape["template"])
    for tensor, wanted in zip(tensors, template["arguments"], strict=True):
        _require(tensor, wanted)
    device = tensors[0].device
    key = shape["template"], str(device), driver
    if key not in _prepared:
        used = driver or Driver()
        _prepared[key] = Prepared(template, used, used.architecture(device))
    if device.type != "cuda":
        return _prepared[key](tensors)
    with torch.cuda.device(device):
        return _prepared[key](tensors)


_prepared = {}
_templates = {}
ARGUMENTS = tuple(KERNEL["arguments"])


def _shape(tensors):
    if len(tensors) != len(ARGUMENTS):
        raise ValueError(f"{NAME} takes {', '.join(ARGUMENTS)}, and {len(tensors)} were given")
    inputs = tensors[: KERNEL["inputs"]]
    key = ";".join(f"{_dtype(t)}[{','.join(map(str, t.shape))}]" for t in inputs)
    if key not in DOMAIN:
        raise ValueError(f"{NAME} was not judged for {key}: it was for {', '.join(DOMAIN)}")
    return DOMAIN[key]


def _require(tensor, wanted):
    """Raises ValueError where a tensor is not as the kernel was judged."""
    what = f"{NAME}: {wanted['name']}"
    if _dtype(tensor) != wanted["dtype"] or list(tensor.shape) != wanted["shape"]:
        raise ValueError(f"{what} must be {wanted['dtype']}{wanted['shape']}")
    same = all(
        n == 1 or mine == theirs
        for n, mine, theirs in zip(tensor.shape, tensor.stride(), wanted["strides"], strict=True)
    )
    if not same:
        raise ValueError(f"{what} must have the strides {wanted['strides']}")
    if tensor.data_ptr() % wanted["alignment"]:
        raise ValueError(f"{what} must lie at a multiple of {wanted['alignment']} bytes")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{what} asks for a gradient, and there is no backward: use no_grad()")


def _dtype(tensor):
    return str(tensor.dtype).removeprefix("torch.")


def _template(digest):
    if digest not in _templates:
        _templates[digest] = json.loads(_read(f"templates/{digest}.json", digest))
    return _templates[digest]


def _code(template, architecture):
    """The best code for a device: its own cubin, else the newest PTX that runs there."""
    own = [c for c in template["code"] if c["form"] == "cubin" and _sm(c) == architecture]
    text = [c for c in template["code"] if c["form"] == "ptx" and _sm(c) <= architecture]
    if not own and not text:
        raise ValueError(f"{NAME} has no code for sm_{architecture}")
    best = own[0] if own else max(text, key=_sm)
    return _read(f"code/{best['sha256']}.{best['form']}", best["sha256"])


def _sm(code):
    return int("".join(c for c in code["sm"] if c.isdigit()))


def _read(name, digest):
    data = (FOLDER / name).read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise ValueError(f"{NAME}: {name} was changed after it was judged")
    return data


def _patched(text, relocations, addresses):
    data = bytearray(base64.b64decode(text.replace("-", "+").replace("_", "/")))
    for r in relocations:
        address = addresses[r["region"]] + r["offset"]
        data[r["at"] : r["at"] + 8] = (address % 2**64).to_bytes(8, "little")
    return bytes(data)


def _forward(self, *inputs):
    return call(*inputs, *(_parameter(self, name) for name in ARGUMENTS[len(inputs) :]))


def _parameter(module, name):
    owner, _, last = name.rpartition(".")
    return getattr(module.get_submodule(owner), last)


_inputs = ", ".join(f"input{i}" for i in range(KERNEL["inputs"]))
_made = {"_forward": _forward}
exec(f"def forward(self, {_inputs}): return _forward(self, {_inputs})", _made)
_members = {"forward": _made["forward"], "has_backward": False, "can_torch_compile": False}
_layer = type(NAME, (torch.nn.Module,), _members)
layers = SimpleNamespace(**{NAME: _layer})
"""For `kernels.kernelize`: takes the forward of a module whose parameters have the same names."""
globals()[NAME] = call
