"""Alphabet: votes for letters in over TCP, the running total of the letter out for each of them."""

import os

import millstream as ms


class Vote(ms.Record, format=">1sI", fields="letter votes"):
    """Some votes for a letter: five bytes."""


class Total(ms.Record, format=">1sQ", fields="letter votes"):
    """All votes for a letter so far: nine bytes."""


votes_at = os.environ.get("VOTES", "127.0.0.1:7020")
totals_at = os.environ.get("TOTALS", "127.0.0.1:7021")

flow = ms.Flow("alphabet")
(
    flow.source("votes", ms.tcp.listen(votes_at, framing="fixed:5", connections=1, decode=Vote))
    .key_by("letter")
    .map(lambda vote: vote.votes)
    .sum(emit="each")
    .items()
    .map(lambda item: Total.pack(*item))
    .sink("totals", ms.tcp.send_to(totals_at, framing="fixed:9"))
)

if __name__ == "__main__":
    ms.run(flow)
