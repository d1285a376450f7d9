"""Celsius to Fahrenheit: big-endian floats in over TCP, lines of text out over TCP."""

import os
import struct

import millstream as ms


def celsius(frame: bytes) -> float:
    """A temperature as it is on the wire: four bytes."""
    return struct.unpack(">f", frame)[0]


def fahrenheit(degrees: float) -> float:
    return degrees * 9 / 5 + 32


celsius_at = os.environ.get("CELSIUS", "127.0.0.1:7010")
fahrenheit_at = os.environ.get("FAHRENHEIT", "127.0.0.1:7011")

flow = ms.Flow("celsius")
(
    flow.source("celsius", ms.tcp.listen(celsius_at, framing="fixed:4", connections=1, decode=celsius))
    .map(fahrenheit)
    .map(lambda degrees: f"{degrees:.1f}")
    .redistribute()
    .sink("fahrenheit", ms.tcp.send_to(fahrenheit_at, framing="lines"))
)

if __name__ == "__main__":
    ms.run(flow)
