//! What clients and servers say in DIGEST-MD5, worked out by these tests themselves.

use md5::{Digest as _, Md5};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn md5(parts: &[&[u8]]) -> Vec<u8> {
    Md5::digest(parts.join(&b':')).to_vec()
}

/// What DIGEST-MD5 makes of a password; `method` is `AUTHENTICATE` for clients and empty for servers.
pub fn proof(user: &str, password: &str, nonce: &str, method: &str) -> String {
    let secret = md5(&[user.as_bytes(), b"zk-sasl-md5", password.as_bytes()]);
    let first = hex(&md5(&[&secret, nonce.as_bytes(), b"cnonce"]));
    let second = hex(&md5(&[method.as_bytes(), b"zookeeper/zk-sasl-md5"]));
    hex(&md5(&[
        first.as_bytes(),
        nonce.as_bytes(),
        b"00000001",
        b"cnonce",
        b"auth",
        second.as_bytes(),
    ]))
}

/// A client's answer to a challenge with this nonce.
pub fn response(user: &str, password: &str, nonce: &str) -> String {
    format!(
        "charset=utf-8,username=\"{user}\",realm=\"zk-sasl-md5\",nonce=\"{nonce}\",nc=00000001,cnonce=\"cnonce\",\
         digest-uri=\"zookeeper/zk-sasl-md5\",maxbuf=65536,response={},qop=auth",
        proof(user, password, nonce, "AUTHENTICATE")
    )
}

/// The nonce of a challenge.
pub fn nonce_of(challenge: &str) -> &str {
    let (_, rest) = challenge.split_once("nonce=\"").expect("a nonce");
    rest.split_once('"').expect("its end").0
}
