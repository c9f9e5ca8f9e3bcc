"""Messages between services: at least once, in order per queue, confirmed."""

from urllib.parse import urlsplit

from perdure.errors import InvalidSetting
from perdure.messaging.port import Bus

__all__ = ["Bus", "open_bus"]


async def open_bus(url: str, *, name: str = "perdure") -> Bus:
    """The bus on the RabbitMQ server at `url`: `amqp://user:password@host:port/vhost`, or `amqps`.

    It need not be there yet: until it is, publishing raises BusUnavailable, and consumers wait.
    `name` is what the broker's operator sees the connection under. Raises InvalidSetting for an
    address of any other form, and when a broker answers and refuses user, password or vhost.
    """
    # Only who talks to a broker loads what that takes.
    from perdure.masking import masked
    from perdure.messaging.rabbitmq import RabbitBus

    try:
        parts = urlsplit(url)
        understood = parts.scheme in ("amqp", "amqps") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number, brackets that do not match
        understood = False
    if not understood:
        raise InvalidSetting(
            f"the broker's address {masked(url)!r} is not understood: "
            "write amqp://user:password@host:port/vhost (amqps:// for TLS)"
        )
    bus = RabbitBus(url, name=name)
    await bus.start()
    return bus
