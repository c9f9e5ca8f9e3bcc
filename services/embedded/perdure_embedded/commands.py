"""`perdure up` and `perdure demo`."""

import asyncio
import shutil
import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from perdure import __version__
from perdure.runtime.logs import log_to_file
from perdure_embedded.demo import DEFAULT_FOLDER, run_demo
from perdure_embedded.folder import DataFolder
from perdure_embedded.server import EmbeddedServer
from perdure_gateway.server import DEFAULT_HOST, DEFAULT_PORT

DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Where everything is kept. Default: ~/.local/share/perdure", show_default=False
    ),
]


def up(
    data_dir: DataDir = None,
    host: Annotated[str, typer.Option(help="Loopback address to listen on.")] = DEFAULT_HOST,
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 takes a free one.")
    ] = DEFAULT_PORT,
) -> None:
    """Start the server: all services in one process. Ctrl-C stops it."""
    folder = DataFolder.chosen(data_dir)
    console = Console(stderr=True)
    with folder.held():
        log_to_file(folder.server_log)
        # No attempt runs yet: what lies here is left over from a server that was killed.
        shutil.rmtree(folder.work, ignore_errors=True)
        asyncio.run(_serve(EmbeddedServer(folder, host=host, port=port), folder, console))
    console.print("stopped; tasks that were running go on at the next `perdure up`")


async def _serve(server: EmbeddedServer, folder: DataFolder, console: Console) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if not stopping.is_set():
            console.print("stopping: running trainings write a checkpoint ...")
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)

    def ready(url: str) -> None:
        console.print(f"Perdure {__version__} is up at [bold]{url}[/bold]  (data: {folder.root})")
        console.print("train with:  [bold]perdure train --data FOLDER --wait[/bold]")
        console.print("Ctrl-C stops it.")

    await server.run(stopping, ready)


def demo(
    data_dir: Annotated[
        Path, typer.Option(help="Folder for the demo's data, server and model.")
    ] = DEFAULT_FOLDER,
) -> None:
    """Train on drawn birds, kill the training in the middle, and see it finish all the same."""
    run_demo(data_dir.absolute())
