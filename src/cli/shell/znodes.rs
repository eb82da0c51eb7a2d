//! Requests about znodes, below the path that is the user's root.
//!
//! *Owns* checking paths, putting the root in front of them and taking it off again, and the shape of
//! each answer. *Invariant*: a path that is none never reaches a server, because behind another root
//! it would be another znode. Reproduces the path handling of `ZooKeeper` and `ZKUtil`.

use std::fmt::Debug;

use bytes::Bytes;

use super::failure::Failure;
use crate::cli::client::Client;
use crate::cli::graft::{is_of_servers, placed};
use crate::cli::output;
use crate::proto::{Request, Response, Stat, Text};
use crate::tree::ZnodePath;
use crate::tree::path::child;

/// A session, and the root.
pub(super) struct Znodes {
    pub session: Client,
    pub chroot: String,
}

/// The path as the user knows it.
pub(super) fn shown<'a>(chroot: &str, path: &'a str) -> &'a str {
    match path.strip_prefix(chroot) {
        Some("") => "/",
        Some(rest) if rest.starts_with('/') => rest,
        // Not below the root: as it is.
        Some(_) | None => path,
    }
}

/// An answer that belongs to another request.
pub(super) fn odd(answer: impl Debug) -> Failure {
    output::Failure::odd(answer).into()
}

impl Znodes {
    /// The path as the server knows it.
    pub(super) fn at(&self, path: &str) -> Result<Text, Failure> {
        let wrong = |reason| Failure::usage(format!("Invalid path string \"{path}\": it {reason}"));
        ZnodePath::parse(path).map_err(wrong)?;
        Ok(Text::from(placed(&self.chroot, path)))
    }

    /// Refuses a path of which every ensemble has its own.
    pub(super) fn refuse_servers(&self, path: &str) -> Result<(), Failure> {
        if is_of_servers(self.at(path)?.as_str()) {
            let words = format!("{path} belongs to the servers, and every ensemble has its own");
            return Err(Failure::usage(words));
        }
        Ok(())
    }

    /// The path as the user knows it.
    pub(super) fn shown<'a>(&self, path: &'a str) -> &'a str {
        shown(&self.chroot, path)
    }

    /// Asks about a path.
    pub(super) fn call(
        &self,
        path: &str,
        request: impl FnOnce(Text) -> Request,
    ) -> Result<Response, Failure> {
        self.ask(path, &request(self.at(path)?))
    }

    /// Asks; `path` is what a refusal is about.
    pub(super) fn ask(&self, path: &str, request: &Request) -> Result<Response, Failure> {
        self.session.call(request).map_err(|error| Failure::of(&error, path))
    }

    pub(super) fn data(&self, path: &str, watch: bool) -> Result<(Option<Bytes>, Stat), Failure> {
        data(self.call(path, |path| Request::GetData { path, watch })?)
    }

    pub(super) fn stat(&self, path: &str, watch: bool) -> Result<Stat, Failure> {
        stat(self.call(path, |path| Request::Exists { path, watch })?)
    }

    /// In the order of their names.
    pub(super) fn children(&self, path: &str, watch: bool) -> Result<(Vec<String>, Stat), Failure> {
        match self.call(path, |path| Request::GetChildren { path, watch, stat: true })? {
            Response::NamesStat(names, stat) => {
                let mut names: Vec<String> =
                    names.iter().map(|name| name.as_str().to_string()).collect();
                names.sort();
                Ok((names, stat))
            }
            other => Err(odd(other)),
        }
    }

    /// The path, and everything below it; parents before their children. With `watch`, a watch on the
    /// data of the path and on the children of each.
    pub(super) fn subtree(&self, path: &str, watch: bool) -> Result<Vec<String>, Failure> {
        self.data(path, watch)?;
        let mut found = vec![path.to_string()];
        let mut unvisited = vec![path.to_string()];
        while let Some(parent) = unvisited.pop() {
            let names = match self.children(&parent, watch) {
                Ok((names, _)) => names,
                // It has gone meanwhile.
                Err(failure) if failure.is_no_node() => continue,
                Err(failure) => return Err(failure),
            };
            let children: Vec<String> = names.iter().map(|name| child(&parent, name)).collect();
            found.extend(children.iter().cloned());
            unvisited.extend(children.into_iter().rev());
        }
        Ok(found)
    }
}

/// The answer to `getData` and `reconfig`.
pub(super) fn data(response: Response) -> Result<(Option<Bytes>, Stat), Failure> {
    match response {
        Response::Data(data, stat) => Ok((data, stat)),
        other => Err(odd(other)),
    }
}

/// The answer to `exists`, `setData` and `setACL`.
pub(super) fn stat(response: Response) -> Result<Stat, Failure> {
    match response {
        Response::Stat(stat) => Ok(stat),
        other => Err(odd(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_taken_off_whole_components_only() {
        assert_eq!(shown("", "/a"), "/a");
        assert_eq!(shown("/app", "/app"), "/");
        assert_eq!(shown("/app", "/app/a"), "/a");
        assert_eq!(shown("/app", "/apple"), "/apple");
    }
}
