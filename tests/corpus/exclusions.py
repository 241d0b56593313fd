"""Kernels that somebody calls correct and that the judge rightly does not: each with its reason.

Audited by reading the source after a verdict other than `correct`. What is listed here counts in no
rate and is named in the benchmark's result.
"""

from __future__ import annotations

import re

LIBRARY_CALL = re.compile(
    r"\bcublas\w+|\bcudnn\w+|\b(?:torch|at)::(?:nn::functional::)?"
    r"(?:matmul|mm|addmm|linear|conv\w*|max_pool\w*|relu|softmax|cat)\b"
)

HONEST: dict[str, str] = {
    "concatenate_by_copies": "launches no kernel, which is a rule of the judge",
    "bias_and_relu": "raises above 128 columns, of which its task says nothing",
    "cumsum_hillis_steele": "raises above 128 columns, of which its task says nothing",
    "two_streams_half_each": "its non-blocking stream reads inputs that the caller's stream may "
    "not have made yet: no event orders them",
}
"""Of the honest corpus."""

_TILE_UNLOADED = "threads outside leave before they load: right only where the tile divides N"
ARCHIVE: dict[str, str] = {
    f"archive/1_Square_matrix_multiplication_/{name}": reason
    for name, reason in (
        ("workload_balancing_optimization_base", _TILE_UNLOADED),
        ("optimized_tiled_matmul_base", _TILE_UNLOADED),
        ("minimal_synchronization_base_base", _TILE_UNLOADED),
        ("k_partition_atomic_optimization_base", _TILE_UNLOADED),
        ("memory_access_optimization_base_base", _TILE_UNLOADED),
        ("modular_device_function_optimization_base", _TILE_UNLOADED),
        ("correct_thread_block_indexing_optimization_base", _TILE_UNLOADED),
        ("double_buffered_shared_memory_base", _TILE_UNLOADED),
        ("load_balanced_tile_allocation_base", _TILE_UNLOADED),
        (
            "aligned_vectorized_matmul_base_base",
            "reads float4 at rounded-down addresses: right only where 4 divides N",
        ),
        (
            "tiled_opt_base",
            "its unchecked path reads past the last tile: right only where the tile divides N",
        ),
        ("matmul_optimized_vectorized_base", "refuses an N that 4 does not divide"),
        (
            "optimized_sync_tiling_base_base",
            "leaves the last tile's unloaded part as it was: right only where the tile divides N",
        ),
    )
}
"""Of the AI CUDA Engineer Archive, as archive/OP_NAME/KERNEL_NAME; it tried N = 2048 alone."""


def archive_exclusion(name: str, code: str) -> str | None:
    """Why a row that the archive calls correct does not count; None where it does."""
    call = LIBRARY_CALL.search(code)
    if call is not None:
        return f"calls {call.group()}: a library computes the answer"
    return ARCHIVE.get(name)
