"""Instructions of the processor that Numba's settings NUMBA_CPU_NAME and NUMBA_CPU_FEATURES name.

Numba then compiles for that processor, so all that depends on instructions (register tiles, peaks, the table of
products) must follow. LLVM knows which instructions a processor has; it is queried in a process of its own, since it
ends the process if it does not know the processor.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys

from gpt2core.spec import printed, settings
from gpt2core.spec.errors import ConfigError

# Linux's names of features, by the vector register without which they do not exist.
NEEDS = {"zmm": r"avx512|amx_", "ymm": r"avx|f16c|fma|vaes|vpclmul", "xmm": ""}
OF_REGISTER = {"zmm": "avx512f", "ymm": "avx", "xmm": "sse2"}
BF16, TILES = "avx512_bf16", {"amx_tile": "+amx-tile", "amx_bf16": "+amx-bf16"}
ADDS, ROUNDS = "fadd <16 x float> %x, %x", "fptrunc <16 x float> %x to <16 x bfloat>"
MODULE = f"""
define <16 x float> @adds(<16 x float> %x) {{
  %y = {ADDS}
  ret <16 x float> %y
}}
define <16 x bfloat> @rounds(<16 x float> %x) {{
  %y = {ROUNDS}
  ret <16 x bfloat> %y
}}
"""


def used(shown: frozenset[str]) -> frozenset[str]:
    """The features among `shown`, those of this processor, for which Numba compiles. Raises ConfigError for a processor
    that LLVM does not know, or whose vectors this one lacks.
    """
    name, features = settings.numba_processor()
    if name is None and features is None:
        return shown
    command = [sys.executable, "-P", "-m", __name__, json.dumps([name, features])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    field, value = ("NUMBA_CPU_FEATURES", features) if name is None else ("NUMBA_CPU_NAME", name)
    if done.returncode != 0 or "is not a recognized processor" in done.stderr:
        known = "x86-64-v3" if platform.machine() == "x86_64" else "generic"
        raise ConfigError(field, value, f"a processor that LLVM knows, such as {known}")
    found = printed.document(done.stdout, '{"register"')
    register, rounds, enabled = found["register"], found["rounds"], found["enabled"]
    if register is None:  # not x86: our code asks for no feature that only some processors have
        return shown
    needed = {OF_REGISTER[register], *([BF16] if rounds else [])}
    if not needed <= shown:
        missing = ", ".join(sorted(needed - shown))
        raise ConfigError(field, value, f"a processor without {missing}, which this one lacks")
    wider = [pattern for other, pattern in NEEDS.items() if other > register]
    without = {BF16} if not rounds else set()
    without |= {linux for linux, llvm in TILES.items() if llvm not in enabled}
    return frozenset(f for f in shown - without if not any(re.match(pattern, f) for pattern in wider))


def main(argument: str) -> None:
    """Print the widest vector register (null if not x86), whether an instruction rounds to bfloat16, and features, of
    code for a processor: JSON of [name, features], null for this processor's."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name, features = json.loads(argument)
    name = llvm.get_host_cpu_name() if name is None else name
    features = llvm.get_host_cpu_features().flatten() if features is None else features
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=name, features=f"{features},-prefer-256-bit".lstrip(",")
    )
    code = machine.emit_assembly(llvm.parse_assembly(MODULE))
    widest = max(re.findall(r"%([xyz]mm)", code), default=None)
    print(json.dumps({"register": widest, "rounds": "vcvtneps2bf16" in code, "enabled": features.split(",")}))


if __name__ == "__main__":
    main(sys.argv[1])
