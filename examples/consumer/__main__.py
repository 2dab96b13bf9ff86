"""A Deployment with a seat on a shared GPU. Its budget is written only in the platform's stack file."""

import pulumi

from gpu_tenancy import SeatedDeployment

config = pulumi.Config()
platform, resident = config.get("platform") or None, config.require("resident")
SeatedDeployment(
    resident,
    image=config.require("image"),
    platform=platform,
    residents=None if platform else {resident: config.require_object("stanza")},
    container={"command": ["sleep", "infinity"]},  # replace it by your application's command
    pod={"securityContext": {"runAsUser": 1000}},  # because busybox runs as root by default
)
