"""One per node: supervises training attempts."""
