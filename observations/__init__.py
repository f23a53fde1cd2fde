"""AtFlows: what was attempted and what it reportedly cost. It holds no authority over anything.

This package itself imports nothing: producers need ``observations.client`` alone.
"""
