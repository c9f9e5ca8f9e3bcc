"""Headers come from whoever may publish: whatever they hold, a message is read."""

from types import SimpleNamespace
from typing import Any

import pytest
from aiormq import spec

from perdure.messaging import cloudevents
from perdure.messaging.rabbitmq_queues import BROKER_DELIVERY_LIMIT


def incoming(headers: dict[str, Any]) -> Any:
    properties = spec.Basic.Properties(headers=headers, message_id="m1", message_type="Thing")
    return SimpleNamespace(header=SimpleNamespace(properties=properties), body=b"", routing_key="k")


@pytest.mark.parametrize(
    "death",
    ["foo", ["foo"], [5], [[]], [{"routing-keys": 7}], [{"routing-keys": [7]}], [{"queue": 5}]],
)
def test_a_death_that_no_broker_wrote_is_read_as_far_as_it_can_be(death: Any) -> None:
    read = cloudevents.delivery(incoming({"x-death": death})).death
    if read is not None:
        assert (read.queue, read.exchange, read.routing_key, read.reason) == ("", "", "", "")
        assert read.deliveries == BROKER_DELIVERY_LIMIT + 1


@pytest.mark.parametrize("count", ["9" * 5000, "²", "-1", "", "1.5", None, [], {}])
def test_a_count_that_is_none_is_zero(count: Any) -> None:
    headers = {"perdure-death-queue": "q", "perdure-death-deliveries": count}
    read = cloudevents.delivery(incoming(headers | {"x-delivery-count": count}))
    assert read.attempt == 1
    assert read.death is not None
    assert read.death.deliveries == 0
