"""What a scheduler can be told."""

from perdure.runtime.settings import LogUrl, Port, ServiceSettings


class SchedulerSettings(ServiceSettings):
    """Settings of the scheduler, from environment variables."""

    log_url: LogUrl
    health_port: Port = 7421
