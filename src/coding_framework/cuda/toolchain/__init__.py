"""Compilers of this machine: the CUDA toolkit, gcc builds of our own C parts, core slots."""
