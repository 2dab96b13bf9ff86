"""The Pulumi program of the platform: loads the stack's settings, declares the platform, and exports its outputs."""

import os
import signal

import pulumi

from stacks import platform, settings

# If the policy pack refuses the update or a step fails, the engine sends SIGINT to the program. Python would then wait
# for calls that the engine no longer answers, and the engine would kill it after 5 s. So the program ends at once.
signal.signal(signal.SIGINT, lambda *_: os._exit(1))

pulumi.require_pulumi_version(">=3.259.0 <4.0.0")
# The SDK sends at least four debug messages for each resource, and waits until the engine has dropped each one.
pulumi.log.debug = lambda *_, **__: None
pulumi.run(lambda: platform.declare(settings.load()))
