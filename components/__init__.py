"""What is declared: one noun a file, its Spec, its pure manifests, its ComponentResource."""
