//! Access control.

use super::super::acl::{ACL_ENTRIES_MAX, digest_identities, digest_identity};
use super::*;
use crate::proto::Request;

fn user(name: &str) -> Identity {
    digest_identity(format!("{name}:p").as_bytes())
}

fn of(perms: i32, identity: &Identity) -> Acl {
    Acl { perms, scheme: identity.scheme.clone(), id: identity.id.clone() }
}

#[test]
fn digest_of_u_p_is_zookeepers() {
    let identity = digest_identity(b"u:p");
    assert_eq!(identity.scheme.as_str(), "digest");
    assert_eq!(identity.id.as_str(), "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ=");
    assert!(digest_identity(b"nocolon").id.as_str().starts_with("nocolon:"));
    assert!(digest_identity(b"a:b:c").id.as_str().starts_with("a:"));
    assert!(digest_identity(b"\xff:x").id.as_str().starts_with("\u{fffd}:"));
}

#[test]
fn the_configured_digest_is_super() {
    let mut options = Options {
        super_digest: Some("u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ=".to_owned()),
        ..Options::default()
    };
    let schemes = |auth: &[u8], options: &Options| -> Vec<String> {
        let identities = digest_identities(auth, options);
        identities.iter().map(|identity| identity.scheme.as_str().to_owned()).collect()
    };
    assert_eq!(schemes(b"u:p", &options), ["super", "digest"]);
    assert_eq!(schemes(b"u:q", &options), ["digest"]);
    options.rules.digest_auth = false;
    assert!(schemes(b"u:p", &options).is_empty());
}

#[test]
fn lists_that_zookeeper_refuses_are_invalid() {
    let mut f = Fixture::new();
    f.ids.push(Identity::ip("127.0.0.1"));
    let refused = [
        vec![],
        vec![acl(31, "world", "bob")],
        vec![acl(31, "nonsense", "x")],
        vec![acl(31, "", "")],
        vec![acl(31, "digest", "a")],
        vec![acl(31, "digest", "a:")],
        vec![acl(31, "digest", "a:b:c")],
        vec![acl(31, "ip", "1.2.3.4/33")],
        vec![acl(31, "ip", "localhost")],
        vec![acl(31, "super", "")],
        vec![acl(31, "ensemble", "x")],
        vec![acl(31, "sasl", "bob")],
        vec![acl(31, "x509", "bob")],
        vec![acl(31, "auth", "")],
        vec![Acl::open(), acl(31, "world", "bob")],
    ];
    f.given(&["/a"]);
    for list in refused {
        let request = Create { acl: Some(list.clone()), ..create("/b", 0) };
        assert_eq!(f.request(&request), Err(ErrorCode::InvalidAcl), "{list:?}");
        assert_eq!(f.set_acl("/a", &list, -1), Err(ErrorCode::InvalidAcl));
    }
    let request = Create { acl: None, ..create("/b", 0) };
    assert_eq!(f.request(&request), Err(ErrorCode::InvalidAcl));
    for accepted in [
        acl(31, "digest", "a:b"),
        acl(31, "x509", "CN=bob"),
        acl(31, "digest", ":b"),
        acl(31, "digest", "a:b:"),
        acl(31, "ip", "::1"),
        acl(0, "world", "anyone"),
    ] {
        f.given(&["/b"]);
        f.set_acl("/b", &[accepted], -1).unwrap();
        f.delete("/b", -1).unwrap();
    }
}

#[test]
fn auth_expands_to_the_proved_identities_and_duplicates_go() {
    let mut f = Fixture::new();
    let (alice, bob) = (user("alice"), user("bob"));
    f.ids = vec![
        Identity::ip("127.0.0.1"),
        alice.clone(),
        Identity { scheme: Text::from("super"), id: Text::default() },
        bob.clone(),
    ];
    let list =
        vec![acl(3, "auth", "ignored"), acl(1, "world", "anyone"), acl(1, "world", "anyone")];
    f.request(&Create { acl: Some(list), ..create("/a", 0) }).unwrap();
    let (entries, _) = f.tree.get_acl(&f.ids, "/a").unwrap();
    assert_eq!(entries, [of(3, &alice), of(3, &bob), acl(1, "world", "anyone")]);
}

