"""Generated from proto/perdure/v1 by `make proto`. Do not edit."""
