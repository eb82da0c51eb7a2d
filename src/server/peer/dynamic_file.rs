//! The files that follow the membership: `<cfg>.dynamic.<version>` and the pointer to it.
//!
//! *Owns* their writing: each file is replaced as a whole (written beside it, synced, renamed), the
//! dynamic one before the one that names it, so that a crash leaves the old pair or the new one.
//! The static file is copied to `<cfg>.bak` before its server lines are first taken out. *Never*
//! decides what they say (`config::membership` does), and never deletes an old dynamic file. A server that was
//! removed keeps its own line in its file, beside those of the members: with them it starts, and can be added again.
//!
//! Reproduces ZooKeeper's `QuorumPeer.setQuorumVerifier` and `QuorumPeerConfig.editStaticConfig`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tokio::sync::watch;

use super::peers::tell;
use crate::config::{Config, Membership, ServerSpec, dynamic_text, static_text};
use crate::server::ports::Announced;
use crate::supervision::{self, Task};

/// Follows the members: says once where the configuration says otherwise and, with `reconfigEnabled`, keeps
/// its files up to date. That they cannot be written ends nothing. What a start finds on the disk may be
/// older than what a file says already, and is not written: only what this server served with, which is
/// what the ensemble has decided. `file` is told of the lines that are in the file then.
pub(crate) async fn follow(
    config: Config,
    mut members: watch::Receiver<Announced>,
    file: watch::Sender<Vec<ServerSpec>>,
) {
    let Some(mut own) = config.own_server().cloned() else { return };
    let (mut is_first, mut written) = (true, String::new());
    while members.changed().await.is_ok() {
        let Announced { text, is_confirmed } = members.borrow_and_update().clone();
        if !is_confirmed || text == written {
            continue;
        }
        let mut membership = match Membership::parse(&text) {
            Ok(membership) => membership,
            Err(reason) => {
                tracing::warn!(reason, "the members of the ensemble are not written");
                continue;
            }
        };
        written = text;
        if std::mem::take(&mut is_first) {
            for difference in membership.differences(&config.servers) {
                tracing::warn!("{difference}");
            }
        }
        let Some(path) = config.path.clone().filter(|_| config.reconfig_enabled) else { continue };
        keep_own(&mut membership, &mut own);
        let (server_id, servers) = (own.id, membership.servers.clone());
        let write = move || write_dynamic(&path, server_id, &membership);
        match supervision::spawn_blocking(Task::MembersFile, write).await {
            Ok(Ok(dynamic)) => {
                if let Some(dynamic) = dynamic {
                    tracing::info!("the members of the ensemble are in {} now", dynamic.display());
                }
                tell(&file, servers);
            }
            Ok(Err(error)) => {
                tracing::warn!("the members of the ensemble are not written: {error}")
            }
            // It has panicked, and ends the server.
            Err(_) => return,
        }
    }
}

/// Adds the last line of this server to members of which it is none any more.
fn keep_own(membership: &mut Membership, own: &mut ServerSpec) {
    match membership.servers.iter().find(|member| member.id == own.id) {
        Some(line) => own.clone_from(line),
        None => {
            membership.servers.push(own.clone());
            membership.servers.sort_by_key(|member| member.id);
        }
    }
}

/// Brings the files of the configuration `config` up to a membership: returns the dynamic file's path if anything was
/// written, nothing if all was as it should be. To be called when the committed membership changes, and only with
/// `reconfigEnabled`. `server_id` is this server's.
///
/// # Errors
/// Those of the file system, with the path. Then the files are as they were or the new dynamic file is there and not
/// named yet: the server can go on, since the committed membership holds anyway.
pub(crate) fn write_dynamic(
    config: &Path,
    server_id: u8,
    membership: &Membership,
) -> io::Result<Option<PathBuf>> {
    if membership.version == 0 {
        return Ok(None);
    }
    // A link is followed: what it points to is rewritten, not the link.
    let config = config.canonicalize().map_err(|error| about(config, &error))?;
    let dynamic = beside(&config, &format!(".dynamic.{:x}", membership.version));
    let own = membership.servers.iter().find(|member| member.id == server_id);
    let has_client_address = own.is_some_and(|own| own.client.is_some());
    let lines = dynamic_text(&membership.servers);
    let old = fs::read_to_string(&config).map_err(|error| about(&config, &error))?;
    let new = static_text(&old, &dynamic.display().to_string(), has_client_address);
    let is_written = fs::read_to_string(&dynamic).is_ok_and(|text| text == lines);
    if new == old && is_written {
        return Ok(None);
    }
    if !is_written {
        replace(&dynamic, &lines, None)?;
    }
    let has_own_lines = !old.lines().any(|line| line.trim_start().starts_with("dynamicConfigFile"));
    if has_own_lines {
        let backup = beside(&config, ".bak");
        fs::copy(&config, &backup).map_err(|error| about(&backup, &error))?;
    }
    // It may hold the super user's digest: who could not read the old one cannot read the new one.
    let permissions = fs::metadata(&config).map_err(|error| about(&config, &error))?.permissions();
    replace(&config, &new, Some(permissions))?;
    Ok(Some(dynamic))
}

