"""How cargo builds what tests run: as the Makefile does."""

import os
from pathlib import Path

from documents import ROOT

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
ALL = (ROOT / "tests" / "built_together.txt").read_text().split()
"""What the Makefile selects: with other features cargo would compile all anew."""
BUILD = ["cargo", "build", *ALL]
FOLDER = TARGET / "debug"
"""Where cargo puts what it builds."""
