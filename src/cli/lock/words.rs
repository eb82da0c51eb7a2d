//! What a user writes in the flags of `lockkeeper lock`: signals, styles.

use std::fmt;
use std::str::FromStr;

use rustix::process::Signal;

use super::kind::Names;
use crate::recipes::Style;

/// What is done to a command whose lock is about to be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnLost {
    /// It is sent this signal, and killed at the end of its time.
    Signal(Signal),
    /// It is killed at the end of its time.
    Kill,
    /// Nothing.
    Ignore,
}

impl FromStr for OnLost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "term" => Ok(Self::Signal(Signal::TERM)),
            "kill" => Ok(Self::Kill),
            "ignore" => Ok(Self::Ignore),
            _ => match text.strip_prefix("signal:").map(signal) {
                Some(Some(Signal::KILL)) => Ok(Self::Kill),
                Some(Some(signal)) => Ok(Self::Signal(signal)),
                Some(None) => Err(format!("{text:?} names no signal: HUP, USR1, 15 ...")),
                None => Err("expected term, kill, signal:NAME or ignore".to_string()),
            },
        }
    }
}

impl fmt::Display for OnLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(signal) => write!(f, "signal:{}", signal.as_raw()),
            Self::Kill => f.write_str("kill"),
            Self::Ignore => f.write_str("ignore"),
        }
    }
}

fn signal(name: &str) -> Option<Signal> {
    if let Ok(number) = name.parse() {
        return Signal::from_named_raw(number);
    }
    let name = name.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal)
}

const SIGNALS: [(&str, Signal); 9] = [
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("KILL", Signal::KILL),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("ALRM", Signal::ALARM),
    ("TERM", Signal::TERM),
    ("WINCH", Signal::WINCH),
];

pub(super) fn names(text: &str) -> Result<Names, String> {
    match text {
        "curator" => Ok(Names::Style(Style::Curator)),
        "curator-rw" => Ok(Names::CuratorReadWrite),
        "kazoo" => Ok(Names::Style(Style::Kazoo)),
        "plain" => Ok(Names::Style(Style::Plain)),
        "zk" => Ok(Names::Style(Style::ZooKeeper)),
        _ => Err("expected curator, curator-rw, kazoo, plain or zk".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_go_by_name_or_number() {
        for text in ["term", "signal:TERM", "signal:sigterm", "signal:15"] {
            assert_eq!(text.parse(), Ok(OnLost::Signal(Signal::TERM)), "{text}");
        }
        assert_eq!("signal:KILL".parse(), Ok(OnLost::Kill));
        for text in ["", "signal:", "signal:NONE", "signal:0", "signal:999", "TERM"] {
            assert!(text.parse::<OnLost>().is_err(), "{text}");
        }
        for on_lost in [OnLost::Signal(Signal::USR1), OnLost::Kill, OnLost::Ignore] {
            assert_eq!(on_lost.to_string().parse(), Ok(on_lost));
        }
    }
}
