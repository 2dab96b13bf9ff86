"""Installs the pinned tools. `cli` is the command line, and `tools` declares the tools.

`pins` reads the versions of the tools. `ways` gets each tool from the cache, as a release (`download`), or as a build
(`golang`). `store` is the cache.
"""
