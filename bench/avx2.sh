#!/usr/bin/env bash
# Steps on a processor with AVX2 alone, measured on any: both sides are limited to x86-64-v3.
#
#   bench/avx2.sh [PART ...]     without a part: prepare step64 bf16 step256 summary (about 12 minutes)
#
# prepare   compiles kernels, measures products and peaks
# step64    fp32, B4 T64, against torch-tuned-compile, six rounds at most
# step256   the same at B4 T256
# bf16      ours alone in fp32 and bf16 at B4 T64, three rounds
# summary   ratios with the bound (all products at the registers' rate), ops below 90 % of their roof, bf16 / fp32
#
# PyTorch and its kernels come from .venv (make .venv/installed-parity). Everything is written to build/avx2-bench.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
TREE=$PWD OUT=${OUT:-$PWD/build/avx2-bench}
mkdir -p "$OUT/bin" "$OUT/cache" "$OUT/inductor"
unset PYTHONDONTWRITEBYTECODE
export PYTHONPATH=$TREE PATH=$TREE/.venv/bin:$PATH
# Ours: as the Makefile's variable AVX2. MKL and OpenBLAS, for both sides; then PyTorch's own kernels and oneDNN.
export NUMBA_CPU_NAME=x86-64-v3 NUMBA_CPU_FEATURES="" TASKLOOM_CACHE_DIR=$OUT/cache
export MKL_ENABLE_INSTRUCTIONS=AVX2 OPENBLAS_CORETYPE=Haswell ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2
# torch.compile: Inductor's vectors follow ATEN_CPU_CAPABILITY, but it calls g++ with -march=native; the last one counts.
printf '#!/bin/sh\nexec /usr/bin/g++ "$@" -march=x86-64-v3\n' >"$OUT/bin/g++"
chmod +x "$OUT/bin/g++"
export CXX=$OUT/bin/g++ TORCHINDUCTOR_CACHE_DIR=$OUT/inductor
# A trainer's environment (process/launch.py) leaves out MKL_ENABLE_INSTRUCTIONS and OPENBLAS_CORETYPE, so its libraries
# would use AVX-512: they are kept here.
bench() {
    local module=$1; shift
    python - "$module" "$@" <<'PY'
import importlib, sys
from gpt2core.process import launch
launch.OTHER_KERNELS = ()
module = sys.argv[1]
sys.argv = sys.argv[1:]
if module == "doctor":
    from taskloom.cli import main
    sys.argv = ["taskloom", "doctor", *sys.argv[1:]]
    sys.exit(main())
importlib.import_module(module).main()
PY
}
step=(--model gpt2-124m --threads 2 --grad-clip 0)
prepare() {
    bench doctor --peaks --force | tee "$OUT/doctor.txt"
    bench bench.step "${step[@]}" --shapes 4x64,4x256 --precisions fp32,bf16 --variants task --rounds 1 --steps 2 --warmup 1 \
        --attempts 1 --out "$OUT/prepare" >"$OUT/prepare.txt" 2>&1 || tail -5 "$OUT/prepare.txt"
    grep -o '"name": "[a-z, -]*"\|avx2[^"]*' "$OUT"/cache/products-*.json | sort | uniq -c | head
}
step64() {
    bench bench.step "${step[@]}" --shapes 4x64 --precisions fp32 --variants task,torch-tuned-compile --rounds 6 --steps 6 \
        --attempts 1 --budget-s 270 --out "$OUT/step64" >"$OUT/step64.txt" 2>&1; grep -E "ratio|^\| B4" "$OUT/step64.md"
}
step256() {
    bench bench.step "${step[@]}" --shapes 4x256 --precisions fp32 --variants task,torch-tuned-compile --rounds 6 --steps 5 \
        --attempts 1 --budget-s 330 --out "$OUT/step256" >"$OUT/step256.txt" 2>&1; grep -E "ratio|^\| B4" "$OUT/step256.md"
}
bf16() {
    bench bench.step "${step[@]}" --shapes 4x64 --precisions fp32,bf16 --variants task --rounds 3 --steps 6 --attempts 1 \
        --out "$OUT/bf16" >"$OUT/bf16.txt" 2>&1; grep -E "^\| B4" "$OUT/bf16.md"
}
summary() {
    python - "$OUT" <<'PY'
import json, statistics, sys
from pathlib import Path
out = Path(sys.argv[1])
def read(name):
    path = out / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None
for name in ("step64", "step256"):
    found = read(name)
    if found is None:
        print(name, "was not run"); continue
    for line in found["headlines"]:
        roof = found["roofs"][0]
        bound = line["ratio"] / line["bound_share"]
        print(f"{line['label']}: {line['ratio']:.3f} {line['ratio_interval']} of {line['peer']}; "
              f"bound {bound:.3f} (all products at the registers' rate, "
              f"the rest as it is), share of the bound {line['bound_share']:.1%}")
        print(f"  {roof['peaks']}")
        for op in roof["ops"]:
            if op["time_share"] < 0.001:
                continue
            of = op["registers_share"] if op["bound"] == "compute" else op["share"]
            mark = "" if of is None or of >= 0.9 else "  below 90 %"
            print(f"  {op['op']:28} {op['phase']:9} {op['time_share']:6.1%} of time, {op['bound']:7} "
                  f"{op['achieved_gflop_per_s']:7.1f} GFLOP/s {op['achieved_gb_per_s']:6.1f} GB/s "
                  f"{'' if of is None else f'{of:.0%} of its roof'}{mark}")
found = read("bf16")
if found:
    of = {c["case"]["precision"]: c["rows"][0]["median_step_s"] for c in found["comparisons"]}
    by = lambda p: [statistics.median(r["step_s"][2:]) for r in found["runs"] if r["precision"] == p]
    rounds = [b / a for a, b in zip(by("fp32"), by("bf16"))]
    ratio = of["bf16"] / of["fp32"]
    print(f"bf16 / fp32 at B4 T64: {ratio:.3f} (rounds {', '.join(f'{r:.3f}' for r in rounds)})")
PY
}
[[ $# -gt 0 ]] || set -- prepare step64 bf16 step256 summary
for part in "$@"; do echo "== $part $(date -u +%T)"; "$part"; done
date -u +%T
