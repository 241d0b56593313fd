"""The adapter to verl: everything that verl or Ray must import from us, and nothing else.

`patches` is what each verl process loads; `main` is what the trainer starts. Only modules of this
package import verl and ray, and `training/verl_integration.py` imports none of the two: it builds
the files and the command line, and watches.
"""
