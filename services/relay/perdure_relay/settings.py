"""What a relay can be told."""

from perdure.runtime.settings import LogUrl, Port, ServiceSettings


class RelaySettings(ServiceSettings):
    """Settings of the relay, from environment variables."""

    log_url: LogUrl
    health_port: Port = 7422
