//! Reports of digests <-> bytes.
//!
//! *Owns* the encoding of what [`super::peer_codec`] has in messages about digests. *Invariants*: as there.

use super::numbers::{number, put_number, term};
use crate::proto::{Malformed, Reader};
use crate::replica::comparison::{DigestReport, Value, Window};

/// A message with a report: version, kind, definition, three numbers and two digests.
pub(super) const BYTES: usize = 3 + 3 * 8 + 2 * 16;

pub(super) fn encode(report: &DigestReport, out: &mut Vec<u8>) {
    let DigestReport { definition, window, term, value } = report;
    out.push(*definition);
    put_window(*window, out);
    put_number(*term, out);
    out.extend_from_slice(&value.digest.to_be_bytes());
    out.extend_from_slice(&value.sum.to_be_bytes());
}

pub(super) fn decode(reader: &mut Reader) -> Result<DigestReport, Malformed> {
    let definition = reader.byte("definition")?;
    let (window, term) = (window(reader)?, term(reader)?);
    let value = Value { digest: digest(reader)?, sum: digest(reader)? };
    Ok(DigestReport { definition, window, term, value })
}

pub(super) fn put_window(window: Window, out: &mut Vec<u8>) {
    put_number(window.from, out);
    put_number(window.to, out);
}

pub(super) fn window(reader: &mut Reader) -> Result<Window, Malformed> {
    let (from, to) = (number(reader, "index")?, number(reader, "index")?);
    if from > to {
        return Err(Malformed::new("window", "ends before it begins"));
    }
    Ok(Window { from, to })
}

fn digest(reader: &mut Reader) -> Result<u128, Malformed> {
    let high = u128::from(reader.long("digest")?.cast_unsigned());
    Ok(high << 64 | u128::from(reader.long("digest")?.cast_unsigned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::messages::PeerMessage;

    fn assert_written(message: &PeerMessage, hex: &str) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let written: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(written, hex.replace(' ', ""));
        assert_eq!(PeerMessage::decode(bytes.into()).as_ref(), Ok(message));
    }

    #[test]
    fn messages_about_digests_are_written_as_their_version_has_them() {
        let (term, window) = (5, Window { from: 7, to: 9 });
        assert_written(
            &PeerMessage::Compare { term, window },
            "01 08 0000000000000005 0000000000000007 0000000000000009",
        );
        let value = Value { digest: 10, sum: 11 };
        let report = DigestReport { definition: 1, window, term, value };
        assert_written(
            &PeerMessage::Digests { report },
            "01 09 01 0000000000000007 0000000000000009 0000000000000005 \
             0000000000000000000000000000000a 0000000000000000000000000000000b",
        );
    }

    #[test]
    fn a_window_that_ends_before_it_begins_is_malformed() {
        let mut bytes = Vec::new();
        let window = Window { from: 9, to: 7 };
        PeerMessage::Compare { term: 5, window }.encode(&mut bytes);
        assert!(PeerMessage::decode(bytes.into()).is_err());
    }
}
