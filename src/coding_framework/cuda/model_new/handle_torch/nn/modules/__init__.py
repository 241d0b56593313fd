"""torch.nn.modules: torch's own files, which cuda/host/torch_source.py puts beside this one."""
