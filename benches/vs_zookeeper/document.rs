//! A document with parts that are made of figures: each stands between two marks.
//!
//! `<!-- figures: NAME -->` begins the part of the file `NAME.json`, `<!-- end of figures -->` ends it.
//! What stands outside is written by people and never touched.

const BEGIN: &str = "<!-- figures: ";
const BEGIN_END: &str = " -->\n";
const END: &str = "<!-- end of figures -->";

/// Replaces one part; `None` if the document has no place for it.
pub fn replace(document: &str, name: &str, part: &str) -> Option<String> {
    let mark = format!("{BEGIN}{name}{BEGIN_END}");
    let begins = document.find(&mark)? + mark.len();
    let ends = begins + document[begins..].find(END)?;
    let part = part.trim();
    Some(format!("{}\n{part}\n\n{}", &document[..begins], &document[ends..]))
}
