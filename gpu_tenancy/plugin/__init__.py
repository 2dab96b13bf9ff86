"""The components for programs in other languages (docs/reference/package/languages.md)."""