#[test]
fn higher_permission_bits_are_stored_untouched() {
    let mut f = Fixture::new();
    f.given(&["/a"]);
    f.set_acl("/a", &[acl(255, "world", "anyone")], -1).unwrap();
    assert_eq!(f.tree.get_acl(&[], "/a").unwrap().0, [acl(255, "world", "anyone")]);
}

#[test]
fn a_list_is_limited_once_it_is_expanded() {
    let mut f = Fixture::new();
    f.given(&["/a"]);
    f.ids = vec![user("alice"), user("bob")];
    let auths = |count: usize| -> Vec<Acl> {
        (0..count).map(|perms| acl(i32::try_from(perms).unwrap() * 32 + 31, "auth", "")).collect()
    };
    let half = ACL_ENTRIES_MAX / 2;
    assert_eq!(f.set_acl("/a", &auths(half + 1), -1), Err(ErrorCode::InvalidAcl));
    f.set_acl("/a", &auths(half), -1).unwrap();
}

#[test]
fn a_request_may_check_the_longest_list_as_often_as_it_holds_operations() {
    let mut f = Fixture::new();
    f.given(&["/a"]);
    let address =
        |number: usize| format!("10.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255);
    let networks = (0..ACL_ENTRIES_MAX / 2).map(|number| acl(1, "ip", &address(number)));
    let users =
        (0..ACL_ENTRIES_MAX / 2 - 1).map(|number| acl(1, "digest", &format!("u{number}:h")));
    let list: Vec<Acl> = networks.chain(users).chain([acl(2, "digest", "u7:h")]).collect();
    f.set_acl("/a", &list, -1).unwrap();
    let id = |scheme: &str, id: &str| Identity { scheme: scheme.into(), id: id.into() };
    let (stranger, known) = ([id("ip", "11.0.0.1"), id("digest", "u7:g")], [id("digest", "u7:h")]);
    // Walking through the list would take minutes.
    for _ in 0..50_000 {
        assert_eq!(f.tree.exists(&stranger, "/a"), Err(ErrorCode::NoAuth));
        assert!(f.tree.exists(&known, "/a").is_ok());
    }

    f.ids = known.to_vec();
    f.set("/a", "x", -1).expect("both entries of one id count");
}

#[test]
fn create_and_delete_permission_are_those_of_the_parent() {
    let mut f = Fixture::new();
    f.given(&["/p", "/p/c"]);
    f.set_acl("/p/c", &[acl(16, "world", "anyone")], -1).unwrap();
    f.set_acl("/p", &[acl(31 & !8, "world", "anyone")], -1).unwrap();
    assert_eq!(f.delete("/p/c", -1), Err(ErrorCode::NoAuth));
    assert_eq!(f.delete("/p/nope", -1), Err(ErrorCode::NoAuth), "before the znode is looked for");
    f.set_acl("/p", &[acl(31 & !4, "world", "anyone")], -1).unwrap();
    assert_eq!(f.create("/p/d", 0), Err(ErrorCode::NoAuth));
    f.delete("/p/c", -1).unwrap();
}

#[test]
fn every_read_needs_its_permission() {
    let mut f = Fixture::new();
    f.given(&["/a"]);
    f.set_acl("/a", &[acl(31 & !1, "world", "anyone")], -1).unwrap();
    assert_eq!(f.tree.exists(&[], "/a"), Err(ErrorCode::NoAuth));
    assert_eq!(f.tree.get_data(&[], "/a").err(), Some(ErrorCode::NoAuth));
    assert_eq!(f.tree.children(&[], "/a").err(), Some(ErrorCode::NoAuth));
    assert_eq!(f.tree.all_children_number(&[], "/a").err(), Some(ErrorCode::NoAuth));
    assert!(f.tree.get_acl(&[], "/a").is_ok(), "ADMIN is enough");
    f.set_acl("/a", &[acl(1, "world", "anyone")], -1).unwrap();
    assert!(f.tree.get_acl(&[], "/a").is_ok(), "READ is enough");
    assert_eq!(f.set("/a", "x", 9), Err(ErrorCode::NoAuth));
    assert_eq!(f.set_acl("/a", &[Acl::open()], 9), Err(ErrorCode::NoAuth));
}

#[test]
fn get_acl_masks_digests_for_those_who_may_not_administer() {
    let mut f = Fixture::new();
    f.ids = vec![user("alice")];
    let list = vec![of(31, &user("alice")), acl(1, "world", "anyone"), acl(1, "ip", "::1")];
    f.request(&Create { acl: Some(list.clone()), ..create("/a", 0) }).unwrap();
    assert_eq!(f.tree.get_acl(&f.ids, "/a").unwrap().0, list);
    let masked = [acl(31, "digest", "alice:x"), acl(1, "world", "anyone"), acl(1, "ip", "::1")];
    assert_eq!(f.tree.get_acl(&[user("bob")], "/a").unwrap().0, masked);
}

#[test]
fn identities_match_by_scheme() {
    let mut f = Fixture::new();
    let alice = user("alice");
    let list = vec![of(1, &alice), acl(2, "ip", "10.0.0.0/8")];
    f.request(&Create { acl: Some(list), ..create("/a", 0) }).unwrap();
    let reads = |ids: &[Identity]| f.tree.exists(ids, "/a").is_ok();
    assert!(reads(std::slice::from_ref(&alice)));
    assert!(!reads(&[user("bob")]));
    assert!(!reads(&[Identity { scheme: Text::from("ip"), id: alice.id }]));
    assert!(!reads(&[Identity::ip("10.1.1.1")]), "may write, not read");
    assert!(reads(&[Identity { scheme: Text::from("super"), id: Text::default() }]));
    f.ids = vec![Identity::ip("10.1.1.1")];
    f.set("/a", "x", -1).unwrap();
    f.ids = vec![Identity::ip("11.1.1.1")];
    assert_eq!(f.set("/a", "x", -1), Err(ErrorCode::NoAuth));
}

#[test]
fn the_scheme_sasl_is_offered_by_the_server_of_the_connection() {
    let mut f = Fixture::new();
    f.given(&["/a"]);
    let list = vec![acl(31, "sasl", "bob")];
    let auth = vec![acl(31, "auth", "")];
    f.ids = vec![Identity::sasl("bob")];
    assert_eq!(f.set_acl("/a", &list, -1), Err(ErrorCode::InvalidAcl));
    assert_eq!(f.set_acl("/a", &auth, -1), Err(ErrorCode::InvalidAcl), "it proves nothing here");
    f.ids.push(Identity::offers_sasl());
    for wrong in ["a@b@c", "a/b/c@R"] {
        assert_eq!(f.set_acl("/a", &[acl(31, "sasl", wrong)], -1), Err(ErrorCode::InvalidAcl));
    }
    for mark in [Identity::offers_sasl(), Identity::any_sasl("bob")] {
        assert!(mark.is_mark());
        assert_eq!(f.set_acl("/a", &[of(31, &mark)], -1), Err(ErrorCode::InvalidAcl));
    }
    f.set_acl("/a", &auth, -1).unwrap();
    assert_eq!(f.tree.get_acl(&f.ids, "/a").unwrap().0, list);
    f.set_acl("/a", &[acl(1, "sasl", "bob/h@R"), acl(31, "sasl", "bob")], -1).unwrap();
}

#[test]
fn sasl_ids_match_exactly_and_super_matches_all_of_them() {
    let mut f = Fixture::new();
    f.ids = vec![Identity::offers_sasl(), Identity::sasl("bob")];
    let list = vec![acl(1, "sasl", "bob"), acl(2, "sasl", "carl"), acl(4, "digest", "bob:h")];
    f.request(&Create { acl: Some(list), ..create("/a", 0) }).unwrap();
    let mut may = |ids: &[Identity]| {
        f.ids = ids.to_vec();
        (
            f.tree.exists(ids, "/a").is_ok(),
            f.set("/a", "x", -1).is_ok(),
            f.create("/a/b", 0).is_ok(),
        )
    };
    assert_eq!(may(&[Identity::sasl("bob")]), (true, false, false));
    assert_eq!(may(&[Identity::sasl("carl")]), (false, true, false));
    assert_eq!(may(&[Identity::sasl("eve")]), (false, false, false));
    assert_eq!(may(&[Identity::sasl("super")]), (true, true, false), "of the scheme sasl alone");
    assert_eq!(may(&[Identity::sasl("eve"), Identity::any_sasl("bob")]), (true, false, false));
    assert_eq!(may(&[Identity::offers_sasl()]), (false, false, false));
    assert_eq!(may(&[Identity::all_powerful()]), (true, true, true));
}

#[test]
fn skip_acl_skips_the_check_and_not_the_validation() {
    let rules = Rules { skip_acl: true, ..Rules::DEFAULT };
    let mut f = Fixture::with(Options { rules, ..Options::default() });
    f.given(&["/a"]);
    f.set_acl("/a", &[acl(0, "world", "anyone")], -1).unwrap();
    assert!(f.tree.exists(&[], "/a").is_ok());
    assert_eq!(f.set_acl("/a", &[], -1), Err(ErrorCode::InvalidAcl));
}

#[test]
fn set_acl_checks_syntax_then_list_then_znode_then_version() {
    let mut f = Fixture::new();
    f.given(&["/a"]);
    assert_eq!(f.set_acl("/a/", &[], 9), Err(ErrorCode::BadArguments));
    assert_eq!(f.set_acl("/b", &[], 9), Err(ErrorCode::InvalidAcl));
    assert_eq!(f.set_acl("/b", &[Acl::open()], 9), Err(ErrorCode::NoNode));
    assert_eq!(f.set_acl("/a", &[Acl::open()], 9), Err(ErrorCode::BadVersion));
    assert_eq!(f.set_acl("/a", &[Acl::open()], -2), Err(ErrorCode::BadVersion));
}

#[test]
fn eager_check_refuses_only_for_the_acl() {
    let mut f = Fixture::new();
    f.given(&["/p", "/p/c"]);
    f.set_acl("/p/c", &[acl(1, "world", "anyone")], -1).unwrap();
    f.set_acl("/p", &[acl(1, "world", "anyone")], -1).unwrap();
    let path = |path: &str| Text::from(path);
    let refused = [
        Request::Create(create("/p/x", 0)),
        Request::Delete { path: path("/p/c"), version: -1 },
        Request::SetData { path: path("/p/c"), data: None, version: -1 },
        Request::SetAcl { path: path("/p/c"), acl: None, version: -1 },
    ];
    for request in &refused {
        assert!(f.tree.acl_refuses(&[], request), "{request:?}");
    }
    let passed = [
        Request::Create(create("/x", 0)),
        Request::Create(create("noslash", 0)),
        Request::Delete { path: path("/zookeeper"), version: -1 },
        Request::Delete { path: path("/nope/x"), version: -1 },
        Request::SetData { path: path("/nope"), data: None, version: -1 },
        Request::Exists { path: path("/p/c"), watch: false },
    ];
    for request in &passed {
        assert!(!f.tree.acl_refuses(&[], request), "{request:?}");
    }
}

#[test]
fn events_carry_the_list_that_watchers_need() {
    let mut f = Fixture::new();
    f.given(&["/p"]);
    f.set_acl("/p", &[acl(29, "world", "anyone")], -1).unwrap();
    let list = vec![acl(17, "world", "anyone")];
    f.request(&Create { acl: Some(list), ..create("/p/c", 0) }).unwrap();
    f.delete("/p/c", -1).unwrap();
    let perms: Vec<i32> = f.events.iter().map(|event| event.acl.world_perms()).collect();
    assert_eq!(perms, [17, 29, 17, 29]);
}

#[test]
fn equal_lists_are_shared_and_forgotten_after_the_last_use() {
    let mut f = Fixture::new();
    let list = |perms| Some(vec![acl(perms, "world", "anyone")]);
    let at_first = f.tree.acls.len();
    f.request(&Create { acl: list(31 + 32), ..create("/a", 0) }).unwrap();
    f.request(&Create { acl: list(31 + 32), ..create("/a/b", 0) }).unwrap();
    f.request(&Create { acl: list(31 + 64), ..create("/c", 0) }).unwrap();
    assert_eq!(f.tree.acls.len(), at_first + 2);
    f.delete("/c", -1).unwrap();
    f.set_acl("/a", &[Acl::open()], -1).unwrap();
    assert_eq!(f.tree.acls.len(), at_first + 1);
    f.delete("/a/b", -1).unwrap();
    assert_eq!(f.tree.acls.len(), at_first);
}
