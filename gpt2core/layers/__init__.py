"""Layers, one file each: kernels, the function that adds the forward op, and the reverse that it leaves on the tape.

A kernel works on one tile and knows no scheduler, thread or step program. Rows are the N = B*T tokens of a batch, or
its images, in the order the step program lays them out; NH heads of hs = C/NH channels. No module here loads NumPy or a
compiler, because servers size runs with the layers (compile/later.py). In the docstrings "=" overwrites and "+="
accumulates; arrays are float32 unless said otherwise.
"""
