"""A module of many steps as tasks of few: each part is a kernel of its own, and they are joined.

    reference -> the calls of its forward, at each shape set (`calls`)
              -> parts: a reference of one operation and what follows it, each a task (`pieces`)
              -> their kernels in one file, with the views and copies between them (`join`)

What sizes, strides and numbers are at other shapes is found by comparing the shape sets
(`extents`).
"""