/// Replaces a file as a whole, or leaves it as it is.
fn replace(path: &Path, text: &str, permissions: Option<fs::Permissions>) -> io::Result<()> {
    let fresh = beside(path, ".new");
    let written = (|| {
        let mut file = File::create(&fresh)?;
        if let Some(permissions) = permissions {
            file.set_permissions(permissions)?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    })();
    written.map_err(|error| {
        // What is left of the attempt may not be there at all.
        let _ = fs::remove_file(&fresh);
        about(path, &error)
    })
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const MEMBERS: &str = "server.1=a:1:2:participant;0.0.0.0:2181\n\
                           server.2=b:1:2:participant;0.0.0.0:2181\n\
                           version=100000000";
    const OLD: &str = "# mine\ndataDir=/d\nclientPort=2181\nserver.1=a:1:2\nserver.2=b:1:2\n";

    fn config(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("zoo.cfg");
        fs::write(&path, text).unwrap();
        (dir, path)
    }

    fn members() -> Membership {
        Membership::parse(MEMBERS).unwrap()
    }

    fn text(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn server_lines_move_to_a_file_named_after_the_version() {
        let (_dir, path) = config(OLD);
        let dynamic = write_dynamic(&path, 1, &members()).unwrap().unwrap();
        assert_eq!(dynamic, beside(&path, ".dynamic.100000000"));
        assert_eq!(text(&dynamic).lines().count(), 2);
        let pointer = format!("# mine\ndataDir=/d\ndynamicConfigFile={}\n", dynamic.display());
        assert_eq!(text(&path), pointer);
        assert_eq!(text(&beside(&path, ".bak")), OLD);
    }

    #[test]
    fn what_was_written_starts_a_server_again() {
        let (_dir, path) = config(OLD);
        let dynamic = write_dynamic(&path, 2, &members()).unwrap().unwrap();
        let mut draft = crate::config::Draft::from_text("zoo.cfg", &text(&path));
        assert_eq!(draft.dynamic_config_file(), Some(dynamic.to_str().unwrap()));
        draft.load_dynamic("dynamic", &text(&dynamic));
        draft.set_myid("myid", "2");
        let config = draft.resolve().unwrap();
        assert!(config.is_ensemble());
        assert_eq!(config.client_addr.port, 2181, "from the own server line");
    }

    #[test]
    fn a_server_that_was_removed_starts_again_with_the_line_that_it_had_last() {
        let (_dir, path) = config(OLD);
        let mut own = ServerSpec::parse(2, "b:1:2").unwrap();
        let mut membership = members();
        keep_own(&mut membership, &mut own);
        assert_eq!(membership, members());
        write_dynamic(&path, 2, &membership).unwrap();
        membership.servers.retain(|member| member.id == 1);
        membership.version += 1;
        keep_own(&mut membership, &mut own);
        let dynamic = write_dynamic(&path, 2, &membership).unwrap().unwrap();
        let mut draft = crate::config::Draft::from_text("zoo.cfg", &text(&path));
        draft.load_dynamic("dynamic", &text(&dynamic));
        draft.set_myid("myid", "2");
        let config = draft.resolve().unwrap();
        assert_eq!(config.own_server().unwrap().to_string(), "b:1:2:participant;0.0.0.0:2181");
        assert_eq!(config.client_addr.port, 2181);
    }

    #[test]
    fn the_same_membership_is_written_once() {
        let (_dir, path) = config(OLD);
        assert!(write_dynamic(&path, 1, &members()).unwrap().is_some());
        assert_eq!(write_dynamic(&path, 1, &members()).unwrap(), None);
        assert_eq!(
            write_dynamic(&path, 1, &Membership::default()).unwrap(),
            None,
            "no membership is known yet"
        );
    }

    #[test]
    fn a_later_membership_moves_the_pointer_and_keeps_the_first_backup() {
        let (_dir, path) = config(OLD);
        write_dynamic(&path, 1, &members()).unwrap();
        let later = Membership { version: 0x2_0000_000a, ..members() };
        let dynamic = write_dynamic(&path, 1, &later).unwrap().unwrap();
        assert!(text(&path).ends_with(&format!("dynamicConfigFile={}\n", dynamic.display())));
        assert_eq!(text(&path).matches("dynamicConfigFile").count(), 1);
        assert_eq!(text(&beside(&path, ".bak")), OLD);
    }

    #[test]
    fn users_who_could_not_read_the_file_still_cannot() {
        let (_dir, path) = config(OLD);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        write_dynamic(&path, 1, &members()).unwrap();
        for file in [path.clone(), beside(&path, ".bak")] {
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let absent = Path::new("/nonexistent/zoo.cfg");
        let error = write_dynamic(absent, 1, &members()).unwrap_err().to_string();
        assert!(error.starts_with("/nonexistent/zoo.cfg: "), "{error}");
    }
}
