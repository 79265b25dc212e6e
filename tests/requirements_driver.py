"""The behaviours of the driver, by the rules that it follows: E encodes, D decodes, S streams."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["DRIVER_DECODE", "DRIVER_ENCODE", "DRIVER_STREAM"]

R = Requirement

DRIVER_ENCODE: tuple[Requirement, ...] = ()

DRIVER_DECODE: tuple[Requirement, ...] = ()

DRIVER_STREAM: tuple[Requirement, ...] = ()
