"""What a source uses of the standard library and of half precision, seen from its words.

Real torch/extension.h drags in most of the standard library, and kernels rely on it; each header
costs 20 to 150 ms here, as nvcc reads it four times. So the small torch headers include one only
where the source names something of it. A name too many costs time, never correctness.
"""

from __future__ import annotations

import re

_WORDS: dict[str, tuple[str, ...]] = {
    "VECTOR": ("vector",),
    "STRING": ("string", "to_string", "stoi", "stof"),
    "OPTIONAL": ("optional", "nullopt"),
    "TUPLE": ("tuple", "make_tuple", "tie", "get"),
    "ALGORITHM": (
        *("min", "max", "sort", "fill", "fill_n", "copy", "transform", "find", "reverse", "clamp"),
        *("swap", "max_element", "min_element", "lower_bound", "any_of", "all_of", "for_each"),
        *("minmax", "generate", "count_if", "copy_n", "stable_sort", "nth_element"),
    ),
    "SSTREAM": ("stringstream", "ostringstream", "istringstream"),
    "IOSTREAM": ("cout", "cerr", "endl", "clog"),
    "IOMANIP": ("setw", "setprecision"),
    "STDEXCEPT": ("runtime_error", "invalid_argument", "logic_error", "out_of_range", "exception"),
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
    "TYPE_TRAITS": ("is_same", "is_same_v", "conditional_t", "enable_if_t", "is_floating_point_v"),
    "CFLOAT": ("FLT_MAX", "FLT_MIN", "DBL_MAX", "FLT_EPSILON", "DBL_EPSILON", "DBL_MIN"),
    "CLIMITS": ("INT_MAX", "INT_MIN", "LLONG_MAX", "UINT_MAX", "SHRT_MAX", "LONG_MAX"),
    "CSTDIO": ("printf", "fprintf", "snprintf", "fputs"),
    "CASSERT": ("assert",),
    "HALF": (
        *("Half", "half", "half2", "__half", "__half2", "kHalf", "kFloat16", "hadd", "at_half"),
        *("AT_DISPATCH_FLOATING_TYPES_AND_HALF", "AT_DISPATCH_FLOATING_TYPES_AND"),
        *("AT_DISPATCH_FLOATING_TYPES_AND2", "AT_DISPATCH_ALL_TYPES_AND", "c10_Half"),
        *("AT_DISPATCH_ALL_TYPES_AND2", "AT_DISPATCH_REDUCED_FLOATING_TYPES", "AT_DISPATCH_CASE"),
    ),
    "BFLOAT16": (
        *("BFloat16", "bfloat16", "__nv_bfloat16", "nv_bfloat16", "kBFloat16", "__nv_bfloat162"),
        *("AT_DISPATCH_FLOATING_TYPES_AND", "AT_DISPATCH_FLOATING_TYPES_AND2"),
        *("AT_DISPATCH_ALL_TYPES_AND", "AT_DISPATCH_ALL_TYPES_AND2"),
        "AT_DISPATCH_REDUCED_FLOATING_TYPES",
    ),
}
_MACRO_OF = {word: macro for macro, words in _WORDS.items() for word in words}
_WORD = re.compile(r"[A-Za-z_]\w*")
_TORCH = re.compile(r"#\s*include\s*[<\"](?:torch|ATen|c10|pybind11)/")


def uses_torch(source: str) -> bool:
    """Whether the source includes a header of torch."""
    return _TORCH.search(source) is not None


def feature_macros(source: str) -> tuple[str, ...]:
    """Names of the CF_WANT_ macros that the torch headers look at, sorted."""
    if not uses_torch(source):
        return ()
    wanted = {_MACRO_OF[word] for word in set(_WORD.findall(source)) if word in _MACRO_OF}
    return tuple(f"CF_WANT_{macro}" for macro in sorted(wanted))
