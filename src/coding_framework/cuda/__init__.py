"""The judge: safety -> compile -> run -> verdict. Start at `judge.py`."""

from coding_framework.exports import exported

__getattr__ = exported(
    __name__,
    {
        "CUDABenchmarker": "benchmarker",
        "CUDACompiler": "compiler",
        "Judge": "judge",
        "SafetyWrapper": "safety_wrapper",
    },
)
