import pytest


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:7412", 200),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("[::1]:7412", 200),
        ("evil.example", 400),
        ("127.0.0.1.evil.example", 400),
        ("localhost@evil.example", 400),
        ("[::1", 400),
        ("", 400),
    ],
)
async def test_only_known_host_names_are_answered(http, host, status):
    response = await http.get("/v1/version", headers={"Host": host})
    assert response.status_code == status, response.text


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://127.0.0.1:7412", 200), ("https://evil.example", 400), ("null", 400)],
)
async def test_pages_from_elsewhere_are_not_answered(http, origin, status):
    response = await http.get("/v1/version", headers={"Origin": origin})
    assert response.status_code == status
    assert not [name for name in response.headers if name.startswith("access-control")]


async def test_unknown_routes_and_methods_are_problems_too(http):
    missing, wrong = await http.get("/v2/tasks"), await http.delete("/v1/tasks")
    assert (missing.status_code, missing.json()["code"]) == (404, "route.not-found")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "route.method-not-allowed")
    for response in (missing, wrong):
        assert response.headers["content-type"] == "application/problem+json"


async def test_the_server_says_that_it_is_well_and_which_version_it_is(http):
    assert (await http.get("/healthz")).json() == {"status": "ok"}
    assert (await http.get("/v1/version")).json()["version"][0].isdigit()
