"""extender: kube-scheduler's extender, which places pods by device."""
