"""Fragments for mma.sync, by seed, and digests of what one H200 made of them (2026-11-22).

Each distribution aims at one rule of how tensor cores add: where the largest exponent comes from,
how many bits are kept below it, what is cut, what rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COUNT = 24
KINDS = ("tf32k8", "tf32k4", "f16k16", "f16k8", "bf16k16", "bf16k8", "h16k16")
"""Names of the kernels in kernels/tensor_sums.cu: type of A, and K; h16 has halves as C and D."""
DISTRIBUTIONS = ("normal", "wide", "edge", "tiny", "large_c", "zeros")

Bits = NDArray[np.uint16] | NDArray[np.uint32]


@dataclass(frozen=True)
class Fragments:
    """Bits of A [COUNT, 16, K] and B [COUNT, K, 8], values of C [COUNT, 16, 8]."""

    a: Bits
    b: Bits
    c: NDArray[np.floating]


def fragments(kind: str, distribution: str) -> Fragments:
    """The same bytes on every machine."""
    k, half = int(kind.split("k")[1]), kind[0] in "fh"
    random = np.random.default_rng([KINDS.index(kind), DISTRIBUTIONS.index(distribution), 7])
    a, b = random.standard_normal((COUNT, 16, k)), random.standard_normal((COUNT, k, 8))
    c = random.standard_normal((COUNT, 16, 8))
    if distribution == "wide":
        most = 6 if half else 20
        a, b, c = (v * 2.0 ** random.integers(-most, most, v.shape) for v in (a, b, c))
    if distribution == "edge":  # powers of two down to the last bits that are kept
        steps = random.random(a.shape) < 0.3
        a = np.sign(a) * 2.0 ** -random.integers(0, 14, a.shape) * (1 + steps * 2.0**-7)
        b = np.sign(b) * 2.0 ** -random.integers(0, 14, b.shape)
        c = np.sign(c) * 2.0 ** -random.integers(0, 12, c.shape)
    if distribution == "tiny":
        a, c = a * 2.0 ** (-20 if half else -126), c * 2.0 ** (-24 if half else -128)
    if distribution == "large_c":
        c = c * 2.0 ** random.integers(3, 6 if kind[0] == "h" else 14, c.shape)
    if distribution == "zeros":
        a, b, c = (v * (random.random(v.shape) < 0.3) for v in (a, b, c))
    c_type = np.float16 if kind == "h16k16" else np.float32
    return Fragments(_encoded(a, kind), _encoded(b, kind), c.astype(c_type))


def _encoded(values: NDArray[np.float64], kind: str) -> Bits:
    if kind.startswith("tf32"):
        return values.astype(np.float32).view(np.uint32)
    if kind.startswith("bf16"):
        bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF).astype(np.uint16)
    return values.astype(np.float16).view(np.uint16)


MEASURED = {
    ("tf32k8", "normal"): "c220ef53f928e58dbcf0a583f668cafa2872342a1f86abf1a75ec057c0f7adae",
    ("tf32k8", "wide"): "7223be7a1935e8db8b64d16b693948274c4aae5e36b069dcfb2c33a42d887542",
    ("tf32k8", "edge"): "6a8ac69a0b90f77650be710875b336bcdce3f8ef455578b1af99c4d268eab8ee",
    ("tf32k8", "tiny"): "02a35ce571178d26b1f31119ac8e7469a580c122eb3e3d4e101abfd3bf603f64",
    ("tf32k8", "large_c"): "5642fea686dc390eda6cc4244630f17a0da9225dd22fc34043caa0e8cc8b2337",
    ("tf32k8", "zeros"): "2c86124dab8cc2aac14711c873ef4d534b8ea077e2bfd4cc4cbfc821126f5c7a",
    ("tf32k4", "normal"): "970a888c216e9f7d9bdf0d5dc6c6ea5a95a56c699201d1c4484f4b9e93c6fd4f",
    ("tf32k4", "wide"): "0914657b6c5c57006efcc4f8f2b23210f30a5906bf559e3fe646715c5ccc0c69",
    ("tf32k4", "edge"): "e76a34b5b51f48c5f2a8a12c306c71f087bed30f1f63527dcc2cbad284d09781",
    ("tf32k4", "tiny"): "8f894ccd2a461e6e0502074a6b265ac81cbb19b6dbfffe707add888afe648eb6",
    ("tf32k4", "large_c"): "a0b212f554fef649888ddc227324e4d16de07644ab27da32aa09f2cba32d70a4",
    ("tf32k4", "zeros"): "e33dd9b540ac4b37ae6fbc6f437d5a732ad0754f7804867bc49d4353148838da",
    ("f16k16", "normal"): "ba87ce1436f157e0a580bcee91506e16678eef5df3b2ba1503305c11105dc697",
    ("f16k16", "wide"): "19245cb51a61b456d3aecbc27f5fcb63b904ec3b0eaedddbc0d804ecc63d55a9",
    ("f16k16", "edge"): "484c2352b605e2a2339d330d666acd2d9ca20ddd3959b94be59b386731c5e382",
    ("f16k16", "tiny"): "0de7118d86abc64f86b718f3e237b3a8005cb50534129691ab9d9741d306f876",
    ("f16k16", "large_c"): "127f4f5b43ee231debc113571e99a574f4a6d5c53369746a4fad802d48c79af8",
    ("f16k16", "zeros"): "0fa90773fc5a05dd44e8c35109f7127959b3af8c8a715efff9a8aa4999048f13",
    ("f16k8", "normal"): "6b4d51e88168611346aa8a81f53a7b0ce04db73f89d75b46cd5fdcaf30983d8b",
    ("f16k8", "wide"): "004cdd5b6804c5093f6e65b8d8fa606ba73d138aa9ef77aa4bcbae0ebf04e4bf",
    ("f16k8", "edge"): "fe55b944bd39f393fee89c1f22acef1fbdc2e6f2f7d35e6c6453cfd73fdf0d7a",
    ("f16k8", "tiny"): "bbbbc6e3d7e23414008cf890f090d5894ba2ab626d925aad2d46a100fec90893",
    ("f16k8", "large_c"): "6d1cac59d0efcff8c9a16e0544c592bcb104bbe1f09c8431403bb773e4b09282",
    ("f16k8", "zeros"): "d4ade021d1645dbd843a2932d207cd09f2019c06d0bde767db778a2065aeead6",
    ("bf16k16", "normal"): "d2120c8ee6325e8049835ac239f43cd8fce546b19ce07944c0081499f322225e",
    ("bf16k16", "wide"): "e08f826ce7b589fd30738007780f362cafc5e0dc6f9e156351da72ad0d63f95c",
    ("bf16k16", "edge"): "3fa7df3984276a8bab097231b8d19566ab0037b5da03338d6714ecc272aa1179",
    ("bf16k16", "tiny"): "7f0f14d237a84724202a9d3b5f8691e84871a82fba8dea38fc5623beb1f09858",
    ("bf16k16", "large_c"): "64ec61ebc2d8efd9d2f69fa57915e4b984aca57a3a207d50f30a438d8e867911",
    ("bf16k16", "zeros"): "a3e6cfecccaf14672b1d2b47ddba0feb55c74ad5cd560257c66fafdf27dd148f",
    ("bf16k8", "normal"): "6f12bd1d0f563d1975a050daee65c87b4eff0d4baf4ee558b00b257ead9ebb4c",
    ("bf16k8", "wide"): "00e51da3b534887afbb35feb146c4a7a51e5f98567209b56866d5458981854fe",
    ("bf16k8", "edge"): "54f018018f8ad5b1d8ab8b26262b07e1c30174e9458c140bd2b267851981dc21",
    ("bf16k8", "tiny"): "2dcaf45d4e23d6bc153d733b09156cef11271958f6c2b270c840adb865ce4178",
    ("bf16k8", "large_c"): "d517ecb3b65e3c581b02b9f8485f78e1121034c34c1f12ff4dfccfd27caa6c51",
    ("bf16k8", "zeros"): "c3d9abe09a289c7edebb00923eb2cb80fd3860ab56b5dbf09417bdaaada99c93",
    ("h16k16", "normal"): "10d2509117ac8e34b349eb7584f78bd64b7ed1bfe62d94ae570a747843eec43c",
    ("h16k16", "wide"): "8d2429d4c83058df9a27b55f1d4098df26a37982996a373127eef358a204d555",
    ("h16k16", "edge"): "e4d183b834f05f9861e4a5a3ca619f5aae41a5dbe909905128a39505fd201ffd",
    ("h16k16", "tiny"): "2ab975c4a4650f200575254c65cabb975345231717f96444279532d9328553dd",
    ("h16k16", "large_c"): "a779f35b2836940df4749ac57b1b49f7bc6e4c4580ad16ad80a1b243a59edeee",
    ("h16k16", "zeros"): "5f15edd4b79aaa54a9587d5e61e1c9daf5b148378ed8a3c09cedb43edc1da0d5",
}
"""SHA-256 of D's bytes, by kind and distribution, from one NVIDIA H200."""
