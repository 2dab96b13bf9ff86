"""Shows a day of five residents in a few minutes, on a temporary cluster (`make demo`).

`stage` runs the steps on the cluster, and `story` says what each shows. An act of the day that only a test needs is
in tests/e2e.
"""
