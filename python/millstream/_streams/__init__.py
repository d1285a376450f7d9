"""Flows and streams: the fluent API, a module for each group of verbs.

A flow is described once and run any number of times. Each verb returns a new stream; nothing happens before
:func:`millstream.run`. A mistake in the description raises at the call that makes it.

``streams`` and ``flow`` declare the classes. The other modules have the verbs, which use ``base``.
"""
