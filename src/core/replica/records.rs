//! Records on their way from the state to the disk.
//!
//! *Owns* the buffer that many of them travel in: two allocations for a thousand records, made by the
//! thread that serves and freed by the one that writes. *Never* is a format of the disk.

use std::fmt;

/// One record of the state: a znode (its key is its path), a session or another part of the
/// machine (keys that do not begin with `/`). Keys are unique; sorted by key, a parent comes before
/// its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value; `None` when the record is gone.
    pub value: Option<&'a [u8]>,
}

/// Many records, in the order in which they were added.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Records {
    /// Keys and values, one behind the other.
    bytes: Vec<u8>,
    /// Where a key ends, and where its value does, if there is one.
    ends: Vec<(usize, Option<usize>)>,
}

impl Records {
    /// Adds a record.
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.ends.push((key_end, value.map(|_| self.bytes.len())));
    }

    /// All of them, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        let mut start = 0;
        self.ends.iter().map(move |&(key_end, value_end)| {
            let key = &self.bytes[start..key_end];
            start = value_end.unwrap_or(key_end);
            Record { key, value: value_end.map(|end| &self.bytes[key_end..end]) }
        })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Records({}, {} bytes)", self.ends.len(), self.bytes.len())
    }
}

impl<'a> FromIterator<Record<'a>> for Records {
    fn from_iter<I: IntoIterator<Item = Record<'a>>>(iter: I) -> Self {
        let mut records = Self::default();
        for record in iter {
            records.push(record.key, record.value);
        }
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_as_they_went_in_and_an_empty_value_is_not_a_removal() {
        let given = [
            Record { key: b"", value: Some(b"empty key") },
            Record { key: b"/a", value: None },
            Record { key: b"/a", value: Some(b"") },
            Record { key: b"/b", value: Some(b"1") },
            Record { key: b"/c", value: None },
        ];
        let records: Records = given.into_iter().collect();
        assert_eq!(records.iter().collect::<Vec<_>>(), given);
        assert_eq!((records.len(), records.is_empty()), (5, false));
        assert!(Records::default().is_empty());
    }
}
