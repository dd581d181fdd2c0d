"""Marks of tests that only some processors can run."""

from __future__ import annotations

import platform

import pytest

X86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="this processor lacks x86-64's instructions")
WITH_MKL = pytest.mark.skipif(platform.machine() != "x86_64", reason="this processor lacks MKL")
MKL = pytest.param("mkl", marks=WITH_MKL)
