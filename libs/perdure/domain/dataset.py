"""Data set versions: the names of their streams."""


def dataset_stream(version: str) -> str:
    """The stream of a data set version."""
    return f"dataset-{version}"


def rejected_stream(task_id: str) -> str:
    """The stream of an import that was refused: it has no version."""
    return f"dataset-rejected-{task_id}"
