"""Pure decisions: decide(state, command) -> events, evolve(state, event) -> state.

No clock, no input, no output.
"""
