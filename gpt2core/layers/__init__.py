"""The arithmetic of GPT-2, one file an op. A kernel works on one tile and knows no scheduler, thread or step program.

Rows are the N = B*T tokens of a batch, in the order the step program lays them out; NH heads of hs = C/NH channels.
In the docstrings "=" overwrites and "+=" accumulates; arrays are float32 unless said otherwise.
"""
