"""Compare our inference of a model with PyTorch's under inference_mode, eager, tuned and compiled: median and 99th
percentile of a step.

    python -m bench.inference --model lstm-deep --shapes 4x64,1x64 --threads 2 --rounds 6

It is bench.step in mode infer: fresh processes in paired rounds, losses before ratios. Both sides compute the logits of
all positions, or with `--logits last` of the last ones, and their mean loss.
"""

from __future__ import annotations

from bench import step

DEFAULTS = {
    "mode": "infer",
    "model": "gpt2-124m",
    "shapes": "4x64",
    "precisions": "fp32",
    "grad_clip": "0",
    "steps": 42,
    "variants": "task,torch-eager,torch-tuned,torch-tuned-compile",
}

if __name__ == "__main__":
    step.main("bench.inference", DEFAULTS, __doc__)
