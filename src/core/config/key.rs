//! What is known about one key: its form, its limits, what it does here.
//!
//! Owns [`Key`], the shape of an entry of the table, and the reading of values by their [`Form`].
//! Invariant: a setter is only ever called with a value inside the limits that its entry states.
//! Which keys there are is in `table.rs` and `accepted.rs`.

use super::Config;

/// Greatest millisecond value and count: ZooKeeper's settings are 32-bit integers.
pub(super) const INT_MAX: i64 = i32::MAX as i64;
/// Least value of the settings that ZooKeeper's parser reads as 32-bit integers and does not bound.
pub(super) const INT_MIN: i64 = i32::MIN as i64;
/// Keys that ZooKeeper does not have begin with this.
pub(super) const OWN_PREFIX: &str = "lockkeeper.";

/// One key of the configuration file, or a family of keys (`ssl.*`, `group.N`).
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The name as written in zoo.cfg; a last part of `*` or `N` stands for any text.
    pub name: &'static str,
    /// What the value must look like, and where it goes.
    pub form: Form,
    /// What comes of it.
    pub effect: Effect,
    /// What it means, for people; for keys without effect, why.
    pub doc: &'static str,
    /// The value that stands where a file does not give one; empty for "none".
    pub default: &'static str,
    /// The default without any configuration file, where it differs.
    pub default_without_file: Option<&'static str>,
    /// The value that the sample file sets; where there is none the sample shows the default in a
    /// comment.
    pub sample: Option<&'static str>,
    /// The value in force, as text.
    pub show: fn(&Config) -> String,
    /// What a value stands for that cannot be read, where ZooKeeper starts all the same: it takes these keys
    /// for system properties of the JVM. `None` for those that ZooKeeper's parser checks, as it does.
    pub stand_in: Option<&'static str>,
    /// In an ensemble, whose value counts.
    pub counts: Counts,
}

/// Servers of an ensemble whose value of a key counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Each server's own, for itself.
    Own,
    /// The leader's, for all of them. The text says for what, where it is not for everything that the key decides.
    Leaders(&'static str),
}

/// What a value must look like. Setters get it checked.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// A whole number, decimal or `0x` hexadecimal, within limits that both count.
    Number {
        /// Least value.
        min: i64,
        /// Greatest value.
        max: i64,
        /// Puts it in force.
        set: fn(&mut Config, i64),
    },
    /// `true` or `false`, in any case.
    Switch {
        /// Puts it in force.
        set: fn(&mut Config, bool),
    },
    /// `yes` or `no`, exactly.
    YesNo {
        /// Puts it in force.
        set: fn(&mut Config, bool),
    },
    /// Text that the setter judges.
    Text {
        /// The rule, for people.
        limits: &'static str,
        /// Puts it in force, or says what is wrong.
        set: fn(&mut Config, &str) -> Result<(), String>,
    },
}

/// What comes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It does what its doc says.
    Effective,
    /// Accepted, checked and listed once; the server does nothing with it.
    Ignored,
    /// As ignored, but with a warning: it asks for something that is not there.
    Warned,
    /// An error, unless the value says that the thing is not wanted (`false`, `no`, empty).
    Refused,
}

impl Key {
    pub(super) const fn effective(
        name: &'static str,
        default: &'static str,
        show: fn(&Config) -> String,
        doc: &'static str,
    ) -> Key {
        let form = Form::Text { limits: "", set: |_, _| Ok(()) };
        let effect = Effect::Effective;
        let (default_without_file, sample, stand_in, counts) = (None, None, None, Counts::Own);
        Key {
            name,
            form,
            effect,
            doc,
            default,
            default_without_file,
            sample,
            show,
            stand_in,
            counts,
        }
    }

    pub(super) const fn without_effect(
        name: &'static str,
        effect: Effect,
        form: Form,
        doc: &'static str,
    ) -> Key {
        Key { form, effect, ..Key::effective(name, "", |_| String::new(), doc) }
    }

    pub(super) const fn number(mut self, min: i64, max: i64, set: fn(&mut Config, i64)) -> Key {
        self.form = Form::Number { min, max, set };
        self
    }

    pub(super) const fn switch(mut self, set: fn(&mut Config, bool)) -> Key {
        self.form = Form::Switch { set };
        self
    }

    pub(super) const fn yes_no(mut self, set: fn(&mut Config, bool)) -> Key {
        self.form = Form::YesNo { set };
        self
    }

    pub(super) const fn text(
        mut self,
        limits: &'static str,
        set: fn(&mut Config, &str) -> Result<(), String>,
    ) -> Key {
        self.form = Form::Text { limits, set };
        self
    }

    /// A file with an unreadable value is started on, as ZooKeeper does, with this in its place. Empty: with
    /// what the setter has made of it before it said what is wrong.
    pub(super) const fn or_else(mut self, stand_in: &'static str) -> Key {
        self.stand_in = Some(stand_in);
        self
    }

    /// Only the leader acts on it: for everything that the key decides, or for what the text says.
    pub(super) const fn on_leader(mut self, part: &'static str) -> Key {
        self.counts = Counts::Leaders(part);
        self
    }

    pub(super) const fn without_file(mut self, default: &'static str) -> Key {
        self.default_without_file = Some(default);
        self
    }

    pub(super) const fn sample(mut self, value: &'static str) -> Key {
        self.sample = Some(value);
        self
    }

