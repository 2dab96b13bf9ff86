"""Shows a day of five residents in a few minutes, on a temporary cluster (`make demo`).

`story` declares the steps, `stage` runs them on the cluster, and `screen` shows them.
"""
