"""reconcile: keeps gpumem advertised on the nodes of the ledger's pools."""
