"""From a prompt to text, in three layers that can each be used alone.

``stepper``: ids in, logits out, over one line of a session. ``stream``: events as tokens arrive. ``Stream.run``: the whole answer.
"""
