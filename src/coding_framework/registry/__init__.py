"""Verified kernels that outlive their run: launch templates, receipts and the registry of both.

`templates` has what trusted code launches in place of a candidate's host code, `receipts` who
vouches for which verdict, `kernels` the folder that holds both. Nothing here runs or judges one.
"""
