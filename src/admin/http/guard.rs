//! Who may ask what of the HTTP port.
//!
//! *Owns* [`Guard`]: the names by which this port may be asked, and the token of those who are not on this machine.
//! *Invariants*: what shows names or data of znodes is answered to clients of this machine alone, or to those
//! who have the token or a certificate that is trusted; a page of another site, or of a name that its owner
//! lets stand for this machine, learns nothing; figures and health checks are open to all. *Never* remembers a
//! token: its file is read each time, so a new one counts at once.

use std::fs;
use std::hint::black_box;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN, WWW_AUTHENTICATE};
use sha1::{Digest as _, Sha1};

/// Shortest token, bytes: what can be guessed is none.
const TOKEN_BYTES_MIN: usize = 16;
/// Longest file with one, bytes.
const FILE_BYTES_MAX: u64 = 4096;

/// In every request that changes something.
const CHANGE_HEADER: &str = "x-lockkeeper-change";

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// Hosts by which the port may be asked, beside addresses and `localhost`; `*`: any.
    pub hosts: Vec<String>,
    /// The file with the token; `None`: there is none.
    pub token_file: Option<PathBuf>,
    /// Whether the console may not browse the tree.
    pub hides_tree: bool,
    /// Whether `/commands/snapshot` is switched off.
    pub hides_snapshot: bool,
    /// The digest id of the super user, if there is one.
    pub super_digest: Option<String>,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::admin) enum Asks {
    /// Figures, or whether the server is well.
    Figures,
    /// What ZooKeeper's commands show, or the page without what it shows.
    Commands,
    /// Names and data of znodes.
    Znodes,
    /// All data, those too that access control lists keep from others, and passwords of sessions.
    Everything,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::admin) struct Asker {
    /// From where.
    pub(in crate::admin) remote: IpAddr,
    /// Whether with a certificate that is trusted, which counts as much as the token.
    pub(in crate::admin) is_proven: bool,
}

/// Why a request is not answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    /// For people.
    pub(super) words: String,
    /// A header that says how to be let in.
    pub(super) challenge: Option<(HeaderName, &'static str)>,
}

impl Refusal {
    fn forbidden(words: impl Into<String>) -> Self {
        Self { status: StatusCode::FORBIDDEN, words: words.into(), challenge: None }
    }
}

