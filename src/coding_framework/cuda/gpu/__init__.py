"""A candidate's device code on an NVIDIA GPU: the CUDA half of `cuda/device/device.py`."""
