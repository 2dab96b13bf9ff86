"""What runs in the cluster: pure decisions in thin shells, shipped as one zipapp; standard library and tenancy only."""
