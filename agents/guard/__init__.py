"""guard: lowers the oom_score_adj of protected workloads, so that the kernel kills a disposable workload first."""
