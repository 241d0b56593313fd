"""What a source uses of the standard library and of half precision, seen from its words.

Real torch/extension.h drags in most of the standard library, and kernels rely on it; each header
costs 20 to 150 ms here, as nvcc reads it four times. So the small torch headers include one only
where the source names something of it. A name too many costs time, never correctness.
"""

from __future__ import annotations

import re

_OF_STD: dict[str, tuple[str, ...]] = {
    "VECTOR": ("vector",),
    "STRING": ("string", "to_string", "stoi", "stof"),
    "OPTIONAL": ("optional", "nullopt"),
    "TUPLE": ("tuple", "make_tuple", "tie", "get", "apply"),
    "MINMAX": ("min", "max", "swap", "copy", "fill", "fill_n", "equal", "move_backward"),
    "ALGORITHM": (
        *("sort", "transform", "find", "reverse", "clamp", "copy_n", "stable_sort", "for_each"),
        *("max_element", "min_element", "lower_bound", "any_of", "all_of", "none_of", "find_if"),
        *("minmax", "generate", "count_if", "nth_element", "upper_bound", "count", "shuffle"),
        *("partial_sort", "unique", "rotate", "remove_if", "copy_if", "minmax_element"),
    ),
    "SSTREAM": ("stringstream", "ostringstream", "istringstream"),
    "IOSTREAM": ("cout", "cerr", "endl", "clog"),
    "IOMANIP": ("setw", "setprecision", "fixed"),
    "STDEXCEPT": ("runtime_error", "invalid_argument", "logic_error", "out_of_range"),
    "FUNCTIONAL": ("function", "bind", "hash", "plus", "multiplies", "greater", "less"),
    "LIMITS": ("numeric_limits",),
    "MEMORY": ("unique_ptr", "shared_ptr", "make_unique", "make_shared", "addressof"),
    "ARRAY": ("array",),
    "MAP": ("map", "multimap"),
    "UNORDERED_MAP": ("unordered_map",),
    "SET": ("set",),
    "UNORDERED_SET": ("unordered_set",),
    "NUMERIC": ("accumulate", "iota", "inner_product", "partial_sum", "gcd", "lcm", "reduce"),
    "CHRONO": ("chrono",),
    "MUTEX": ("mutex", "lock_guard", "unique_lock", "call_once", "once_flag"),
    "ATOMIC": ("atomic",),
    "THREAD": ("thread",),
    "RANDOM": ("mt19937", "random_device", "uniform_real_distribution", "normal_distribution"),
    "COMPLEX": ("complex",),
    "UTILITY": ("pair", "make_pair", "index_sequence", "make_index_sequence"),
}
"""Names that count after `std::`, or anywhere if the source has a using-declaration of std."""

_ANYWHERE: dict[str, tuple[str, ...]] = {
    "VECTOR": ("vec",),
    "OPTIONAL": ("optional", "nullopt"),
    "CFLOAT": ("FLT_MAX", "FLT_MIN", "DBL_MAX", "FLT_EPSILON", "DBL_EPSILON", "DBL_MIN"),
    "CLIMITS": ("INT_MAX", "INT_MIN", "LLONG_MAX", "UINT_MAX", "SHRT_MAX", "LONG_MAX"),
    "CSTDIO": ("printf", "fprintf", "snprintf", "fputs"),
    "CASSERT": ("assert",),
    "HALF": (
        *("Half", "half", "half2", "__half", "__half2", "kHalf", "kFloat16"),
        *("AT_DISPATCH_FLOATING_TYPES_AND_HALF", "AT_DISPATCH_REDUCED_FLOATING_TYPES"),
    ),
    "BFLOAT16": (
        *("BFloat16", "bfloat16", "__nv_bfloat16", "nv_bfloat16", "kBFloat16", "__nv_bfloat162"),
        "AT_DISPATCH_REDUCED_FLOATING_TYPES",
    ),
}

