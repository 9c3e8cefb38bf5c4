"""Routes of tools and their results."""

from fastapi import APIRouter

router = APIRouter(prefix="/captures/{capture_id}", tags=["results"])
