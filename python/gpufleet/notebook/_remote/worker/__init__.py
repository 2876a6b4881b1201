"""The program that runs a cell of a notebook on a worker.

It travels with the cell, so it uses the standard library and cloudpickle alone, and none of this package.
"""
