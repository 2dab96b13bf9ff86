"""The program: loads the stack's settings, builds the platform, exports what others read."""

import pulumi

from stacks import platform, settings

pulumi.require_pulumi_version(">=3.259.0 <4.0.0")
platform.export(platform.build(settings.load()))
