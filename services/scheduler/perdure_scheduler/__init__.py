"""The process manager: placement, leases, timers, retries."""
