//! The members of the ensemble, as the driver tells them to the tasks that follow them.
//!
//! *Owns* [`Announced`]. *Invariant*: `is_confirmed` says that this server had caught up with a leader while
//! the text was as it is: then it is what the ensemble has decided, and not what a start found on the disk.

/// The text of `/zookeeper/config`, and how sure it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::server) struct Announced {
    /// Empty before the ensemble has members.
    pub text: String,
    /// Whether the server has served with it.
    pub is_confirmed: bool,
}

impl Announced {
    /// Takes what the replica has. Whether anything is new.
    pub(in crate::server) fn update(&mut self, text: &str, is_serving: bool) -> bool {
        let is_new = self.text != text;
        if is_new {
            text.clone_into(&mut self.text);
            self.is_confirmed = false;
        }
        let is_confirmed = self.is_confirmed || (is_serving && !text.is_empty());
        let is_new = is_new || is_confirmed != self.is_confirmed;
        self.is_confirmed = is_confirmed;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_confirmed_once_the_server_serves_with_it() {
        let mut announced = Announced::default();
        assert!(!announced.update("", true) && !announced.is_confirmed, "there are no members");
        assert!(announced.update("a", false) && !announced.is_confirmed);
        assert!(announced.update("a", true) && announced.is_confirmed);
        assert!(!announced.update("a", false) && announced.is_confirmed, "it has been decided");
        assert!(announced.update("b", false) && !announced.is_confirmed);
    }
}
