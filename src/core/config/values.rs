//! How the values of single keys are read and written: paths, the digest of the superuser, the root of the admin
//! server's commands.
//!
//! *Never* knows which key a value belongs to: the error says what is wrong with the value, the caller adds the key.

use std::path::{Path, PathBuf};

/// Longest `admin.commandURL`, bytes.
const COMMAND_URL_BYTES_MAX: usize = 255;
/// Longest path of a file or directory, bytes (what Linux takes).
pub const PATH_BYTES_MAX: usize = 4095;

pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("the path is empty".to_string());
    }
    if text.len() > PATH_BYTES_MAX {
        return Err(format!("the path is longer than {PATH_BYTES_MAX} bytes"));
    }
    if text.chars().any(char::is_control) {
        return Err("the path holds control characters".to_string());
    }
    Ok(PathBuf::from(text))
}

pub(super) fn optional_path(text: &str) -> Result<Option<PathBuf>, String> {
    if text.is_empty() { Ok(None) } else { path(text).map(Some) }
}

pub(super) fn path_text(path: &Path) -> String {
    path.display().to_string()
}

pub(super) fn super_digest(text: &str) -> Result<Option<String>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.split_once(':') {
        Some((user, hash)) if !user.is_empty() && !hash.is_empty() && !hash.contains(':') => {
            Ok(Some(text.to_string()))
        }
        // The value is as good as a password: it is not repeated.
        Some(_) | None => Err("the value is not user:base64".to_string()),
    }
}

pub(super) fn command_url(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    if text.len() > COMMAND_URL_BYTES_MAX {
        return Err(format!("the path is longer than {COMMAND_URL_BYTES_MAX} bytes"));
    }
    if !text.starts_with('/') || text.ends_with('/') || !text.bytes().all(plain) {
        return Err(format!("`{text}` is not a path like /commands"));
    }
    Ok(text.to_string())
}

pub(super) fn yes_no(on: bool) -> String {
    if on { "yes" } else { "no" }.to_string()
}

pub(super) fn u32_of(n: i64) -> u32 {
    u32::try_from(n).expect("the limits of the table are within 32 bits")
}

pub(super) fn u16_of(n: i64) -> u16 {
    u16::try_from(n).expect("the limits of the table are ports")
}
