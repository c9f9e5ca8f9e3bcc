"""Training: the configuration, the loop, its exact checkpoints."""
