"""Rewrites the golden files and docs/reference/policy-rules.md: python -m tests.golden"""

from tests.golden import gate, render

for stack_file, golden in render.STACKS.items():
    golden.write_text(render.objects(stack_file))
gate.PAGE.write_text(gate.page())
