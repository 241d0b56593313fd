"""Forms of honest answers that only differ in their Python: all are x * 2 + 1, and must pass."""

from __future__ import annotations

from corpus.model_cheats import CORRECT, Cheat, _forward, _init, _whole

FORMS: tuple[Cheat, ...] = (
    _init(
        "counts_its_calls",
        "self.calls = 0",
        """
        self.calls += 1
        if self.calls % 10 == 0:
            print(self.calls)
        return ext.twice(x)
        """,
        CORRECT,
    ),
    _forward(
        "imports_of_the_library",
        """
        import decimal, json, tempfile, logging
        return ext.twice(x)
        """,
        CORRECT,
        before="""
        import abc, argparse, collections, contextlib, copy, dataclasses, datetime, enum, functools
        import hashlib, inspect, itertools, math, operator, os, pathlib, random, re, string, struct
        import sys, textwrap, threading, time, types, typing, warnings
        from typing import Any, Dict, List, Optional, Tuple, Union
        try:
            import triton
        except ImportError:
            triton = None
        import numpy as np
        """,
    ),
    _forward(
        "settings",
        """
        assert torch.cuda.is_available() and torch.cuda.device_count() == 1
        device = torch.cuda.get_device_properties(x.device)
        assert device.multi_processor_count > 0 and torch.cuda.get_device_capability() == (9, 0)
        assert device.name == torch.cuda.get_device_name(0)
        with torch.cuda.amp.autocast(), torch.inference_mode(), torch.cuda.stream(stream):
            out = ext.twice(x)
        torch.cuda.current_stream().synchronize()
        torch.cuda.synchronize()
        return out
        """,
        CORRECT,
        before="""
        from torch import Tensor
        from torch.autograd import Function
        from torch.cuda.amp import autocast, custom_fwd
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.set_float32_matmul_precision("high")
        stream = torch.cuda.Stream()
        """,
    ),
    _forward(
        "a_stream_that_is_waited_for",
        """
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x.clone()
            done = side.record_event()
        torch.cuda.current_stream().wait_event(done)
        return ext.twice(y)
        """,
        CORRECT,
        before="side = torch.cuda.Stream()",
    ),
    _forward(
        "views",
        """
        a = x.view(-1).reshape(x.size(0), -1).unsqueeze(0).squeeze(0).contiguous()
        b = a.flatten().view(x.shape).transpose(0, 1).transpose(-2, -1).permute(1, 0).t()
        assert b.is_contiguous() and b.shape == x.shape and b.stride() == x.stride()
        return ext.twice(b.detach().data.requires_grad_(False)).view(1, *x.shape)[0]
        """,
        CORRECT,
    ),
    _forward(
        "slices",
        """
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        half = len(x) // 2
        ext.into(x[:half], out[:half])
        for row, into in zip(x[half:].chunk(2), out[half:].chunk(2)):
            ext.into(row, into)
        return out
        """,
        CORRECT,
    ),
    _forward(
        "rows",
        """
        out = torch.zeros_like(x)
        for i in range(x.shape[0]):
            ext.into(x[i, ...], out[i, :])
        return out
        """,
        CORRECT,
    ),
    _forward(
        "places_and_types",
        """
        assert x.device.type == "cuda" and str(x.device) == "cuda:0" and not x.is_cpu
        assert x.device == torch.device("cuda") and x.get_device() == 0 and x.dtype == torch.float
        assert x.is_floating_point() and x.element_size() == 4 and x.nbytes == 4 * x.numel()
        assert isinstance(x, torch.Tensor) and torch.is_tensor(x) and bool(x.is_cuda)
        assert list(x.shape) == [*x.size()] and x.ndim == x.dim() == len(x.shape) == 2
        x = x.to("cuda").cuda().to(torch.float32).float().to(device=x.device, dtype=x.dtype)
        return ext.twice(x.clone())
        """,
        CORRECT,
    ),
    _forward(
        "functions_of_its_own",
        """
        return double(Twice.apply, x)
        """,
        CORRECT,
        before="""
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return ext.twice(x)

            @staticmethod
            def backward(ctx, grad):
                return grad * 2

        @torch.jit.ignore
        def double(function, x: torch.Tensor) -> torch.Tensor:
            return function(x)
        """,
    ),
    _forward(
        "typed_tensors",
        """
        a, b, c = torch.Tensor(2, 3), torch.FloatTensor(4).cuda(), torch.cuda.FloatTensor(*x.shape)
        assert a.shape == (2, 3) and not a.is_cuda and b.is_cuda and torch.Tensor().numel() == 0
        assert torch.Tensor([1.0, 2.0]).shape == (2,) and torch.Tensor(x.size()).shape == x.shape
        assert isinstance(x, torch.cuda.FloatTensor) and not isinstance(x, torch.FloatTensor)
        assert x.type() == "torch.cuda.FloatTensor" and x.type(torch.cuda.FloatTensor).is_cuda
        assert torch.LongTensor([1, 2]).dtype == torch.int64 and x.new(3).is_cuda
        assert x.new_tensor([1.0]).is_cuda and torch.broadcast_shapes((1, 3), (2, 1)) == (2, 3)
        ext.into(x, c)
        return c
        """,
        CORRECT,
    ),
    _forward(
        "places_and_marks",
        """
        torch._assert(x.dim() == 2, "two dimensions")
        torch.cuda.nvtx.range_push("twice")
        with torch.profiler.record_function("twice"), torch.device("cuda"):
            out = torch.empty(0).resize_(x.shape)
        ext.into(x.unsqueeze_(0).squeeze_(0), out)
        torch.cuda.nvtx.range_pop()
        assert torch.promote_types(torch.float16, torch.float32) == torch.float32
        assert torch.moveaxis(out, 0, 1).shape == (x.shape[1], x.shape[0])
        return out
        """,
        CORRECT,
        before="""
        from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, CUDAExtension
        """,
    ),
    _init(
        "members",
        """
        self.kernel = ext
        self.layers = nn.ModuleList([nn.Identity(), nn.Dropout(0.0)])
        self.register_buffer("ones", torch.ones(3, 4))
        self.register_buffer("nothing", None)
        self.weight = nn.Parameter(torch.randn(5, 5) * 0.02)
        nn.init.kaiming_uniform_(self.weight, nonlinearity="relu")
        self.names = {"a": [1, 2]}
        self.eval()
        """,
        """
        assert self.ones.is_cuda and self.ones.sum is not None
        assert self.weight.shape == (5, 5) and len(list(self.parameters())) == 1
        assert [n for n, _ in self.named_buffers()] == ["ones"]
        for layer in self.layers:
            x = layer(x)
        return self.kernel.twice(x)
        """,
        CORRECT,
    ),
    _init(
        "memory_of_its_own",
        """
        self.scratch = torch.empty(1 << 12, device="cuda")
        self.table = torch.tensor([1.0, 2.0, 3.0], device="cuda")
        """,
        """
        rows = torch.full((4,), 2.5, device=x.device)
        self.scratch.zero_()
        ext.into(self.table, self.scratch[:3])
        ext.into(rows, self.scratch[8:12])
        return ext.twice(x)
        """,
        CORRECT,
    ),
    _forward(
        "memory_of_the_module",
        "ext.into(workspace[:1], workspace[1:])\nreturn ext.twice(x)",
        CORRECT,
        before="workspace = torch.zeros(2, device='cuda')",
    ),
    _whole(
        "compiled_and_tested_below",
        """
        class Net(nn.Module):
            def forward(self, x):
                return ext.twice(x)

        class ModelNew(nn.Module):
            def __init__(self, *args, **kwargs):
                super(ModelNew, self).__init__()
                self.net = torch.compile(Net())

            def forward(self, *inputs):
                return self.net(*inputs)

        def get_inputs():
            return [torch.rand(64, 96).cuda()]

        def get_init_inputs():
            return []

        if __name__ == "__main__":
            print(ModelNew()(get_inputs()[0]).sum())
        """,
        CORRECT,
    ),
    _whole(
        "warmed_up_at_import",
        """
        x = torch.ones(8, device="cuda")

        class ModelNew(nn.Module):
            def forward(self, x):
                return ext.twice(x)

        try:
            ext.nothing(x)
        except RuntimeError:
            pass
        """,
        CORRECT,
    ),
)
