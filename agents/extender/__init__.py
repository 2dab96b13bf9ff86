"""extender: a scheduler extender that chooses a device for each pod."""
