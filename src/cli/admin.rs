//! A client of the servers' HTTP ports, for commands that show something.
//!
//! *Owns* one question at a time: a GET, and its answer as JSON; or a POST, which changes something. *Invariants*:
//! nothing waits for ever; an answer is bounded; what is no answer of a lockkeeper server is said so. *Never* sends a
//! POST twice to a server.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::{self, Port};
use super::exit::{EXIT_NOT_NOW, EXIT_UNAVAILABLE};
use super::flags::AdminAccess;
use super::output::Failure;
use crate::config::HostPort;
use crate::tls::{ClientLine, Session};

/// Another server has to be asked.
const MISDIRECTED: u16 = 421;
/// Longest answer, bytes.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdminError {
    /// No server could be asked: each with the reason.
    #[error("no server answers: {}", .0.join("; "))]
    Unreachable(Vec<String>),
    /// A server has answered something else.
    #[error("{server}: {reason}")]
    Refused {
        /// Who.
        server: HostPort,
        /// What.
        reason: String,
    },
}

/// The end of a command that has asked in vain.
pub(super) fn failed(error: &AdminError) -> Failure {
    Failure::new(EXIT_UNAVAILABLE, format!("{error}; --admin host:port,... names others"))
}

/// The status and the text that one of these servers answers to a GET of `target`, whatever they are.
///
/// # Errors
/// None can be asked.
pub(super) fn fetch(access: &AdminAccess, target: &str) -> Result<(u16, String), AdminError> {
    first_answer(access, ("GET", target), |_| true)
}

/// The same of a POST, by the server that does not send the question on to another one. One that was asked and does not
/// answer is the last that is asked: it may do it yet.
///
/// # Errors
/// None can be asked, or one does not answer.
pub(super) fn change(access: &AdminAccess, target: &str) -> Result<(u16, String), AdminError> {
    let is_last = |server: &HostPort| access.servers.last() == Some(server);
    first_answer(access, ("POST", target), |(server, status)| {
        status != MISDIRECTED || is_last(server)
    })
}

/// Asks for a change at the HTTP port of a server. `refused`: in front of the reasons of a server that does not do it.
///
/// # Errors
/// No clear yes.
pub(super) fn posted(
    access: &AdminAccess,
    path: &str,
    query: &str,
    refused: &str,
) -> Result<Value, Failure> {
    let asked = change(access, &format!("{path}{query}"));
    let (status, text) = asked.map_err(|error| failed(&error))?;
    let reasons = text.trim_end().replace('\n', "\n  ");
    match (status, serde_json::from_str::<Value>(&text)) {
        (200, Ok(json)) => Ok(json),
        (404, _) => Err(Failure::refused(format!(
            "the server does not know {path}: it is no lockkeeper server, or an older one"
        ))),
        (409, _) => Err(Failure::refused(format!("{refused}\n  {reasons}"))),
        (421, _) => {
            Err(Failure::refused(format!("{reasons}; --admin host:port,... names all servers")))
        }
        (503, _) => Err(Failure::new(EXIT_NOT_NOW, reasons)),
        (_, _) => Err(Failure::refused(reasons)),
    }
}

fn first_answer(
    access: &AdminAccess,
    question: (&str, &str),
    is_one: impl Fn((&HostPort, u16)) -> bool,
) -> Result<(u16, String), AdminError> {
    let mut reasons = Vec::new();
    for server in &access.servers {
        let (reason, was_asked) = match exchange(server, question, access) {
            Ok(answer) => match parse(&answer) {
                Some((status, body)) if is_one((server, status)) => {
                    return Ok((status, body.to_owned()));
                }
                Some((_, body)) => (body.trim().to_owned(), false),
                None => (NO_SERVER.to_owned(), true),
            },
            Err(error) => {
                (client::why(&error, Port::Http, access.tls.is_some()), was_asked(&error))
            }
        };
        if question.0 == "POST" && was_asked {
            let reason = format!("{reason}; it may be done, or may yet be");
            return Err(AdminError::Refused { server: server.clone(), reason });
        }
        reasons.push(format!("{server}: {reason}"));
    }
    Err(AdminError::Unreachable(reasons))
}

