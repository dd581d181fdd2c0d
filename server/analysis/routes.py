"""/api/v1/analysis"""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter(prefix="/analysis", tags=["analysis"])
