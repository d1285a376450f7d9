"""Sources on several processes: one that listens on a port, and ones whose partitions have changed."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from servers import free_port
from shapes import Shape, command, output
from supervised import Supervised, wait_for
from test_http_kills import Sender

KILLS = int(os.environ.get("MILLSTREAM_KILLS", "2"))
SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)

POSTS = """
import os
import millstream as ms

flow = ms.Flow("posts")
address = f"127.0.0.1:{os.environ['PORT']}"
posts = flow.source("in", ms.http.listen(address, body="bytes", decode=bytes.decode))
counts = posts.key_by(str).count("each", name="counts").items()
counts.map(lambda pair: f"{pair[0]} {pair[1]}").sink("out", ms.files.write(os.environ["OUT"]))
"""


def test_an_http_source_takes_each_acknowledged_post_once(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    flow = tmp_path / "flow.py"
    out = tmp_path / "out" / "out.txt"
    ready = tmp_path / "ready"
    port = free_port()
    flow.write_text(POSTS)
    out.parent.mkdir()
    options = ["--processes", 2, "--workers", 2, "--state", tmp_path / "state", "--epoch", "20ms"]
    options += ["--ready-file", ready, "--restarts", "1000/10m"]
    running = Supervised(command(flow, *options), os.environ | {"PORT": str(port), "OUT": str(out)})
    wait_for(ready.exists, "the flow")
    posters = [Sender(port, name) for name in range(2)]
    for kill in range(KILLS):
        posted = sum(len(poster.acknowledged) for poster in posters)
        wait_for(lambda posted=posted: sum(len(each.acknowledged) for each in posters) > posted, "a post")
        time.sleep(chance.random() * 0.2)
        wait_for(ready.exists, "the flow")
        # Process 0 has the source; process 1 has half of the keys.
        running.kill(running.members(2)[kill % 2])
        running.said("died first", kill + 1)
    for poster in posters:
        poster.stop()
    acknowledged = {f"{item.decode()} 1" for poster in posters for item in poster.acknowledged}
    wait_for(lambda: acknowledged <= output(out).keys(), "all that was acknowledged")
    running.process.terminate()
    running.end(0)
    found = output(out)
    assert len(list(out.parent.glob("out.p*.txt"))) == 2
    assert set(found.values()) == {1} and all(line.endswith(" 1") for line in found)


def test_partitions_keep_their_positions_when_others_come_and_go(tmp_path: Path) -> None:
    """A file that sorts before all comes, and one in the middle of the list is removed."""
    shape = Shape("words", tmp_path, 1, 1500)
    folder = tmp_path / "in"
    out = tmp_path / "out" / "out.txt"
    ready = tmp_path / "ready"
    late = tmp_path / "late"
    gone = folder / "words.2-gone"
    (folder / "words.0").rename(late)
    gone.write_text("")
    options = ["--processes", 2, "--workers", 2, "--state", tmp_path / "state", "--epoch", "20ms"]
    options += ["--ready-file", ready]

    def start(seconds: float) -> Supervised:
        return Supervised(command(shape.flow, *options), shape.environment(out, seconds))

    for _ in range(2):
        running = start(20.0)
        wait_for(ready.exists, "the flow")
        size = output(out).total()
        wait_for(lambda size=size: output(out).total() > size, "output")
        running.process.send_signal(signal.SIGTERM)
        running.end(0)
        if gone.exists():
            gone.unlink()
            late.rename(folder / "words.0")
    text = start(0.0).end(0)
    assert "millstream scale" not in text
    shape.check(out)


def test_workers_whose_partitions_are_new_are_waited_for_by_event_time(tmp_path: Path) -> None:
    shape = Shape("windows", tmp_path, 1, 2000)
    folder = tmp_path / "in"
    out = tmp_path / "out" / "out.txt"
    options = ["--processes", 2, "--workers", 3, "--state", tmp_path / "state"]
    folder.rename(tmp_path / "later")
    folder.mkdir()
    (folder / "readings.x").write_text("")
    running = Supervised(command(shape.flow, *options), os.environ | {"IN": str(folder), "OUT": str(out)})
    out.parent.mkdir()
    running.end(0)
    for file in (tmp_path / "later").iterdir():
        file.rename(folder / file.name)
    text = Supervised(command(shape.flow, *options), shape.environment(out, seconds=2.0)).end(0)
    assert " late" not in text
    shape.check(out)
