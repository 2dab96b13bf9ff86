"""What only developers run: it installs and starts what the packages need, and builds and shows what they are.

`installer/` and `cluster/` import nothing else of ours, and everything else here may import every package. What an
operator's command needs is in stacks/ or gpumem/, because no package imports toolchain/.
"""
