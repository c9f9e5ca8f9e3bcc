"""A supervisor that holds a child until it is killed, and says the child's pid."""

import asyncio
import sys
from pathlib import Path

from perdure.attempts.supervisor import Child, ChildCommand, Line

PATH = {"PYTHONPATH": str(Path.cwd())}


async def hold(folder: Path) -> None:
    child = await Child.start(
        ChildCommand("tests.children.attempts", {"act": "hold"}, folder / "job", PATH)
    )

    async def on_line(line: Line) -> None:
        if line["kind"] == "progress":
            print(child.pid, flush=True)

    await child.run(on_line, lambda _text: None)


if __name__ == "__main__":
    asyncio.run(hold(Path(sys.argv[1])))
