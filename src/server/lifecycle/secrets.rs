//! Files with secrets: keys, passwords, users, tokens.
//!
//! *Owns* what is said of their permissions at the start. *Never* reads one.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::config::Config;

/// Permissions of others than the owner and the group.
const OTHERS: u32 = 0o007;

/// Warns of each file that users beside the owner and the group may read or change.
pub(super) fn warn_of_readable(config: &Config) {
    for path in files(config).filter(|path| is_open_to_others(path)) {
        let file = path.display();
        tracing::warn!(%file, "other users may read or change this file, which holds a secret: chmod 600");
    }
}

fn files(config: &Config) -> impl Iterator<Item = &Path> {
    let tls = &config.tls;
    let of_tls =
        [&tls.key_store.location, &tls.key_store.password_path, &tls.trust_store.password_path];
    let is_offered = tls.is_offered();
    let of_tls = of_tls.into_iter().filter(move |_| is_offered);
    of_tls.chain([&config.admin.token_file, &config.sasl.jaas_file]).filter_map(Option::as_deref)
}

fn is_open_to_others(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.mode() & OTHERS != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_open_to_others_if_they_may_do_anything_with_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, expected) in [(0o600, false), (0o640, false), (0o644, true), (0o602, true)] {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_open_to_others(file.path()), expected, "{mode:o}");
        }
        assert!(!is_open_to_others(Path::new("/there/is/none")));
    }
}
