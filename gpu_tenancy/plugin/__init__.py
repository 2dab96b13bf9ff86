"""The components for programs in other languages (docs/languages.md)."""