    /// Checks a value and puts it in force.
    ///
    /// # Errors
    /// What is wrong with the value and what would be right.
    pub(super) fn apply(&self, config: &mut Config, value: &str) -> Result<(), String> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(format!("the value is longer than {VALUE_BYTES_MAX} bytes"));
        }
        match self.form {
            Form::Number { min, max, set } => set(config, number(value, min, max)?),
            Form::Switch { set } => set(config, truth(value)?),
            // As ZooKeeper compares it: what is not exactly one of them must not weaken anything.
            Form::YesNo { set } => match value {
                "yes" => set(config, true),
                "no" => set(config, false),
                _ => return Err(format!("`{value}` is neither yes nor no")),
            },
            Form::Text { limits: _, set } => set(config, value)?,
        }
        Ok(())
    }

    /// As [`Key::apply`], where a value that is wrong is no reason not to start: what is wrong with it, and
    /// what is in force instead.
    ///
    /// # Errors
    /// The value is wrong, and ZooKeeper would not start either.
    pub(super) fn apply_or_else(
        &self,
        config: &mut Config,
        value: &str,
    ) -> Result<Option<String>, String> {
        let Err(reason) = self.apply(config, value) else { return Ok(None) };
        let Some(stand_in) = self.stand_in else { return Err(reason) };
        let nearest = match self.form {
            Form::Number { min, max, set: _ } => number(value, i64::MIN + 1, i64::MAX)
                .map_or(stand_in.to_string(), |number| number.clamp(min, max).to_string()),
            Form::Switch { .. } | Form::YesNo { .. } | Form::Text { .. } => stand_in.to_string(),
        };
        if nearest.is_empty() {
            return Ok(Some(reason));
        }
        self.apply(config, &nearest)?;
        Ok(Some(format!("{reason}; {nearest} is in force")))
    }

    /// Does the value ask for the thing at all? Judged for values that passed the check.
    pub(super) fn asks(&self, value: &str) -> bool {
        let is_off = ["false", "no"].iter().any(|off| value.eq_ignore_ascii_case(off));
        match (self.form, self.effect) {
            (Form::Number { .. }, _) => value != "0" && !value.starts_with('-'),
            (Form::Switch { .. } | Form::YesNo { .. }, _) => !is_off,
            (Form::Text { .. }, Effect::Refused) => !value.is_empty(),
            (Form::Text { .. }, Effect::Effective | Effect::Ignored | Effect::Warned) => {
                !value.is_empty() && !is_off
            }
        }
    }

    /// The limits, for people.
    #[must_use]
    pub fn limits(&self) -> String {
        match self.form {
            Form::Number { min, max, set: _ } => format!("{min} to {max}"),
            Form::Switch { set: _ } => "true or false".to_string(),
            Form::YesNo { set: _ } => "yes or no".to_string(),
            Form::Text { limits, set: _ } => limits.to_string(),
        }
    }

    /// Whose value counts in an ensemble, for people: `leader's for writes`. `None`: each server's own.
    pub(super) fn leaders(&self) -> Option<String> {
        match self.counts {
            Counts::Own => None,
            Counts::Leaders("") => Some("leader's".to_string()),
            Counts::Leaders(part) => Some(format!("leader's for {part}")),
        }
    }

    /// The name without its variable last part, if this is a family.
    pub(super) fn family(&self) -> Option<&'static str> {
        self.name.strip_suffix('*').or_else(|| match self.name.strip_suffix('N') {
            Some(stem) if stem.ends_with('.') => Some(stem),
            Some(_) | None => None,
        })
    }
}

fn number(text: &str, min: i64, max: i64) -> Result<i64, String> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = hexadecimal.map_or((digits, 10), |digits| (digits, 16));
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(format!("`{text}` is not a whole number"));
    }
    // All are digits: the only way to fail is to be beyond 64 bits.
    let magnitude = i64::from_str_radix(digits, radix).unwrap_or(i64::MAX);
    let value = if negative { -magnitude } else { magnitude };
    if value < min {
        return Err(format!("{text} is too small: the least value is {min}"));
    }
    if value > max {
        return Err(format!("{text} is too large: the greatest value is {max}"));
    }
    Ok(value)
}

fn truth(text: &str) -> Result<bool, String> {
    if text.eq_ignore_ascii_case("true") {
        Ok(true)
    } else if text.eq_ignore_ascii_case("false") {
        Ok(false)
    } else {
        Err(format!("`{text}` is neither true nor false"))
    }
}

/// Longest value of a key, in bytes.
pub const VALUE_BYTES_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_at_their_limits_and_refused_beyond() {
        assert_eq!(number("1", 1, 10), Ok(1));
        assert_eq!(number("10", 1, 10), Ok(10));
        assert_eq!(number("0x0A", 1, 10), Ok(10));
        assert_eq!(number("+7", 1, 10), Ok(7));
        assert_eq!(number("-1", -1, 10), Ok(-1));
        assert!(number("0", 1, 10).unwrap_err().contains("least value is 1"));
        assert!(number("11", 1, 10).unwrap_err().contains("greatest value is 10"));
    }

    #[test]
    fn numbers_beyond_64_bits_are_too_large_not_wrapped() {
        for text in ["9223372036854775808", "18446744073709551617", "0xffffffffffffffffff"] {
            assert!(number(text, 0, i64::MAX - 1).unwrap_err().contains("too large"), "{text}");
        }
        assert!(number("-99999999999999999999", -1, 1).unwrap_err().contains("too small"));
    }

    #[test]
    fn what_is_no_number_is_called_so() {
        for text in ["", "-", "+", "0x", "abc", "1.5", "1e3", "2 000", "--1", "1L", "0xg"] {
            assert!(number(text, 0, 10).unwrap_err().contains("not a whole number"), "{text}");
        }
    }

    #[test]
    fn switches_are_true_or_false_in_any_case() {
        for (text, value) in [("true", true), ("TRUE", true), ("False", false)] {
            assert_eq!(truth(text), Ok(value));
        }
        for text in ["", "yes", "1", "on", "tru"] {
            assert!(truth(text).is_err(), "{text}");
        }
    }
}
