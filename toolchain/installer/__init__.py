"""Installs the pinned tools, and runs before anything is installed: it imports only the standard library.

`tools` reads toolchain/tools.toml and `pins` the versions. `ways` gets each tool from the cache (`store`), as a release
(`download`), from `debian`'s packages, or as a build (`golang`).
"""
