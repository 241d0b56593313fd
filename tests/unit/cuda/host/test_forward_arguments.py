"""What `forward` is called with, by the number of parameters that it declares."""

import pytest

from coding_framework.cuda.host.forward_arguments import forward_arguments
from coding_framework.cuda.plan.launch_plan import TensorRef

pytestmark = pytest.mark.unit

X, W0, B0, W1, B1 = (TensorRef(64 * i, (4,), (1,), "float32") for i in range(1, 6))
TENSORS = (X, W0, B0, W1, B1)
NAMES = ("net.0.weight", "net.0.bias", "net.2.weight", "net.2.bias")


@pytest.mark.parametrize(
    ("takes", "arguments"),
    [
        (5, TENSORS),
        (6, (*TENSORS, 7)),
        (3, (X, [W0, W1], [B0, B1])),
        (4, (X, [W0, W1], [B0, B1], 7)),
        (2, (*TENSORS, 7)),
        (None, (*TENSORS, 7)),
    ],
)
def test_the_declared_parameters_choose_the_form(takes, arguments):
    assert forward_arguments(TENSORS, NAMES, (7,), takes) == arguments


def test_one_tensor_of_each_kind_is_no_list():
    assert forward_arguments((X, W0, B0), NAMES[:2], (), 3) == (X, W0, B0)
