"""Components: each module has one noun, with its Spec, its pure manifests and its ComponentResource."""
