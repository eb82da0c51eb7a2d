//! Flags of the JVM, as images and operators set them for ZooKeeper.
//!
//! *Owns* what becomes of each: `-Dzookeeper.X=Y` is the key X of zoo.cfg, which goes before it as in ZooKeeper;
//! those of memory, logs and Java have no effect and are named once. *Never* prints the value of a flag, which may be
//! a password.

use super::variables::Variables;

/// Variables with flags of the server's JVM.
const VARIABLES: [&str; 3] = ["JVMFLAGS", "SERVER_JVMFLAGS", "ZOO_SERVER_JVMFLAGS"];
/// Properties that ZooKeeper reads without its prefix, and that are keys here.
const BARE: [&str; 3] = ["jute.", "readonlymode.", "znode."];
/// Properties of ZooKeeper that are not for its server: logging and JMX.
const OF_JAVA: [&str; 7] = [
    "root.logger",
    "console.threshold",
    "log.dir",
    "log.file",
    "log.threshold",
    "tracelog.",
    "jmx.",
];
/// Java's own property for the file with the users of SASL.
const LOGIN_CONFIG: &str = "java.security.auth.login.config";

/// What the flags of an environment mean.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    /// Keys of zoo.cfg and their values.
    pub(super) keys: Vec<(String, String)>,
    /// Names of flags without effect.
    pub(super) ignored: Vec<String>,
}

impl Flags {
    pub(super) fn of(variables: &Variables) -> Self {
        let mut flags = Self::default();
        for word in VARIABLES.iter().filter_map(|name| variables.get(name)).flat_map(words) {
            match key(&word) {
                Some((key, value)) => flags.keys.push((key, value)),
                None => flags.ignored.push(name(&word)),
            }
        }
        for name in ["ZK_SERVER_HEAP", "ZOO_HEAP_SIZE"] {
            if variables.get(name).is_some() {
                flags.ignored.push(name.to_string());
            }
        }
        flags
    }

    /// For people; `None` if all have an effect.
    pub(super) fn note(&self) -> Option<String> {
        (!self.ignored.is_empty())
            .then(|| format!("without effect, for there is no JVM: {}", self.ignored.join(" ")))
    }
}

/// Words as a shell splits them, with quotes of both kinds.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote, mut is_begun) = (String::new(), None, false);
    for c in text.chars() {
        match quote {
            Some(end) if c == end => quote = None,
            Some(_) => word.push(c),
            None if c == '"' || c == '\'' => (quote, is_begun) = (Some(c), true),
            None if c.is_whitespace() => {
                if is_begun {
                    words.push(std::mem::take(&mut word));
                }
                is_begun = false;
            }
            None => {
                word.push(c);
                is_begun = true;
            }
        }
    }
    if is_begun {
        words.push(word);
    }
    words
}

/// The key of zoo.cfg that a flag stands for.
fn key(flag: &str) -> Option<(String, String)> {
    // Without a value a property is the empty text, which no key takes.
    let (property, value) = flag.strip_prefix("-D")?.split_once('=')?;
    if property == LOGIN_CONFIG {
        return Some(("lockkeeper.jaasFile".to_string(), value.to_string()));
    }
    let of_zookeeper = property.strip_prefix("zookeeper.");
    let key = of_zookeeper
        .or_else(|| BARE.iter().any(|bare| property.starts_with(bare)).then_some(property))?;
    let is_of_java = OF_JAVA.iter().any(|java| key.starts_with(java));
    (!is_of_java && !key.is_empty()).then(|| (key.to_string(), value.to_string()))
}

/// A flag without its value.
fn name(flag: &str) -> String {
    if flag.starts_with("-X") {
        return flag.to_string();
    }
    flag.split(['=', ':']).next().unwrap_or(flag).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_of_zookeeper_are_keys_and_what_is_the_jvms_is_named_without_values() {
        let variables = Variables::of(
            "JVMFLAGS=-Xmx1000m -Dzookeeper.admin.serverPort=9000 -Djute.maxbuffer=4194304  -Dsecret=x\n\
             SERVER_JVMFLAGS=-Dzookeeper.superUser=\"a b\" -Djava.security.auth.login.config='/c/jaas.conf' \
             -Dzookeeper.root.logger=INFO -javaagent:/x.jar=7000 -Dzookeeper.serverCnxnFactory\n\
             ZK_SERVER_HEAP=1000",
        );
        let flags = Flags::of(&variables);
        let keys = [
            ("admin.serverPort", "9000"),
            ("jute.maxbuffer", "4194304"),
            ("superUser", "a b"),
            ("lockkeeper.jaasFile", "/c/jaas.conf"),
        ];
        let keys = keys.map(|(key, value)| (key.to_string(), value.to_string()));
        assert_eq!(flags.keys, keys);
        assert_eq!(
            flags.note().unwrap(),
            "without effect, for there is no JVM: -Xmx1000m -Dsecret -Dzookeeper.root.logger -javaagent \
             -Dzookeeper.serverCnxnFactory ZK_SERVER_HEAP"
        );
        assert_eq!(Flags::of(&Variables::default()).note(), None);
    }
}
