"""A gateway on memory backends, and the other services' part in short: events as the scheduler
would append them.
"""

import asyncio
import io
import threading
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from blake3 import blake3
from google.protobuf.message import Message as Protobuf

from perdure.artifacts.folder import FolderStore
from perdure.contracts.codec import to_envelope
from perdure.contracts.envelope import NewEvent, RecordedEvent, derived_id
from perdure.contracts.v1 import events_pb2, work_pb2
from perdure.eventlog.memory import MemoryLog, MemoryReadModels
from perdure.eventlog.port import StreamAppend
from perdure.messaging.local import LocalBus
from perdure.messaging.port import Message
from perdure.messaging.topology import EVENTS, TELEMETRY
from perdure.runtime.clock import Clock, SystemClock
from perdure_gateway.bootstrap import build_app
from perdure_gateway.server import GatewayServer
from perdure_gateway.settings import GatewaySettings

VERSION = "ab" * 32
SPLIT = "cd" * 32
WEIGHTS = "77" * 32
NOW = "2026-01-02T03:04:05.000000+00:00"


def zip_bytes(**files: str) -> bytes:
    """A zip archive of text files."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, text in (files or {"data.yaml": "names: [bird]"}).items():
            archive.writestr(name, text)
    return target.getvalue()


def digest_of(data: bytes) -> str:
    return blake3(data).hexdigest()


def dataset_imported(version: str = VERSION) -> events_pb2.DatasetImported:
    return events_pb2.DatasetImported(
        version=version,
        name="birds",
        format="yolo",
        classes=["wren", "robin"],
        images=10,
        boxes=14,
        train_images=8,
        val_images=2,
        split_id=SPLIT,
        manifest=events_pb2.Blob(
            key=f"datasets/manifests/{version}.json", digest="ee" * 32, size_bytes=5_000_000_000
        ),
    )


@dataclass
class World:
    """Backends that outlive the gateways on them, as a database outlives a server."""

    root: Path
    settings: GatewaySettings = field(default_factory=GatewaySettings)
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self.log = MemoryLog()
        self.read_models = MemoryReadModels()
        self.bus = LocalBus()
        self.store = FolderStore(self.root / "store")
        self._causes = 0

    def app(self):
        return build_app(
            log=self.log,
            read_models=self.read_models,
            store=self.store,
            bus=self.bus,
            clock=self.clock,
            settings=self.settings,
        )

    def damage(self, content: bytes, instead: bytes | None = None) -> Path:
        """Change the last byte of a stored object behind the store's back, or all of them; gives
        its file.
        """
        (path,) = (
            path
            for path in (self.root / "store/data").rglob("*")
            if path.is_file() and path.read_bytes() == content
        )
        path.chmod(0o644)
        path.write_bytes(content[:-1] + b"x" if instead is None else instead)
        return path

    async def append(
        self, stream: str, *events: Protobuf, publish: bool = True, cause: str = ""
    ) -> tuple[RecordedEvent, ...]:
        """Append to a stream and publish, as scheduler and relay do.

        `cause` is the message that led to it, another one each time by default.
        """
        self._causes += 1
        unique = f"test:{self._causes}"
        cause = cause or unique
        version = len(await self.log.read_stream(stream))
        new = tuple(
            NewEvent(
                derived_id(unique, index), data, NOW, stream.removeprefix("task-"), cause, "test"
            )
            for index, data in enumerate(events)
        )
        recorded = await self.log.append(StreamAppend(stream, version, new))
        for event in recorded if publish else ():
            body = to_envelope(event).SerializeToString()
            await self.bus.publish(
                EVENTS, f"{event.type}.{event.stream}", Message(event.id, event.type, body)
            )
        return recorded

    async def import_dataset(self, version: str = VERSION) -> None:
        await self.append(f"dataset-{version}", dataset_imported(version))

    async def heartbeat(self, *attempts: work_pb2.AttemptProgress) -> None:
        worker = events_pb2.WorkerRegistered(worker_id="worker-1", incarnation="i1")
        body = work_pb2.Heartbeat(worker=worker, time=NOW, attempts=attempts)
        await self.bus.publish(
            TELEMETRY, "worker-1", Message("h", "Heartbeat", body.SerializeToString())
        )

    async def register_model(
        self, model_id: str, files: dict[str, bytes], task_id: str = "t1"
    ) -> None:
        blobs = []
        for name, data in files.items():
            stored = self.store.put_bytes(f"models/{model_id}/{name}", data)
            blobs.append(
                events_pb2.Blob(key=stored.key, digest=stored.digest, size_bytes=stored.size_bytes)
            )
        await self.append(
            f"model-{model_id}",
            events_pb2.ModelExported(
                model_id=model_id,
                task_id=task_id,
                onnx=blobs[0],
                opset=17,
                input_shape=[1, 3, 160, 160],
            ),
            events_pb2.ModelVerified(
                images=2, max_confidence_difference=1e-5, max_box_difference_px=0.01
            ),
            events_pb2.ModelEvaluated(
                images=2, map50=0.75, map50_95=0.5, map50_by_class={"wren": 0.8, "robin": 0.7}
            ),
            events_pb2.ModelRegistered(
                model_id=model_id,
                task_id=task_id,
                name="birds",
                dataset_version=VERSION,
                config_hash="12" * 32,
                card=blobs[-1],
                files=blobs,
            ),
        )


def assigned(fence: int = 1, stage: str = "prepare") -> events_pb2.AttemptAssigned:
    return events_pb2.AttemptAssigned(
        stage=stage, fence=fence, worker_id="worker-1", incarnation="i1"
    )


def prepared(fence: int = 1, version: str = VERSION) -> events_pb2.AttemptSucceeded:
    result = events_pb2.PreparedData(dataset_version=version, split_id=SPLIT)
    return events_pb2.AttemptSucceeded(fence=fence, prepared=result)


def epoch(fence: int, number: int, epochs: int = 2) -> events_pb2.EpochCompleted:
    return events_pb2.EpochCompleted(
        fence=fence,
        epoch=number,
        epochs=epochs,
        box_loss=1.5,
        cls_loss=0.5,
        dfl_loss=0.25,
        map50=0.25,
        images=8,
        duration_s=2.0,
    )


def published(fence: int, model_id: str) -> events_pb2.AttemptSucceeded:
    result = events_pb2.PublishedModel(model_id=model_id, map50=0.75, map50_95=0.5)
    return events_pb2.AttemptSucceeded(fence=fence, published=result)


def trained(fence: int) -> events_pb2.AttemptSucceeded:
    blob = events_pb2.Blob(key="checkpoints/x/y.pt", digest="aa" * 32, size_bytes=1)
    result = events_pb2.TrainedModel(
        best_checkpoint=blob, best_epoch=2, epochs=2, map50=0.5, weights_digest=WEIGHTS
    )
    return events_pb2.AttemptSucceeded(fence=fence, trained=result)


class ServerThread:
    """A world's gateway on a real port, on an event loop in a thread of its own."""

    def __init__(self, world: World, port: int = 0) -> None:
        self.world = world
        self.url = ""
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "ServerThread":
        self._thread.start()
        self.start(self._port)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.run(self.world.bus.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def run(self, coroutine, timeout_s: float = 20):
        """Run a coroutine on the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout_s)

    def start(self, port: int = 0) -> None:
        async def begin() -> GatewayServer:
            server = GatewayServer(self.world.app(), port=port)
            await server.start()
            return server

        self._server = self.run(begin())
        self.url = self._server.url

    def stop(self) -> None:
        self.run(self._server.stop())

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])
