"""An attempt is a process of its own. `channel` is the child's side, `supervisor` the parent's."""
