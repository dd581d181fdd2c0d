"""Compare our training step of a ResNet or a VGG with PyTorch's, as installed, with channels last, and compiled.

    python -m bench.resnet --model resnet14-cifar --shapes 128x1,64x1 --threads 2 --rounds 6
    python -m bench.resnet --model vgg11-cifar --shapes 128x1 --threads 2 --rounds 6

It is bench.step with other defaults: fresh processes in paired rounds, losses before ratios. Its options are the same.
"""

from __future__ import annotations

from bench import step

DEFAULTS = {
    "model": "resnet14-cifar",
    "shapes": "128x1,64x1",
    "precisions": "fp32",
    "grad_clip": "0",
    "variants": "task,fork-join,torch-eager,torch-tuned,torch-tuned-channels-last,torch-tuned-compile,"
    "torch-tuned-compile-channels-last",
}

if __name__ == "__main__":
    step.main("bench.resnet", DEFAULTS, __doc__)
