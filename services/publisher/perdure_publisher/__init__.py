"""Publisher: export, parity, evaluation, gate, model card."""
