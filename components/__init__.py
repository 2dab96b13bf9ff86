"""The components. Each module is named after one thing, and has the thing's Spec, pure manifests and component."""
