//! An ensemble whose links go through TLS: whose certificates count, what is told to those whose do not, and how a
//! running ensemble begins with it and changes its authority.

use std::fs;

use crate::peer_security::secret::{attack, causes_elections, exchange};
use testkit::authority::{Authority, Owner, Validity, put};
use testkit::rng::Rng;
use testkit::three::{CLIENT_PORT, PEER_PORT, Three};
use testkit::{Client, fresh, wait_until};

const STORES: &str = "ssl.quorum.keyStore.location=DIRECTORY/keyOWN.pem\n\
                      ssl.quorum.trustStore.location=DIRECTORY/trustOWN.pem\n";
const ON: &str = "sslQuorum=true\n";

/// The keys of a server with TLS between servers, and these besides.
fn tls(keys: &str) -> String {
    format!("{STORES}{keys}")
}

/// Three servers, each with a certificate of the authority for its own address.
fn three(authority: &Authority) -> Three {
    let three = Three::new();
    for id in 1..=3 {
        give(&three, id, &authority.issue_for(&[&three.host(id)]));
        trust(&three, id, &[authority]);
    }
    three
}

fn give(three: &Three, id: u8, owner: &Owner) {
    put(three.path(), &format!("key{id}.pem"), &owner.pem());
}

fn trust(three: &Three, id: u8, authorities: &[&Authority]) {
    let text: String = authorities.iter().map(|authority| authority.pem()).collect();
    put(three.path(), &format!("trust{id}.pem"), &text);
}