/// Whether a server may have got the question.
fn was_asked(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Unanswered>())
}

/// A question was sent, and there is no answer to it.
#[derive(Debug, thiserror::Error)]
#[error("it was asked and gives no answer: {0}")]
struct Unanswered(io::Error);

impl Unanswered {
    fn error(error: io::Error) -> io::Error {
        io::Error::new(error.kind(), Self(error))
    }
}

/// The first answer of these servers to a GET of a path with one parameter.
///
/// # Errors
/// None can be asked, or one has answered with an error.
pub(super) fn ask(
    access: &AdminAccess,
    path: &str,
    parameter: Option<(&str, &str)>,
) -> Result<Value, AdminError> {
    let begun = Instant::now();
    loop {
        match ask_once(access, path, parameter) {
            Err(AdminError::Unreachable(_)) if begun.elapsed() < access.patience => {
                std::thread::sleep(client::ROUND_PAUSE);
            }
            answer => return answer,
        }
    }
}

fn ask_once(
    access: &AdminAccess,
    path: &str,
    parameter: Option<(&str, &str)>,
) -> Result<Value, AdminError> {
    let target = target(path, parameter);
    let mut reasons = Vec::new();
    for server in &access.servers {
        let answer = match exchange(server, ("GET", &target), access) {
            Ok(answer) => answer,
            Err(error) => {
                let reason = client::why(&error, Port::Http, access.tls.is_some());
                reasons.push(format!("{server}: {reason}"));
                continue;
            }
        };
        let refused = |reason: &str| AdminError::Refused {
            server: server.clone(),
            reason: reason.trim().to_owned(),
        };
        let (code, body) = parse(&answer).ok_or_else(|| refused(NO_SERVER))?;
        return match code {
            200 => serde_json::from_str(body).map_err(|_| refused(NO_SERVER)),
            // Another one may serve.
            503 => {
                reasons.push(format!("{server}: {}", body.trim()));
                continue;
            }
            404 => {
                Err(refused("it knows no such page: it is no lockkeeper server, or an older one"))
            }
            400 | 401 | 403 => Err(refused(body)),
            _ => Err(refused(&format!("it answers with HTTP status {code}"))),
        };
    }
    Err(AdminError::Unreachable(reasons))
}

/// An answer whose body is read as it comes.
pub(super) struct Download {
    /// Who answers.
    pub(super) server: HostPort,
    /// With which status.
    pub(super) status: u16,
    /// What follows the head.
    pub(super) body: Box<dyn Read>,
}

impl Download {
    /// The body as words: of an answer that says why not.
    pub(super) fn text(self) -> String {
        let mut text = Vec::new();
        // What of it has come will do.
        let _ = self.body.take(WORDS_BYTES_MAX).read_to_end(&mut text);
        String::from_utf8_lossy(&text).trim().to_owned()
    }
}

/// The answer to a GET of a path with one parameter by the first of these servers that can be asked and serves.
///
/// # Errors
/// None does.
pub(super) fn download(
    access: &AdminAccess,
    path: &str,
    parameter: Option<(&str, &str)>,
) -> Result<Download, AdminError> {
    let target = target(path, parameter);
    let mut reasons = Vec::new();
    for server in &access.servers {
        match begin_download(server, &target, access) {
            Ok(answer) if answer.status == 503 => {
                reasons.push(format!("{server}: {}", answer.text()));
            }
            Ok(answer) => return Ok(answer),
            Err(error) => {
                let reason = client::why(&error, Port::Http, access.tls.is_some());
                reasons.push(format!("{server}: {reason}"));
            }
        }
    }
    Err(AdminError::Unreachable(reasons))
}