impl Guard {
    /// Judges a request with these headers.
    ///
    /// # Errors
    /// What it is answered with.
    pub(super) fn judge(
        &self,
        asks: Asks,
        headers: &HeaderMap,
        asker: Asker,
    ) -> Result<(), Refusal> {
        if asks == Asks::Figures {
            return Ok(());
        }
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or(""));
        let host = text(HOST);
        if let Some(host) = host.filter(|host| !self.may_be_asked_as(host)) {
            return Err(Refusal::forbidden(format!(
                "this server is not asked as `{}`: name it in lockkeeper.adminHosts, or ask by its address",
                name_of(host).escape_debug()
            )));
        }
        let is_own = |origin: &str| {
            let site = origin.split_once("://").map(|(_, site)| site);
            site.is_some() && site == host
        };
        if text(ORIGIN).is_some_and(|origin| !is_own(origin)) {
            return Err(Refusal::forbidden("pages of other sites may not ask this server"));
        }
        let is_open_here = asks != Asks::Everything && asker.remote.is_loopback();
        if matches!(asks, Asks::Znodes | Asks::Everything) && !is_open_here && !asker.is_proven {
            return self.check_token(asks, text(AUTHORIZATION));
        }
        Ok(())
    }

    /// Whether who asks has proved to be an operator: by the token, or by a certificate.
    pub(in crate::admin) fn has_proof(&self, headers: &HeaderMap, asker: Asker) -> bool {
        let given = headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap_or(""));
        asker.is_proven || given.is_some() && self.check_token(Asks::Znodes, given).is_ok()
    }

    /// Judges a request that changes something, after [`Guard::judge`] has let it pass: it must come from a
    /// page of this server or from a program, and have the token if there is one, wherever it comes from.
    ///
    /// # Errors
    /// What it is answered with.
    pub(super) fn judge_change(&self, headers: &HeaderMap, asker: Asker) -> Result<(), Refusal> {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or(""));
        // Pages of other sites cannot send it without asking first, and are not answered.
        if text(CHANGE_HEADER) != Some("yes") {
            let words = format!("a request that changes something says `{CHANGE_HEADER}: yes`");
            return Err(Refusal::forbidden(words));
        }
        if text("sec-fetch-site").is_some_and(|site| site != "same-origin") {
            return Err(Refusal::forbidden("pages of other sites may not change anything here"));
        }
        if self.token_file.is_some() && !asker.is_proven {
            return self.check_token(Asks::Znodes, text(AUTHORIZATION.as_str()));
        }
        Ok(())
    }

    /// Judges who asks for ZooKeeper's snapshot, as `Authorization: SCHEME CREDENTIAL` says it there. There, who has
    /// all permissions on the root gets it, which by default is everyone; here, the super user, and who has the token
    /// or a certificate.
    ///
    /// # Errors
    /// Status and words, as there.
    pub(in crate::admin) fn judge_snapshot(
        &self,
        headers: &HeaderMap,
        asker: Asker,
    ) -> Result<(), (StatusCode, &'static str)> {
        if asker.is_proven {
            return Ok(());
        }
        let not_authenticated = (StatusCode::UNAUTHORIZED, "Not authenticated");
        let not_authorized = (StatusCode::FORBIDDEN, "Not authorized");
        let Some(given) = headers.get(AUTHORIZATION) else {
            return Err((StatusCode::UNAUTHORIZED, "Auth info is missing for the command"));
        };
        let given = given.to_str().unwrap_or("");
        match given.split_once(' ').unwrap_or((given, "")) {
            ("Bearer", _) => {
                self.check_token(Asks::Everything, Some(given)).map_err(|_| not_authenticated)
            }
            ("digest", credential) if credential.is_empty() || credential.contains(' ') => {
                Err(not_authenticated)
            }
            ("digest", credential) => match &self.super_digest {
                Some(id) if equals(id.as_bytes(), digest_id(credential).as_bytes()) => Ok(()),
                Some(_) | None => Err(not_authorized),
            },
            ("ip" | "x509", "") => Err(not_authorized),
            _ => Err(not_authenticated),
        }
    }

    fn check_token(&self, asks: Asks, given: Option<&str>) -> Result<(), Refusal> {
        let Some(file) = &self.token_file else {
            return Err(Refusal::forbidden(match asks {
                Asks::Everything => {
                    "a backup holds everything, also what access control lists keep from others: it is given \
                 to those who have the token of lockkeeper.adminTokenFile, which is not configured, or a certificate \
                 (admin.needClientAuth)"
                }
                Asks::Figures | Asks::Commands | Asks::Znodes => {
                    "names and data of znodes are shown to clients of this machine; to others with the token of \
                 lockkeeper.adminTokenFile, which is not configured, or with a certificate (admin.needClientAuth)"
                }
            }));
        };
        let token = read_token(file).map_err(|reason| Refusal {
            status: StatusCode::SERVICE_UNAVAILABLE,
            words: format!("{}: {reason}", file.display()),
            challenge: None,
        })?;
        let given = given.and_then(|header| header.strip_prefix("Bearer ")).unwrap_or("");
        match equals(given.trim().as_bytes(), token.as_bytes()) {
            true => Ok(()),
            false => Err(Refusal {
                status: StatusCode::UNAUTHORIZED,
                words: "the token of this server is needed: Authorization: Bearer ...".to_owned(),
                challenge: Some((WWW_AUTHENTICATE, "Bearer")),
            }),
        }
    }

    fn may_be_asked_as(&self, host: &str) -> bool {
        let name = name_of(host);
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        address.unwrap_or(name).parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|known| known == "*" || known.eq_ignore_ascii_case(name))
    }
}

/// The id of `user:password` in access control lists.
fn digest_id(credential: &str) -> String {
    let user = credential.split(':').next().unwrap_or_default();
    format!("{user}:{}", STANDARD.encode(Sha1::digest(credential.as_bytes())))
}

