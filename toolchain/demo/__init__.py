"""`make demo`: the residents' day in fast steps on a throw-away cluster, with a drawing of the memory's users."""
