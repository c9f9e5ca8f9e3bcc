"""Messages between services: at least once, in order per queue, confirmed."""
