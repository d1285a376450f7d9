"""How cargo builds what tests run: as the Makefile does."""

import os
from pathlib import Path

from documents import ROOT

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PROFILE = os.environ.get("PROFILE", "checked")
TOGETHER = (ROOT / "tests" / "built_together.txt").read_text().split()
"""What the Makefile selects: with other features cargo would compile all anew."""
BUILD = ["cargo", "build", "--profile", PROFILE, *TOGETHER]
FOLDER = TARGET / PROFILE.replace("dev", "debug")
"""Where cargo puts what it builds."""