/// Restarts a server with these keys, beside a session that must last: it is another server's meanwhile.
async fn roll(three: &mut Three, mut client: Client, id: u8, keys: &str) -> Client {
    let other = three.address(id % 3 + 1, CLIENT_PORT);
    client = Client::open(other, &client.again()).await.unwrap();
    three.start(id, keys).await;
    three.serve(&[1, 2, 3]).await;
    client.ping().await;
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_ensemble_turns_tls_on_in_three_restarts_and_takes_a_new_authority() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let mut three = three(&old);
    for id in 1..=3 {
        three.start(id, "").await;
    }
    three.serve(&[1, 2, 3]).await;
    // A restart may take long on a busy machine, and nothing is sent meanwhile.
    let mut client = Client::open(three.address(1, CLIENT_PORT), &fresh(40_000)).await.unwrap();
    client.create("/held", b"", 1).await.unwrap();
    for keys in ["portUnification=true\n", "sslQuorum=true\nportUnification=true\n", ON] {
        for id in 1..=3 {
            client = roll(&mut three, client, id, &tls(keys)).await;
        }
    }
    // A new authority: first it is trusted everywhere, then it vouches, and then the old one is trusted no longer.
    for id in 1..=3 {
        trust(&three, id, &[&old, &new]);
        client = roll(&mut three, client, id, &tls(ON)).await;
    }
    for id in 1..=3 {
        give(&three, id, &new.issue_for(&[&three.host(id)]));
        client = roll(&mut three, client, id, &tls(ON)).await;
    }
    for id in 1..=3 {
        trust(&three, id, &[&new]);
        client = roll(&mut three, client, id, &tls(ON)).await;
    }
    assert!(client.exists("/held").await, "the session lasted");
    for id in 1..=3 {
        assert!(three.log(id).contains("portUnification is true"), "{}", three.log(id));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_certificate_is_shown_on_new_links_without_a_restart() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let mut three = three(&old);
    for id in 1..=3 {
        trust(&three, id, &[&old, &new]);
        three.start(id, &tls(ON)).await;
    }
    three.serve(&[1, 2, 3]).await;
    for id in 1..=3 {
        give(&three, id, &new.issue_for(&[&three.host(id)]));
        trust(&three, id, &[&new]);
        three.says(id, "by the new keys and certificates").await;
    }
    // Its links are new, and go by what is new alone.
    three.start(2, &tls(ON)).await;
    three.serve(&[1, 2, 3]).await;
    // One that cannot be read is said, and changes nothing.
    put(three.path(), "key1.pem", "half of one");
    three.says(1, "those before stay in use").await;
    assert_eq!(three.metric(1, r#"lockkeeper_certificate_outdated{key="servers"}"#).await, 1);
    three.start(3, &tls(ON)).await;
    three.serve(&[1, 2, 3]).await;
}

/// Starts servers 1 and 2 with TLS, and a third one with these keys: it gets no link, and both sides say why.
async fn is_kept_out(three: &mut Three, keys: &str, own: &str, others: &str) {
    for id in 1..=2 {
        three.start(id, &tls(ON)).await;
    }
    three.found_without(1, 3).await;
    three.serve(&[1, 2]).await;
    three.start(3, keys).await;
    three.says(3, own).await;
    three.says(1, others).await;
    assert_eq!(three.mode(3).await, "", "it serves no client");
    assert!(three.log(1).lines().count() < 100, "{}", three.log(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_authority_is_none() {
    let (ours, other) = (Authority::new("ours"), Authority::new("theirs"));
    let mut three = three(&ours);
    give(&three, 3, &other.issue_for(&[&three.host(3)]));
    // It trusts the others: they do not trust it, from either end.
    is_kept_out(&mut three, &tls(ON), "received fatal alert: UnknownCA", "UnknownIssuer").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_past_is_none() {
    let ours = Authority::new("ours");
    let mut three = three(&ours);
    give(&three, 3, &ours.issue_valid(&three.host(3), Validity::Past));
    is_kept_out(
        &mut three,
        &tls(ON),
        "received fatal alert: CertificateExpired",
        "certificate expired",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_member_makes_no_member() {
    let ours = Authority::new("ours");
    let mut three = three(&ours);
    // That of server 2, at the place of server 3.
    give(&three, 3, &ours.issue_for(&[&three.host(2)]));
    let words = format!("names none of {}", three.host(3));
    is_kept_out(&mut three, &tls(ON), &words, &words).await;
    // Where names count for nothing, it is as good as any: that is said.
    let keys = tls("sslQuorum=true\nssl.quorum.hostnameVerification=false\n");
    for id in 1..=3 {
        three.start(id, &keys).await;
    }
    three.serve(&[1, 2, 3]).await;
    three.says(1, "hostnameVerification is false").await;
    // A name that is allowed is as good as the own one.
    let shared = ours.issue_for(&["zookeeper.example"]);
    let keys = tls("sslQuorum=true\nlockkeeper.ssl.quorum.allowedNames=zookeeper.example\n");
    for id in 1..=3 {
        give(&three, id, &shared);
        three.stop(id);
    }
    for id in 1..=3 {
        three.start(id, &keys).await;
    }
    three.serve(&[1, 2, 3]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_gets_no_link_and_is_told_why() {
    let mut three = three(&Authority::new("ours"));
    let words = "it goes without TLS, which server";
    is_kept_out(&mut three, "", words, words).await;
    three.says(3, "it begins TLS, which is not offered here").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_certificate_is_none_from_either_end() {
    let ours = Authority::new("ours");
    let mut three = three(&ours);
    let revoked = ours.issue_for(&[&three.host(3)]);
    give(&three, 3, &revoked);
    fs::write(three.path().join("revoked.pem"), ours.revokes(&[&revoked])).unwrap();
    let list = "lockkeeper.ssl.quorum.crlFile=DIRECTORY/revoked.pem\n";
    for id in 1..=2 {
        three.start(id, &tls(&format!("{ON}{list}"))).await;
    }
    three.found_without(1, 3).await;
    three.serve(&[1, 2]).await;
    three.start(3, &tls(ON)).await;
    // As a client, and as a server.
    three.says(1, "refused a connection from").await;
    three.says(1, "no link through TLS to server 3").await;
    wait_until("revoked", async || three.log(1).matches("Revoked").count() >= 2).await;
    assert_eq!(three.mode(3).await, "", "it serves no client");
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_about_locks_go_through_tls_with_a_secret_inside_it() {
    let ours = Authority::new("ours");
    let mut three = Three::with_secret();
    for id in 1..=3 {
        give(&three, id, &ours.issue_for(&[&three.host(id)]));
        trust(&three, id, &[&ours]);
    }
    let keys =
        tls("sslQuorum=true\nlockkeeper.peerSecurity=required\nlockkeeper.peerSecretFile=SECRET\n");
    for id in 1..=3 {
        three.start(id, &keys).await;
    }
    three.serve(&[1, 2, 3]).await;
    let mut client = Client::open(three.address(1, CLIENT_PORT), &fresh(10_000)).await.unwrap();
    client.create("/held", b"", 1).await.unwrap();
    // Each server answers for its own sessions.
    let answer = three.admin(1, "/sessions").await;
    assert_eq!(answer.matches(r#""answered": true"#).count(), 3, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_changed_hellos_and_records_get_through_to_nothing_where_there_is_tls() {
    let ours = Authority::new("ours");
    let mut three = three(&ours);
    for id in 1..=3 {
        three.start(id, &tls(ON)).await;
    }
    three.serve(&[1, 2, 3]).await;
    let elects = causes_elections(&three, async || {
        let before = three.log(1).lines().count();
        assert_eq!(attack(&three, 10_000).await, 0, "a hello was accepted");
        let mut random = Rng::new(12, 0);
        for _ in 0..2000 {
            let length = random.index(300);
            let record = [&[0x16, 3, 1, 0][..], &random.bytes(length)].concat();
            exchange(three.address(1, PEER_PORT), &record).await.expect("it listens");
        }
        let lines = three.log(1).lines().count() - before;
        assert!(lines < 400, "{lines} lines");
    });
    assert!(!elects.await, "an election was caused");
    three.serve(&[1, 2, 3]).await;
}
