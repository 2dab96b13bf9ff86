"""The hooks of mkdocs for the docs' site (`make docs`). mkdocs.yml has the site's other settings."""
