"""`make demo`: the residents' day in fast steps, on a throw-away cluster that draws who has the memory."""
