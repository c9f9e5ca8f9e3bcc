"""A service that does one thing wrong, or nothing: `python -m tests.children.service KIND`."""

import asyncio
import logging
import os
import sys
import time

from perdure.runtime import host
from perdure.runtime.data_folder import emptied
from perdure.runtime.host import Host, Service
from perdure.runtime.init_process import be_init_if_first
from perdure.runtime.settings import DataDir, Port, SecretUrl, ServiceSettings, StoreUrl

AGES_S = 600.0


class Settings(ServiceSettings):
    health_port: Port = 0
    store_url: StoreUrl | None = None
    data_dir: DataDir | None = None


async def obeys(stopping: asyncio.Event) -> None:
    await stopping.wait()


async def takes_its_time(_stopping: asyncio.Event) -> None:
    await asyncio.sleep(AGES_S)


async def blocks(stopping: asyncio.Event) -> None:
    await stopping.wait()
    logging.getLogger("tests").info("blocks")
    time.sleep(AGES_S)


async def fails(_stopping: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(lambda: 1 / 0))


async def ends(_stopping: asyncio.Event) -> None:
    return


async def leaves_orphans(stopping: asyncio.Event) -> None:
    """Start processes whose parent ends before them."""
    for _ in range(3):
        shell = await asyncio.create_subprocess_exec("sh", "-c", "sleep 0.2 & exit 0")
        await shell.wait()
    logging.getLogger("tests").info("left")
    await stopping.wait()


async def assemble(settings: Settings, host: Host) -> Service:
    kind = sys.argv[1]
    if settings.data_dir is not None:
        with host.data_dir(settings.data_dir):
            emptied(settings.data_dir / "work")
    if settings.store_url is not None:
        await host.store(settings.store_url)
    if kind == "waits":
        host.at_end.callback(lambda: os.write(2, b'{"message": "closed"}\n'))
        await host.log(SecretUrl("postgresql://perdure@127.0.0.1:1/perdure"))
    return Service(globals()[kind], {})


if __name__ == "__main__":
    be_init_if_first()
    host.serve("dummy", Settings, assemble)
