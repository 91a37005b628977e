"""Guessing ahead: several tokens are guessed cheaply, one pass of the model says how many of them it would have chosen itself.

``step.Speculator`` is the provider of tokens; ``ngram`` and ``draft`` are where guesses come from, ``depth`` says how many are worth
their time, by ``costs`` (seconds of a pass over m tokens) and ``acceptance`` (how often guesses of a kind were right).
"""
