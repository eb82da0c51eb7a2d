//! Bytes as a table of hexadecimal digits and characters, in the form that zkCli's `get -x` has.

use std::fmt::Write as _;

const ROW_BYTES: usize = 16;

/// The table; nothing for no bytes.
pub(super) fn hexdump(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return String::new();
    }
    let digits = "-".repeat(3 * ROW_BYTES + 1);
    let border = format!("+--------+{digits}+{}+", "-".repeat(ROW_BYTES));
    let columns: String = (0..ROW_BYTES).map(|column| format!("  {column:x}")).collect();
    let mut table = format!("         +{digits}+\n         |{columns} |\n{border}");
    for (number, row) in bytes.chunks(ROW_BYTES).enumerate() {
        let hex: String = row.iter().map(|byte| format!(" {byte:02x}")).collect();
        let plain = |byte: &u8| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '.' };
        let text: String = row.iter().map(plain).collect();
        let (width, offset) = (3 * ROW_BYTES, number * ROW_BYTES);
        write!(table, "\n|{offset:08x}|{hex:width$} |{text:ROW_BYTES$}|")
            .expect("a String takes everything");
    }
    format!("{table}\n{border}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_sixteen_bytes() {
        let table = hexdump(b"0123456789abcdef\n");
        let rows: Vec<&str> = table.lines().collect();
        assert_eq!(rows.len(), 6);
        assert!(rows.iter().skip(2).all(|row| row.len() == rows[2].len()));
        assert_eq!(
            rows[3],
            "|00000000| 30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66 |0123456789abcdef|"
        );
        assert!(rows[4].starts_with("|00000010| 0a    "));
        assert!(rows[4].ends_with("|.               |"));
        assert_eq!(hexdump(b""), "");
    }
}
