"""The kernels: Python functions that Numba compiles. Imported only when something has to be compiled.

A kernel is ``f(args, state, counter, thread)``, four addresses or integers: the record of its row of the tape, the state of the forward
pass, the row's work counter, and the number of the thread. Kernels check nothing: what they are given has been checked before.
"""
