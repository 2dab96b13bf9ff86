"""guard: keeps protected pods' oom_score_adj so low that the kernel kills a disposable pod first."""
