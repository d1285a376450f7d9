#!/usr/bin/env python3
"""Compresses the files of wheels again, by zopfli: the same bytes after unpacking, and a smaller archive.

release/repack.py WHEEL...
"""

import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import zopfli


def repack(wheel: Path) -> None:
    new = wheel.with_suffix(".new")
    with ZipFile(wheel) as source, zopfli.ZipFile(new, "w", ZIP_DEFLATED) as target:
        for entry in source.infolist():
            target.writestr(entry, source.read(entry))
    new.replace(wheel)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        repack(Path(name))
