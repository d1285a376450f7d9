"""Sends readings of three sensors, as lines of JSON, until Ctrl-C: python sensors.py [HOST:PORT]

Each sensor sends ten readings a second. The boiler is too hot for ten seconds of each thirty, and one reading
in a hundred is broken. A sender that loses its receiver connects again.
"""

import json
import random
import socket
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone

PAUSE = 0.1
"""Seconds between two readings of a sensor."""


def readings(now: float) -> Iterator[str]:
    """Returns one reading of each sensor."""
    hot = now % 30 < 10
    for sensor, celsius in (("boiler", 34.0 if hot else 24.0), ("cellar", 12.0), ("oven", 21.0)):
        reading = {
            "sensor": sensor,
            "time": datetime.fromtimestamp(now, timezone.utc).isoformat(),
            "celsius": round(random.gauss(celsius, 1.0), 2),
        }
        if random.random() < 0.01:
            reading["celsius"] = "broken"
        yield json.dumps(reading) + "\n"


def send(host: str, port: int) -> None:
    """Sends readings until the connection ends."""
    with socket.create_connection((host, port)) as connection:
        print(f"sending to {host}:{port}", flush=True)
        while True:
            connection.sendall("".join(readings(time.time())).encode())
            time.sleep(PAUSE)


def main() -> None:
    host, _, port = (sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7001").rpartition(":")
    while True:
        try:
            send(host, int(port))
        except OSError as error:
            print(f"{host}:{port}: {error}; trying again", flush=True)
            time.sleep(1.0)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
