"""Rules of the protocol that show only where there are several servers, each one a case with a name."""

import re
import struct
import time

from suites.common import say
from wire import CREATE, OPEN_ACL, SET_DATA, Client, Expired, Lost, Refused, Session, blob, four_letter_word, text

# How long a follower may be behind.
BEHIND_SECONDS_MAX = 2.0


def connect(ensemble, i, session=None, **options):
    """As a client does it, which tries again: a server that has not yet what the client has seen does not take it."""
    deadline = time.monotonic() + BEHIND_SECONDS_MAX
    while True:
        try:
            return Client(*ensemble.address(i), session or Session(), **options)
        except Lost:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def moved_session_is_closed_without_a_reply(ensemble):
    """Edge case 18, with every pair of servers, so that the leader is on either side once."""
    for old in ensemble.ids:
        new = old % len(ensemble.ids) + 1
        session = Session()
        first = connect(ensemble, old, session)
        node = first.create("/moved-", b"", 2)
        copy = Session()
        copy.id, copy.password, copy.zxid = session.id, session.password, session.zxid
        second = connect(ensemble, new, copy)
        second.set(node, b"new")
        try:
            first.set(node, b"old")
            raise AssertionError(f"server {old} wrote for a session that has moved to server {new}")
        except Lost:
            pass
        assert second.get(node)[0] == b"new", "the write of the old connection was carried out"
        second.end_session()


def wrong_password_is_refused_everywhere(ensemble):
    session = Session()
    first = connect(ensemble, 1, session)
    for i in ensemble.ids:
        wrong = Session()
        wrong.id, wrong.password = session.id, b"x" * 16
        try:
            connect(ensemble, i, wrong)
            raise AssertionError(f"server {i} takes any password")
        except Expired:
            pass
    # ZooKeeper closes the connection that it has for the session before it looks at the password; the session lives.
    first.close()
    connect(ensemble, 1, session).end_session()


def zxids_never_go_back_across_servers(ensemble):
    """Edge case 21: the client fails if a reply's zxid is below one before, on whatever server."""
    session = Session()
    client = connect(ensemble, 1, session)
    node = client.create("/forward-", b"0", 2)
    for number in range(60):
        i = number % len(ensemble.ids) + 1
        client.close()
        client = connect(ensemble, i, session)
        data = client.get(node)[0]
        assert int(data) == number, f"server {i} shows {data} to a client that wrote {number}"
        client.set(node, str(number + 1).encode())
    client.end_session()


def client_from_the_future_is_refused(ensemble):
    """Edge case 21: a server that is behind what the client has seen does not take it."""
    for i in ensemble.ids:
        ahead = Session()
        ahead.zxid = ensemble.zxid(i) + (1 << 32)
        try:
            Client(*ensemble.address(i), ahead, 5)
            raise AssertionError(f"server {i} takes a client that has seen {ahead.zxid:#x}")
        except Lost as lost:
            assert "timed out" not in str(lost), f"server {i} does not close it"


def sync_shows_what_others_wrote(ensemble):
    """What was acknowledged anywhere is seen everywhere after a sync."""
    clients = {i: connect(ensemble, i) for i in ensemble.ids}
    node = clients[1].create("/synced-", b"", 2)
    for number in range(150):
        writer = clients[number % 3 + 1]
        reader = clients[(number + 1) % 3 + 1]
        writer.set(node, str(number).encode())
        reader.sync(node)
        data = reader.get(node)[0]
        assert data == str(number).encode(), f"{data} after {number} was acknowledged and a sync"
    for client in clients.values():
        client.end_session()


def pipelined_writes_of_a_session_keep_their_order(ensemble):
    for i in ensemble.ids:
        client = connect(ensemble, i)
        parent = client.create("/fifo-", b"", 2)
        requests = [client.request(CREATE, text(f"{parent}/n-") + blob(b"%d" % n) + OPEN_ACL + struct.pack(">i", 2))
                    for n in range(300)]
        names = [client.reply(xid)[4:].decode() for xid in requests]
        assert names == sorted(names) and len(set(names)) == 300, f"server {i} changes the order"
        # A read behind writes sees them, on whichever server.
        writes = [client.request(SET_DATA, text(parent) + blob(b"%d" % n) + struct.pack(">i", -1)) for n in range(50)]
        read = client.request(4, text(parent) + b"\0")
        for xid in writes:
            client.reply(xid)
        body = client.reply(read)
        assert body[4:6] == b"49", f"server {i}: a read behind its own writes shows {body[:8]}"
        client.end_session()


