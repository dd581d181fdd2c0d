"""Compare our training step of an LSTM with torch.nn.LSTM's, by every way to run it that is fast somewhere: oneDNN's
cells, PyTorch's own, and torch.compile, which breaks the graph at the LSTM unless it may compile it.

    python -m bench.lstm --model lstm-deep --shapes 4x64 --threads 2 --rounds 6

It is bench.step with other defaults: fresh processes in paired rounds, losses before ratios. Its options are the same.
"""

from __future__ import annotations

from bench import step

DEFAULTS = {
    "model": "lstm-medium",
    "shapes": "20x35",
    "precisions": "fp32",
    "grad_clip": "0,5",
    "variants": "task,torch-eager,torch-tuned,torch-tuned-no-onednn,torch-tuned-compile,torch-tuned-compile-rnn",
}

if __name__ == "__main__":
    step.main("bench.lstm", DEFAULTS, __doc__)
