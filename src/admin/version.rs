//! The version, in the words that clients parse.
//!
//! Invariant: begins with ZooKeeper's own version number (kazoo reads its digits, Solr and others
//! the whole) and gives the date as `MM/DD/YYYY HH:MM UTC`, the only form that the Go client reads.

/// Version of ZooKeeper whose behaviour is offered.
pub(in crate::admin) const ZOOKEEPER: &str = "3.9.5";

/// When this was built, from the build script.
pub(in crate::admin) const BUILT: &str = env!("LOCKKEEPER_BUILT");

/// `3.9.5-lockkeeper-<version>, built on MM/DD/YYYY HH:MM UTC`.
#[must_use]
pub(in crate::admin) fn full_version() -> String {
    format!("{ZOOKEEPER}-lockkeeper-{}, built on {BUILT}", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_date_has_the_form_that_the_go_client_reads() {
        let shape: String =
            BUILT.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "00/00/0000 00:00 UTC");
    }
}
