"""GET /v1/audit/relay: the lag is counted from the relay's checkpoint."""

from datetime import datetime, timedelta

import httpx
import pytest

from perdure.eventlog.leadership import RELAY
from tests.builders.gateway import NOW, World, dataset_imported

URL = "/v1/audit/relay"


async def test_an_empty_log_is_published(world: World, http: httpx.AsyncClient) -> None:
    shown = (await http.get(URL)).json()
    assert datetime.fromisoformat(shown.pop("time")).utcoffset() == timedelta(0)
    assert shown == {"head": 0, "position": 0, "lag_events": 0, "lag_s": 0.0, "active": None}


async def test_what_is_not_published_counts_from_the_oldest_on(
    world: World, http: httpx.AsyncClient
) -> None:
    for stream in ("dataset-a", "dataset-b", "dataset-c"):
        await world.append(stream, dataset_imported())
    await world.read_models.commit(RELAY, expected=0, position=1)

    shown = (await http.get(URL)).json()

    assert (shown["head"], shown["position"], shown["lag_events"]) == (3, 1, 2)
    age = datetime.fromisoformat(shown["time"]) - datetime.fromisoformat(NOW)
    assert shown["lag_s"] == pytest.approx(age.total_seconds(), abs=0.001)

    await world.read_models.commit(RELAY, expected=1, position=3)
    shown = (await http.get(URL)).json()
    assert (shown["position"], shown["lag_events"], shown["lag_s"]) == (3, 0, 0.0)


@pytest.mark.parametrize("leads", [True, False])
async def test_whether_a_relay_leads_is_asked_of_the_log(
    world: World, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, leads: bool
) -> None:
    async def has_leader(role: str) -> bool:
        return leads if role == "relay" else not leads

    monkeypatch.setattr(world.log, "has_leader", has_leader)
    assert (await http.get(URL)).json()["active"] is leads
