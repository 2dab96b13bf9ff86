"""The program: loads the stack's settings, builds the platform, exports what others read."""

import os
import signal

import pulumi

from stacks import platform, settings
from stacks.preview import debug

# Where the gate refuses or a step fails, the engine interrupts the program before it is through, and kills it five
# seconds later: Python waits for its calls, which nobody answers any more.
signal.signal(signal.SIGINT, lambda *_: os._exit(1))

pulumi.require_pulumi_version(">=3.259.0 <4.0.0")
debug.drop_unread(os.environ)
pulumi.run(lambda: platform.declare(settings.load()))
