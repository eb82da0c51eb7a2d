//! Gives the crate the date it was built on, as the `srvr` word shows it, its version with how it was built, and the
//! binary the settings of its allocator.
//!
//! Honours `SOURCE_DATE_EPOCH` (seconds since 1970), so that a build can be reproduced, and `LOCKKEEPER_COMMIT` (the
//! commit that the sources are of, for builds without a repository; empty: none is named).

#![allow(clippy::disallowed_methods)] // a build script is not the core

use std::time::{SystemTime, UNIX_EPOCH};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-env-changed=SOURCE_DATE_EPOCH");
    println!("cargo:rerun-if-env-changed=RUSTFLAGS");
    let seconds = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text.trim().parse().expect("SOURCE_DATE_EPOCH is a number of seconds"),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
    };
    println!("cargo:rustc-env=LOCKKEEPER_BUILT={}", minute(seconds));
    println!("cargo:rustc-env=LOCKKEEPER_VERSION={}", version());
    #[cfg(feature = "jemalloc")]
    set_up_allocator();
}

/// How the allocator of the binary is set up. Two arenas are as many as the threads that allocate much, and memory that was
/// let go is given back after a quarter of a second, by the next who allocates there: a million znodes take less than
/// with the system's allocator, and a lock cycle 5 to 10 % less CPU. `_RJEM_MALLOC_CONF` in the environment of the
/// server overrides it.
#[cfg(feature = "jemalloc")]
const ALLOCATOR_SETTINGS: &str = "narenas:2,dirty_decay_ms:250,muzzy_decay_ms:0";

/// jemalloc reads its settings from a C string of this name, which only foreign code can define without `unsafe`. The
/// object file is given to the linker of the binary alone: a program that embeds the library keeps its own.
#[cfg(feature = "jemalloc")]
fn set_up_allocator() {
    let file = std::path::Path::new(&std::env::var("OUT_DIR").expect("cargo sets it"))
        .join("allocator_settings.c");
    let text = format!("const char *_rjem_malloc_conf = \"{ALLOCATOR_SETTINGS}\";\n");
    std::fs::write(&file, text).expect("OUT_DIR can be written to");
    for object in cc::Build::new().file(&file).compile_intermediates() {
        println!("cargo:rustc-link-arg-bins={}", object.display());
    }
}

/// Its number; the commit; and what figures depend on: the profile, whether it is the binary of
/// `benches/build_profiled`, and the allocator.
fn version() -> String {
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let by_profile = flags.contains("profile-use").then(|| "by profile".to_string());
    let allocator = cfg!(feature = "jemalloc").then(|| "jemalloc".to_string());
    let how = (profile() != "debug").then(profile).into_iter().chain(by_profile).chain(allocator);
    let notes: Vec<String> = commit().into_iter().chain(how).collect();
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join(", ")) };
    format!("{}{notes}", env!("CARGO_PKG_VERSION"))
}

/// The name of the profile, or `debug`. `PROFILE` says "release" for all that inherit it, so it is taken from the folder
/// of the build: `target/[TRIPLE/]PROFILE/build/lockkeeper-HASH/out`.
fn profile() -> String {
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    let mut folders = std::path::Path::new(&out).ancestors();
    let build = folders.find(|folder| folder.file_name().is_some_and(|name| name == "build"));
    let profile = build.and_then(std::path::Path::parent).and_then(std::path::Path::file_name);
    profile.map_or_else(|| "unknown profile".into(), |name| name.to_string_lossy().into_owned())
}

/// The commit that the sources are of: what the environment says, or what git says of a release build in a repository.
/// Other builds name none, or every commit would have all tests compiled anew.
fn commit() -> Option<String> {
    println!("cargo:rerun-if-env-changed=LOCKKEEPER_COMMIT");
    let short = |text: String| text.trim().chars().take(COMMIT_CHARACTERS).collect::<String>();
    if let Ok(given) = std::env::var("LOCKKEEPER_COMMIT") {
        return Some(short(given)).filter(|commit| !commit.is_empty());
    }
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    // A repository that this directory is only a part of says nothing of these sources.
    if !is_release || !std::path::Path::new(".git").exists() {
        return None;
    }
    let git = |arguments: &[&str]| {
        let output = std::process::Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    if let Some(moves) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={moves}");
    }
    let commit = short(git(&["rev-parse", "HEAD"])?);
    let is_changed =
        git(&["status", "--porcelain", "--untracked-files=no"])?.lines().next().is_some();
    Some(if is_changed { format!("{commit} and changes") } else { commit })
}

/// As many tell one commit from all others.
const COMMIT_CHARACTERS: usize = 12;

/// `MM/DD/YYYY HH:MM UTC`.
fn minute(seconds: u64) -> String {
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute) = (seconds / 3_600 % 24, seconds / 60 % 60);
    format!("{month:02}/{day:02}/{year:04} {hour:02}:{minute:02} UTC")
}

/// Year, month and day of the `days`-th day after 1970-01-01, in the Gregorian calendar.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month as u64 + 1, days + 1)
}

fn leap(year: u64) -> bool {
    (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400)
}
