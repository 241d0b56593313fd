"""A module of many steps as tasks of few: each part is a kernel of its own, and they are joined.

task -> its graph, with what each node holds at the small shape sets (`whole`)
     -> parts: a reference of one operation and what follows it, each a task (`pieces`, `spelling`)
     -> their kernels in one file, with the compiler's for what lies between them (`join`)
"""
