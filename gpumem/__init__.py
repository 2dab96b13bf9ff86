"""`kubectl gpumem`: shows the pods on each device, the free memory, and the reason for which a pod waits."""
