"""reconcile: advertises gpumem on the nodes of the ledger's pools."""