/// By the first version of the protocol, the body ends with the connection: what is downloaded says itself whether
/// it is
/// whole.
fn begin_download(server: &HostPort, target: &str, access: &AdminAccess) -> io::Result<Download> {
    let patience = access.clone().waiting_for(DOWNLOAD_MAX).answer_max;
    let stream = send(server, ("GET", target), "1.0", access, patience)?;
    let mut body = BufReader::with_capacity(DOWNLOAD_BUFFER_BYTES, stream);
    let mut lines = Vec::new();
    while !lines.ends_with(b"\r\n\r\n") {
        let limit = HEAD_BYTES_MAX.saturating_sub(lines.len() as u64);
        if body.by_ref().take(limit).read_until(b'\n', &mut lines)? == 0 {
            return Err(io::Error::other(NO_SERVER));
        }
    }
    let status = String::from_utf8_lossy(&lines)
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.get(2..5)?.parse().ok())
        .ok_or_else(|| io::Error::other(NO_SERVER))?;
    Ok(Download { server: server.clone(), status, body: Box::new(body) })
}

/// Longest time without a byte of a download: the server makes it first, which it gives an hour.
const DOWNLOAD_MAX: Duration = Duration::from_secs(3660);
/// Bytes that are read at once.
const DOWNLOAD_BUFFER_BYTES: usize = 256 << 10;
/// Longest head of an answer, bytes.
const HEAD_BYTES_MAX: u64 = 64 << 10;
/// Longest words of an answer that says why not, bytes.
const WORDS_BYTES_MAX: u64 = 4 << 10;

fn target(path: &str, parameter: Option<(&str, &str)>) -> String {
    let query = parameter.map(|(name, value)| format!("?{name}={}", percent_encoded(value)));
    format!("{path}{}", query.unwrap_or_default())
}

/// A connection on which a question has been sent, in this version of the protocol; `patience` is for its answer.
fn send(
    server: &HostPort,
    (method, target): (&str, &str),
    version: &str,
    access: &AdminAccess,
    patience: Duration,
) -> io::Result<ClientLine<TcpStream>> {
    let stream = client::open(server, client::CONNECT_MAX.min(access.answer_max))?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(access.answer_max))?;
    let session = access.tls.as_ref().map(|tls| Session::with(tls, &server.host)).transpose()?;
    let mut stream = ClientLine::new(stream, session);
    let header = |token: &String| format!("Authorization: Bearer {token}\r\n");
    let authorization = access.token.as_ref().map(header).unwrap_or_default();
    let change =
        if method == "POST" { "X-Lockkeeper-Change: yes\r\nContent-Length: 0\r\n" } else { "" };
    let head = format!(
        "{method} {target} HTTP/{version}\r\nHost: {server}\r\n{authorization}{change}Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    Ok(stream)
}

fn exchange(server: &HostPort, question: (&str, &str), access: &AdminAccess) -> io::Result<String> {
    let stream = send(server, question, "1.1", access, access.answer_max)?;
    let mut answer = String::new();
    match stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer) {
        Ok(_) => Ok(answer),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(io::Error::other(NO_SERVER))
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock) => {
            Err(Unanswered::error(io::ErrorKind::TimedOut.into()))
        }
        Err(error) => Err(Unanswered::error(error)),
    }
}

/// The status and the body of an answer that is not chunked: the server's own are not.
fn parse(answer: &str) -> Option<(u16, &str)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some((status, body))
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

const NO_SERVER: &str = "it does not answer as a lockkeeper server's HTTP port does: --admin names that \
                         (admin.serverPort), not the clientPort";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_parameter_whatever_is_in_it() {
        assert_eq!(percent_encoded("/a b/\u{fc}&c=%"), "/a%20b/%C3%BC%26c%3D%25");
    }

    #[test]
    fn an_answer_has_a_status_and_a_body() {
        assert_eq!(parse("HTTP/1.1 200 OK\r\na: b\r\n\r\n{}\r\n\r\n"), Some((200, "{}\r\n\r\n")));
        for text in ["", "HTTP/1.1 2\r\n\r\n", "SSH-2.0\r\n\r\n", "HTTP/1.1 200 OK\r\n"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
