"""Benchmarks: figures beside a baseline of the same run, printed and never asserted.

Each program interleaves what it compares request by request, since a machine drifts more than the goals
allow. ``python -m tests.bench.decisions --help`` says what it takes.
"""