/// A host without its port.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// The token in a file: its text without blanks around it.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read_token(file: &Path) -> Result<String, String> {
    let read = || -> io::Result<String> {
        if fs::metadata(file)?.len() > FILE_BYTES_MAX {
            return Err(io::Error::other(format!("is longer than {FILE_BYTES_MAX} bytes")));
        }
        fs::read_to_string(file)
    };
    let text = read().map_err(|error| error.to_string())?;
    let token = text.trim();
    if token.len() < TOKEN_BYTES_MIN || token.contains(char::is_whitespace) {
        return Err(format!("holds no token: one word of at least {TOKEN_BYTES_MIN} characters"));
    }
    Ok(token.to_owned())
}

/// In a time that does not depend on where two texts of one length differ.
fn equals(left: &[u8], right: &[u8]) -> bool {
    let differences =
        left.iter().zip(right).fold(0, |all, (left, right)| black_box(all | (left ^ right)));
    left.len() == right.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn judged(guard: &Guard, asks: Asks, headers: &[(HeaderName, &str)], remote: IpAddr) -> u16 {
        answer(guard, asks, headers, Asker { remote, is_proven: false })
    }

    fn answer(guard: &Guard, asks: Asks, headers: &[(HeaderName, &str)], asker: Asker) -> u16 {
        let headers: HeaderMap =
            headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        guard.judge(asks, &headers, asker).map_or_else(|refusal| refusal.status.as_u16(), |()| 200)
    }

    #[test]
    fn the_port_is_asked_by_addresses_and_by_names_that_are_known() {
        let guard = Guard { hosts: vec!["zk1.example.org".into()], ..Guard::default() };
        for (host, status) in [
            ("127.0.0.1:8080", 200),
            ("10.1.2.3", 200),
            ("[::1]:8080", 200),
            ("[::1]", 200),
            ("localhost:8080", 200),
            ("ZK1.example.org:8080", 200),
            ("rebound.example.com:8080", 403),
            ("", 403),
        ] {
            assert_eq!(judged(&guard, Asks::Znodes, &[(HOST, host)], HERE), status, "{host}");
            assert_eq!(judged(&guard, Asks::Commands, &[(HOST, host)], HERE), status, "{host}");
            assert_eq!(judged(&guard, Asks::Figures, &[(HOST, host)], HERE), 200, "{host}");
        }
        assert_eq!(judged(&guard, Asks::Znodes, &[], HERE), 200, "HTTP/1.0 has none");
        let any = Guard { hosts: vec!["*".into()], ..Guard::default() };
        assert_eq!(judged(&any, Asks::Znodes, &[(HOST, "a.b")], HERE), 200);
    }

    #[test]
    fn a_page_of_another_site_is_refused() {
        let guard = Guard::default();
        for (origin, status) in [
            ("http://127.0.0.1:8080", 200),
            ("https://127.0.0.1:8080", 200),
            ("http://127.0.0.1:8081", 403),
            ("http://example.com", 403),
            ("null", 403),
        ] {
            let headers = [(HOST, "127.0.0.1:8080"), (ORIGIN, origin)];
            assert_eq!(judged(&guard, Asks::Commands, &headers, HERE), status, "{origin}");
        }
    }

    #[test]
    fn znodes_are_shown_to_this_machine_and_elsewhere_to_those_with_the_token() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        let guard = Guard { token_file: Some(file.clone()), ..Guard::default() };
        let with = |token: &str| {
            judged(&guard, Asks::Znodes, &[(AUTHORIZATION, &format!("Bearer {token}"))], ELSEWHERE)
        };
        assert_eq!(judged(&Guard::default(), Asks::Znodes, &[], HERE), 200);
        assert_eq!(judged(&Guard::default(), Asks::Znodes, &[], ELSEWHERE), 403);
        assert_eq!(judged(&Guard::default(), Asks::Commands, &[], ELSEWHERE), 200);
        assert_eq!(with("0123456789abcdef"), 503, "there is no file");
        fs::write(&file, "0123456789abcdef\n").unwrap();
        assert_eq!(with("0123456789abcdef"), 200);
        for wrong in ["", "0123456789abcdeF", "0123456789abcde", "0123456789abcdef0"] {
            assert_eq!(with(wrong), 401, "{wrong}");
        }
        assert_eq!(judged(&guard, Asks::Znodes, &[], ELSEWHERE), 401);
        fs::write(&file, "fedcba9876543210").unwrap();
        assert_eq!((with("0123456789abcdef"), with("fedcba9876543210")), (401, 200));
    }

    #[test]
    fn a_certificate_counts_as_the_token_and_lets_no_page_of_another_site_in() {
        let asker = Asker { remote: ELSEWHERE, is_proven: true };
        let guard = Guard::default();
        assert_eq!(answer(&guard, Asks::Znodes, &[], asker), 200);
        let page = [(HOST, "127.0.0.1:8080"), (ORIGIN, "https://example.com")];
        assert_eq!(answer(&guard, Asks::Znodes, &page, asker), 403);
        assert_eq!(answer(&guard, Asks::Znodes, &[(HOST, "rebound.example.com")], asker), 403);
    }

    #[test]
    fn a_snapshot_is_given_to_the_super_user_the_token_and_a_certificate() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        fs::write(&file, "0123456789abcdef").unwrap();
        let guard = Guard {
            token_file: Some(file),
            super_digest: Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=".into()),
            ..Guard::default()
        };
        let judged = |guard: &Guard, given: Option<&str>, is_proven| {
            let named = given.map(|given| (AUTHORIZATION, given.parse().unwrap()));
            let asker = Asker { remote: HERE, is_proven };
            let judged = guard.judge_snapshot(&named.into_iter().collect(), asker);
            judged.map_or_else(|(status, words)| (status.as_u16(), words), |()| (200, ""))
        };
        let not_authenticated = (401, "Not authenticated");
        let not_authorized = (403, "Not authorized");
        for (given, answer) in [
            (None, (401, "Auth info is missing for the command")),
            (Some("digest super:test"), (200, "")),
            (Some("digest super:tesT"), not_authorized),
            (Some("digest root:test"), not_authorized),
            (Some("digest"), not_authenticated),
            (Some("digest super:test x"), not_authenticated),
            (Some("ip"), not_authorized),
            (Some("nosuch super:test"), not_authenticated),
            (Some(""), not_authenticated),
            (Some("Bearer 0123456789abcdef"), (200, "")),
            (Some("Bearer 0123456789abcdeF"), not_authenticated),
        ] {
            assert_eq!(judged(&guard, given, false), answer, "{given:?}");
        }
        assert_eq!(judged(&Guard::default(), None, true), (200, ""));
        assert_eq!(judged(&Guard::default(), Some("digest super:test"), false), not_authorized);
        assert_eq!(judged(&Guard::default(), Some("Bearer x"), false), not_authenticated);
    }

    #[test]
    fn a_change_needs_its_header_no_other_site_and_the_token_if_there_is_one() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        fs::write(&file, "0123456789abcdef\n").unwrap();
        let open = Guard::default();
        let closed = Guard { token_file: Some(file), ..Guard::default() };
        let judged = |guard: &Guard, headers: &[(&'static str, &str)], is_proven| {
            let named = headers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
            let asker = Asker { remote: HERE, is_proven };
            let judged = guard.judge_change(&named.collect(), asker);
            judged.map_or_else(|refusal| refusal.status.as_u16(), |()| 200)
        };
        let change = ("x-lockkeeper-change", "yes");
        let token = ("authorization", "Bearer 0123456789abcdef");
        assert_eq!(judged(&open, &[], false), 403);
        assert_eq!(judged(&open, &[change], false), 200);
        for site in ["cross-site", "same-site", "none"] {
            assert_eq!(judged(&open, &[change, ("sec-fetch-site", site)], false), 403, "{site}");
        }
        assert_eq!(judged(&open, &[change, ("sec-fetch-site", "same-origin")], false), 200);
        assert_eq!(judged(&closed, &[change], false), 401, "also on this machine");
        assert_eq!(judged(&closed, &[change, token], false), 200);
        assert_eq!(judged(&closed, &[change], true), 200);
        assert_eq!(judged(&closed, &[token], true), 403);
    }

    #[test]
    fn a_file_without_a_token_is_said_to_be_one() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        for text in ["", "short", "two words of many letters"] {
            fs::write(&file, text).unwrap();
            assert!(read_token(&file).unwrap_err().starts_with("holds no token"), "{text}");
        }
    }
}