_ALWAYS = frozenset(
    {
        *("size_t", "ptrdiff_t", "nullptr_t", "exception", "initializer_list", "move", "forward"),
        *("int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t"),
        *("abs", "fabs", "sqrt", "cbrt", "pow", "exp", "exp2", "expm1", "log", "log2", "log10"),
        *("log1p", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh"),
        *("asinh", "acosh", "atanh", "erf", "erfc", "tgamma", "lgamma", "ceil", "floor", "round"),
        *("trunc", "rint", "nearbyint", "lround", "fmod", "remainder", "fma", "fmax", "fmin"),
        *("fdim", "hypot", "ldexp", "frexp", "modf", "copysign", "isnan", "isinf", "isfinite"),
        *("is_same", "is_same_v", "is_floating_point", "is_floating_point_v", "is_integral"),
        *("is_integral_v", "enable_if", "enable_if_t", "conditional", "conditional_t", "decay"),
        *("decay_t", "true_type", "false_type", "integral_constant", "declval", "void_t"),
    }
)
"""Names of std that every source can use without a header of its own: those of <type_traits>, and
of <cmath> without the special functions of C++17."""
_WHOLE_CMATH = "WHOLE_CMATH"
"""Wanted by a source with any other name of std: <cmath> as libstdc++ makes it, with the special
functions and what their header brings along. They are half of the work on a small kernel."""

_WORD = re.compile(r"(?:(std)\s*::\s*)?\b([A-Za-z_]\w*)")
_USING_STD = re.compile(
    r"\busing\b[^;]{0,80}\bstd\b(?!\s*::\s*\w)|\busing\s+(?:::\s*)?std\s*::"
    r"|\bnamespace\s+\w+\s*=[^;]{0,80}\bstd\b|#\s*define\b.{0,200}\bstd\b"
    r"|\bstd\s*(?:/\*|//|\\)|\(\s*std\s*\)|\btr1\b"
)
"""std by another name, or in a way that is not looked into. Bounded: a source may be hostile."""
_MINMAX_OF_LIST = re.compile(r"\b(?:min|max)\s*(?:<[^<>]*>)?\s*\(\s*\{")
_TORCH = re.compile(r"#\s*include\s*[<\"](?:torch|ATen|c10|pybind11)/")
_DEVICE_LAMBDA = re.compile(r"\]\s*(?:__device__|__host__)")


def _invert(words: dict[str, tuple[str, ...]]) -> dict[str, str]:
    return {word: macro for macro, names in words.items() for word in names}


_MACRO_OF_STD, _MACRO_ANYWHERE = _invert(_OF_STD), _invert(_ANYWHERE)
FEATURES = frozenset(_OF_STD) | frozenset(_ANYWHERE) | {_WHOLE_CMATH}


def uses_torch(source: str) -> bool:
    """Whether the source includes a header of torch."""
    return _TORCH.search(source) is not None


def _first_torch_include(source: str) -> int:
    found = _TORCH.search(source)
    return len(source) if found is None else found.start()


def _other_names_of_std(source: str) -> bool:
    """Whether it uses more of std than every source can."""
    return any(qualifier and word not in _ALWAYS for qualifier, word in _WORD.findall(source))


def uses_device_lambda(source: str) -> bool:
    """Whether a lambda is marked for the device: nvcc then needs a flag, which costs 0.3 s."""
    return _DEVICE_LAMBDA.search(source) is not None


def feature_macros(source: str) -> tuple[str, ...]:
    """Names of the CF_WANT_ macros that the torch headers look at, sorted."""
    if not uses_torch(source):
        return ()
    std_anywhere = _USING_STD.search(source) is not None
    wanted = set()
    if _other_names_of_std(source[: _first_torch_include(source)]):
        wanted.add(_WHOLE_CMATH)  # its own headers come too late
    for match in set(_WORD.findall(source)):
        qualifier, word = match
        if word in _MACRO_ANYWHERE:
            wanted.add(_MACRO_ANYWHERE[word])
        if (qualifier or std_anywhere) and word in _MACRO_OF_STD:
            wanted.add(_MACRO_OF_STD[word])
        elif std_anywhere or (qualifier and word not in _ALWAYS):
            wanted.add(_WHOLE_CMATH)
    if "MINMAX" in wanted and _MINMAX_OF_LIST.search(source):
        wanted.add("ALGORITHM")
    return tuple(f"CF_WANT_{name}" for name in sorted(wanted))
