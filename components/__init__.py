"""The components. Each module has one noun as its name, and holds the noun's Spec, pure manifests and
ComponentResource."""
