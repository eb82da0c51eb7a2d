//! A document with parts that are made of figures: each stands between two marks.
//!
//! `<!-- figures: NAME -->` begins the part of the file `NAME.json`, `<!-- end of figures -->` ends it.
//! What stands outside is written by people and never touched.

const BEGIN: &str = "<!-- figures: ";
const BEGIN_END: &str = " -->\n";
const END: &str = "<!-- end of figures -->";

/// Replaces one part.
///
/// # Errors
/// What the document lacks, in words that go on from its name: a place for the part, or the end of it. The
/// next part's end is not its own.
pub fn replace(document: &str, name: &str, part: &str) -> Result<String, String> {
    let mark = format!("{BEGIN}{name}{BEGIN_END}");
    let shown = mark.trim();
    let at = document.find(&mark).ok_or_else(|| format!("has no place for {name} ({shown})"))?;
    let (before, behind) = document.split_at(at + mark.len());
    let length = behind.find(END).unwrap_or(behind.len());
    if length == behind.len() || behind[..length].contains(BEGIN) {
        return Err(format!("has no {END} for {shown}"));
    }
    let part = part.trim();
    Ok(format!("{before}\n{part}\n\n{}", &behind[length..]))
}
