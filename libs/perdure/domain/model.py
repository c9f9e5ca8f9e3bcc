"""Models: the names of their streams."""


def model_stream(model_id: str) -> str:
    """The stream of a model."""
    return f"model-{model_id}"