def session_ends_everywhere_at_once(ensemble):
    owner = connect(ensemble, 1)
    node = owner.create("/mine-", b"", 1 | 2)
    others = {i: connect(ensemble, i) for i in ensemble.ids}
    for other in others.values():
        other.sync(node)
        assert other.exists(node), "an ephemeral is not seen"
    owner.end_session()
    for i, other in others.items():
        other.sync(node)
        assert other.exists(node) is None, f"server {i} keeps the ephemeral of a closed session"
        other.end_session()


def reads_through_a_follower_keep_a_session_alive(ensemble):
    """Pings and reads alone, to a server that does not expire sessions, for two and a half timeouts."""
    leader = ensemble.wait_for_leader()
    follower = next(i for i in ensemble.ids if i != leader)
    client = connect(ensemble, follower, Session(4000))
    node = client.create("/alive-", b"", 1 | 2)
    end = time.monotonic() + 2.5 * client.session.timeout_ms / 1000
    while time.monotonic() < end:
        client.get("/zookeeper")
        time.sleep(client.session.timeout_ms / 3000)
    client.sync(node)
    assert client.exists(node), "the session has ended"
    client.end_session()


def words_and_config_are_what_tools_parse(ensemble):
    """Edge case 60."""
    leader = ensemble.wait_for_leader()
    for i in ensemble.ids:
        srvr = ensemble.srvr(i)
        assert re.search(r"^Mode: (leader|follower)$", srvr, re.MULTILINE), srvr
        assert re.search(r"^Zxid: 0x[0-9a-f]+$", srvr, re.MULTILINE), srvr
        figures = ensemble.figures(i)
        assert figures["zk_server_state"] == ("leader" if i == leader else "follower"), figures["zk_server_state"]
        assert int(figures["zk_znode_count"]) > 0
        assert ("zk_synced_followers" in figures) == (i == leader), f"zk_synced_followers on server {i}"
        client = connect(ensemble, i)
        lines = client.get("/zookeeper/config")[0].decode().split("\n")
        client.end_session()
        for j in ensemble.ids:
            pattern = rf"server\.{j}=10\.77\.1\.{j}:2888:3888:participant(;0\.0\.0\.0:2181)?"
            assert any(re.fullmatch(pattern, line) for line in lines), lines
        assert re.fullmatch(r"version=[0-9a-f]+", lines[-1]), lines
        assert four_letter_word(*ensemble.address(i), "isro") == "rw"
    assert int(ensemble.figures(leader)["zk_synced_followers"].split(".")[0]) == len(ensemble.ids) - 1


CASES = [moved_session_is_closed_without_a_reply, wrong_password_is_refused_everywhere, zxids_never_go_back_across_servers,
         client_from_the_future_is_refused, sync_shows_what_others_wrote, pipelined_writes_of_a_session_keep_their_order,
         session_ends_everywhere_at_once, reads_through_a_follower_keep_a_session_alive,
         words_and_config_are_what_tools_parse]


def run(ensemble, chosen):
    ensemble.start_all()
    ensemble.wait_until_all_synced()
    wrong = []
    for case in CASES:
        name = case.__name__.replace("_", " ")
        start = time.monotonic()
        try:
            case(ensemble)
            say(f"   {name}: passed, {time.monotonic() - start:.1f} s")
        except (AssertionError, OSError, Refused, Expired, KeyError, ValueError) as error:
            say(f"   {name}: FAILED: {type(error).__name__}: {error}")
            wrong.append(name)
    assert not wrong, f"{len(wrong)} of {len(CASES)}: {', '.join(wrong)}"
    return []
