//! Environment variables of an image.
//!
//! *Owns* what "set" means: a variable that is empty is not. *Never* changes the environment.

use std::collections::BTreeMap;
use std::fs;

/// The variables, by their names.
#[derive(Clone, Debug, Default)]
pub(super) struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Those of this process; one that is no UTF-8 is none of these images'.
    pub(super) fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self(std::env::vars_os().filter_map(text).collect())
    }

    #[cfg(test)]
    pub(super) fn of(text: &str) -> Self {
        let pair = |line: &str| {
            let (name, value) = line.trim().split_once('=').expect("NAME=value");
            (name.to_string(), value.to_string())
        };
        Self(text.lines().filter(|line| !line.trim().is_empty()).map(pair).collect())
    }

    /// What it is set to.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The same, or what it is where it is not set.
    pub(super) fn or<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        self.get(name).unwrap_or(default)
    }

    /// Whether it says yes, as Bitnami's image reads it.
    pub(super) fn is_yes(&self, name: &str, default: bool) -> bool {
        let is_yes =
            |value: &str| ["1", "yes", "true"].iter().any(|yes| value.eq_ignore_ascii_case(yes));
        self.get(name).map_or(default, is_yes)
    }

    /// What the variable says, or the file that `<name>_FILE` names.
    ///
    /// # Errors
    /// There is no such file.
    pub(super) fn secret(&self, name: &str) -> Result<Option<String>, String> {
        let file = format!("{name}_FILE");
        match self.get(&file) {
            Some(path) => fs::read_to_string(path)
                .map(|text| Some(text.trim_end_matches(['\r', '\n']).to_string()))
                .map_err(|error| format!("{file}: {path}: cannot be read: {error}")),
            None => Ok(self.get(name).map(str::to_string)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_is_not_set_and_a_file_goes_before_the_variable() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        fs::write(&path, "of the file\n").unwrap();
        let text = format!(
            "A=\nB=x\nP=of the variable\nP_FILE={}\nQ_FILE=/no/such\nY=Yes\nN=no",
            path.display()
        );
        let variables = Variables::of(&text);
        assert_eq!(
            (variables.get("A"), variables.or("A", "d"), variables.or("B", "d")),
            (None, "d", "x")
        );
        assert_eq!(variables.secret("P"), Ok(Some("of the file".to_string())));
        assert_eq!(variables.secret("B"), Ok(Some("x".to_string())));
        assert!(variables.secret("Q").unwrap_err().starts_with("Q_FILE: /no/such: cannot be read"));
        assert!(
            variables.is_yes("Y", false)
                && !variables.is_yes("N", true)
                && variables.is_yes("Z", true)
        );
    }
}
