"""`perdure up` and `perdure demo`."""

import asyncio
import logging
import os
import shlex
import shutil
import signal
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from perdure import __version__
from perdure.runtime.logs import log_to_file
from perdure.runtime.settings import DEFAULT_HOST, MAX_PORT
from perdure_embedded.demo import DEFAULT_FOLDER, run_demo
from perdure_embedded.folder import DATA_DIR_VARIABLE, DataFolder
from perdure_embedded.server import EmbeddedServer
from perdure_gateway.settings import DEFAULT_PORT

INTERRUPTED: Final = 130
# Of the services that have a cache when they are processes of their own.
CACHE_BYTES_VARIABLE: Final = "PERDURE_CACHE_MAX_BYTES"


def up(
    data_dir: Annotated[
        str | None,
        typer.Option(
            help="Where everything is kept. Default: ~/.local/share/perdure", show_default=False
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Loopback address to listen on.")] = DEFAULT_HOST,
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=MAX_PORT)
    ] = DEFAULT_PORT,
    cache_max_bytes: Annotated[
        int | None,
        typer.Option(
            help="What the data sets laid out for training may take up. Default: "
            f"{CACHE_BYTES_VARIABLE}, or 40 % of the disk",
            envvar=CACHE_BYTES_VARIABLE,
            show_envvar=False,
            min=1,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Start the server: all services in one process. Ctrl-C stops it."""
    folder = DataFolder.chosen(data_dir)
    console = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
    with folder.held():
        log_to_file(folder.server_log)
        # No attempt runs yet: what lies here is left over from a server that was killed.
        shutil.rmtree(folder.work, ignore_errors=True)
        server = EmbeddedServer(folder, host=host, port=port, cache_max_bytes=cache_max_bytes)
        asyncio.run(_serve(server, folder, console, named=data_dir is not None))


async def _serve(
    server: EmbeddedServer, folder: DataFolder, console: Console, *, named: bool
) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if stopping.is_set():
            # Children end with their parent; the next start finds everything in the log.
            console.print("stopped at once; the next `perdure up` puts everything in order")
            os._exit(INTERRUPTED)
        console.print("stopping: running trainings write a checkpoint (again: stop at once) ...")
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)

    def ready(url: str) -> None:
        if stopping.is_set():
            return
        console.print(f"Perdure {__version__} is up at {url}  (data: {folder.root})")
        if named:
            hint = shlex.quote(str(folder.root))
            console.print(f"in other terminals:  export {DATA_DIR_VARIABLE}={hint}")
        console.print("train with:  perdure train --data FOLDER --wait")
        console.print("Ctrl-C stops it.")

    await server.run(stopping, ready)
    console.print("stopped; tasks that were running go on at the next `perdure up`")
    logging.shutdown()
    # Everything is closed. A thread that still copies a large file would only hold us up.
    os._exit(0)


def demo(
    data_dir: Annotated[
        Path, typer.Option(help="Folder for the demo's data, server and model.")
    ] = DEFAULT_FOLDER,
) -> None:
    """Train on drawn birds, kill the training in the middle, and see it finish all the same."""
    run_demo(data_dir.absolute())
