"""API keys: authentication, roles, and what the store holds of a key."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from bothworlds.serve.config import Config
from bothworlds.serve.http import auth, rank_feedback
from bothworlds.serve.http.auth import ROLES, create_key, list_keys, revoke_key
from bothworlds.serve.http.problems import Problem
from bothworlds.serve.http.rank_feedback import RateLimit

CALLS = {
    "serve": ("POST", "/v1/surfaces/home/rank", {"request_id": "r"}),
    "ingest": ("POST", "/v1/feedback", {"events": []}),
    "read": ("GET", "/v1/surfaces/home/state", None),
    "admin": ("PATCH", "/v1/surfaces/home", {"floor": 0.1}),
}


@pytest.fixture
def asked(call, store):
    """Send the request that needs a role, with a key."""

    def ask(role, key=None, client=call):
        method, path, body = CALLS[role]
        return client(method, path, json=body, headers={"authorization": f"Bearer {key}"} if key else {})

    return ask


@pytest.mark.parametrize("held", ROLES)
@pytest.mark.parametrize("needed", ROLES)
def test_a_key_authorises_its_roles_only(held, needed, asked, call, store):
    key = create_key(store, [held], "", 0)
    call.run(call.service.keyring.load())
    allowed = held in (needed, "admin")
    assert asked(needed, key).status_code == (200 if allowed else 403)


@pytest.mark.parametrize(("prefix", "status"), [("Bearer ", 200), ("bearer ", 200), ("", 200), ("Basic ", 401)])
def test_the_name_of_the_scheme_is_case_insensitive(prefix, status, call, store):
    key = create_key(store, ["admin"], "", 0)
    call.run(call.service.keyring.load())
    method, path, body = CALLS["admin"]
    assert call(method, path, json=body, headers={"authorization": prefix + key}).status_code == status


def test_a_store_without_keys_is_open_and_the_first_key_closes_it(asked, call, store):
    assert asked("admin").status_code == 200
    create_key(store, ["read"], "", 0)
    call.run(call.service.keyring.load())
    refused = asked("admin")
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Bearer")


def test_a_slow_load_of_keys_does_not_undo_a_later_one(call, store):
    keyring, keys, looked, go_on = call.service.keyring, store.keys, threading.Event(), threading.Event()

    def slow():
        found, store.keys = keys(), keys
        looked.set()
        assert go_on.wait(60)
        return found

    async def looks():
        early = asyncio.create_task(keyring.load())
        assert await asyncio.to_thread(looked.wait, 60)
        create_key(store, ["admin"], "", 0)
        await keyring.load()
        go_on.set()
        await early

    store.keys = slow
    call.run(looks())
    assert keyring.needed


def test_revoking_the_last_key_does_not_open_the_service(asked, call, store):
    key = create_key(store, ["admin"], "", 0)
    revoke_key(store, key.split("_")[1], 1)
    call.run(call.service.keyring.load())
    assert asked("admin", key).status_code == 401
    assert asked("admin").status_code == 401


def test_with_keys_required_a_store_without_keys_is_closed(serving, asked):
    assert asked("serve", client=serving(keys_required=True)).status_code == 401


def test_a_wrong_secret_is_refused(asked, call, store):
    key = create_key(store, ["admin"], "", 0)
    call.run(call.service.keyring.load())
    start = key.rpartition("_")[0] if key.count("_") == 2 else "_".join(key.split("_", 2)[:2])
    for wrong in (key[:-1], key + "x", start + "_", key[3:], "bw_", "bw__", "x", start.replace("bw_", "bw_0") + "_x"):
        assert asked("admin", wrong).status_code == 401
    assert asked("admin", key).status_code == 200


def test_a_key_created_by_another_process_works_at_once_and_a_revoked_one_is_soon_refused(
    asked, call, store, monkeypatch
):
    monkeypatch.setattr(auth, "RETRY_SECONDS", 0.0)
    create_key(store, ["read"], "", 0)
    call.run(call.service.keyring.load())
    key = create_key(store, ["admin"], "", 0)
    assert asked("admin", key).status_code == 200
    revoke_key(store, key.split("_")[1], 1)
    monkeypatch.setattr(auth, "REFRESH_SECONDS", 0.0)
    answers = (asked("admin", key).status_code for _ in range(1000))  # keys are reloaded in the background
    assert 401 in answers


def test_administrators_see_keys_that_another_process_has_just_created_or_revoked(asked, call, store):
    assert asked("admin", None).status_code == 200
    key = create_key(store, ["admin"], "", 0)
    assert asked("admin", None).status_code == 401
    assert asked("admin", key).status_code == 200
    revoke_key(store, key.split("_")[1], 1)
    assert asked("admin", key).status_code == 401


def test_cached_keys_work_while_the_store_is_unavailable(asked, call, store, monkeypatch):
    key = create_key(store, ["admin"], "", 0)
    call.run(call.service.keyring.load())
    store.broken = "the disk is full"
    monkeypatch.setattr(auth, "REFRESH_SECONDS", 0.0)
    assert [asked("admin", key).status_code for _ in range(3)] == [200] * 3


def test_the_store_holds_no_secret_of_a_key(store):
    key = create_key(store, ["read", "serve"], "for the shop", 5)
    secret = key.split("_", 2)[2]
    assert secret not in json.dumps(store.keys()) + json.dumps(store.audit(None, 100))
    assert list_keys(store) == [
        {
            "id": key.split("_")[1],
            "roles": ["read", "serve"],
            "note": "for the shop",
            "created_at": 5,
            "revoked_at": None,
        }
    ]


def test_an_unknown_role_or_key_id_is_refused(store):
    with pytest.raises(ValueError, match="roles are serve, ingest, read, admin"):
        create_key(store, ["god"], "", 0)
    with pytest.raises(ValueError, match="there is no key 'nobody'"):
        revoke_key(store, "nobody", 0)


def test_the_actor_of_a_change_is_the_key(asked, call, store):
    key = create_key(store, ["admin"], "", 0)
    call.run(call.service.keyring.load())
    asked("admin", key)
    actors = [(entry["action"], entry["actor"]) for entry in store.audit(1, 2)]
    assert actors == [("change settings", key.split("_")[1]), ("create surface", "local")]


def test_keys_are_created_and_revoked_over_http(call, asked):
    made = call("POST", "/v1/keys", json={"roles": ["admin"], "note": "first"})
    key = made.json()["key"]
    assert made.json()["id"] == key.split("_")[1]
    assert made.headers["cache-control"] == "no-store"
    assert call("GET", "/v1/keys").status_code == 401
    call.sign(key)
    listed = call("GET", "/v1/keys").json()["keys"]
    assert [(entry["note"], entry["revoked_at"]) for entry in listed] == [("first", None)]
    assert call("DELETE", f"/v1/keys/{listed[0]['id']}").status_code == 204
    assert call("GET", "/v1/keys").status_code == 401


def test_public_rank_and_feedback_need_no_key(serving, store, asked):
    config = Config(public_rank=True, public_feedback=True, request_log=False)
    client = serving(config)
    client("PUT", "/v1/surfaces/home", json={"slots": 1, "items": ["a"]})
    create_key(store, ["admin"], "", 0)
    client.run(client.service.keyring.load())
    page = asked("serve", client=client).json()
    said = [{"event_id": page["event_id"], "token": token, "final": True} for token in (page["token"], "forged")]
    results = client("POST", "/v1/feedback", json={"events": said}).json()["results"]
    assert [result["status"] for result in results] == ["accepted", "rejected"]
    assert asked("admin", client=client).status_code == 401
    assert asked("read", client=client).status_code == 401


def statuses(client, count, **options):
    method, path, body = CALLS["ingest"]
    return [client(method, path, json=body, **options).status_code for _ in range(count)]


def test_public_requests_have_a_rate_for_each_address_and_requests_with_a_key_have_none(serving, store):
    client = serving(Config(public_feedback=True, public_rate=0.5, request_log=False))
    assert statuses(client, 20) == [200] * 20  # without keys, the service is local
    key = create_key(store, ["ingest"], "", 0)
    client.run(client.service.keyring.load())
    assert statuses(client, 12) == [200] * 10 + [429] * 2
    refused = client("POST", "/v1/feedback", json={"events": []})
    assert refused.json()["title"] == "Too many"
    assert 0 < int(refused.headers["retry-after"]) <= 2
    assert statuses(client, 12, headers={"authorization": f"Bearer {key}"}) == [200] * 12
    assert (
        statuses(serving(Config(public_feedback=True, public_rate=0, request_log=False), keys_required=True), 12)
        == [200] * 12
    )


def allowed(limit, host):
    try:
        limit.check({"client": (host, 1)})
    except Problem:
        return False
    return True


def test_a_rate_limit_recovers_and_forgets_nobody_early(monkeypatch):
    now = 1000.0
    limit = RateLimit(2.0, lambda: now)
    assert sum(allowed(limit, "10.0.0.1") for _ in range(100)) == 40  # 20 seconds' worth
    assert allowed(limit, "10.0.0.2")
    for _ in range(100):  # as slowly as allowed, through several rotations of the table
        now += 0.5
        assert allowed(limit, "10.0.0.1")
        assert not allowed(limit, "10.0.0.1")
    now += 20.5
    assert sum(allowed(limit, "10.0.0.1") for _ in range(100)) == 40
    monkeypatch.setattr(rank_feedback, "MAX_ADDRESSES", 3)
    for number in range(50):
        allowed(limit, f"10.0.1.{number}")
    assert len(limit._recent) <= 3


def test_an_ipv6_address_counts_with_its_network():
    limit = RateLimit(0.05, lambda: 0.0)
    assert [allowed(limit, host) for host in ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1")] == [True, False, True]
    assert [allowed(limit, host) for host in ("::ffff:10.0.0.1", "::ffff:10.0.0.2", "10.0.0.1")] == [True, True, False]


@pytest.mark.parametrize("client", [None, ("unknown", 0), ("1.2.3.4:5", 0), ("x" * 60_000, 0)])
def test_requests_whose_address_a_proxy_does_not_say_share_a_limit(client):
    limit = RateLimit(0.05, lambda: 0.0)
    limit.check({"client": client})
    assert not allowed(limit, "")
    assert max(map(len, limit._recent)) == 0


def test_metrics_need_a_key_unless_they_are_public(serving, store):
    create_key(store, ["admin"], "", 0)
    assert serving()("GET", "/metrics").status_code == 401
    assert serving(Config(public_metrics=True))("GET", "/metrics").status_code == 200
