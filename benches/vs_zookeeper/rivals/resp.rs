//! The protocol of Redis, as much of it as locks need.

use std::io::Write as _;

/// Longest line or text in an answer; a longer one is no answer to what is asked here.
const LENGTH_MAX: usize = 64 * 1024;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A word such as `OK`.
    Word(String),
    Number(i64),
    Text(Vec<u8>),
    /// There is no value.
    Nothing,
    Refusal(String),
}

/// Appends a command.
pub fn command(words: &[&[u8]], out: &mut Vec<u8>) {
    let written = "writing to a Vec cannot fail";
    write!(out, "*{}\r\n", words.len()).expect(written);
    for word in words {
        write!(out, "${}\r\n", word.len()).expect(written);
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// The first whole answer and its length; `None` if more bytes are needed.
pub fn answer(bytes: &[u8]) -> Result<Option<(Answer, usize)>, String> {
    let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else {
        return if bytes.len() > LENGTH_MAX {
            Err("an endless answer".to_owned())
        } else {
            Ok(None)
        };
    };
    // A kind of one byte comes before the line's text.
    let line = String::from_utf8_lossy(bytes.get(1..end).unwrap_or_default()).into_owned();
    let used = end + 2;
    let number = || line.parse::<i64>().map_err(|_| format!("{line} is no number"));
    let whole = match bytes[0] {
        b'+' => Answer::Word(line),
        b'-' => Answer::Refusal(line),
        b':' => Answer::Number(number()?),
        b'$' => {
            let Ok(length) = usize::try_from(number()?) else {
                return Ok(Some((Answer::Nothing, used)));
            };
            if length > LENGTH_MAX {
                return Err(format!("a text of {length} bytes"));
            }
            let Some(text) = bytes.get(used..used + length + 2) else { return Ok(None) };
            return Ok(Some((Answer::Text(text[..length].to_vec()), used + length + 2)));
        }
        other => return Err(format!("an answer that begins with byte {other}")),
    };
    Ok(Some((whole, used)))
}
