//! The file of `export` and `import`: a part of a tree as one JSON object, a znode in a line.
//!
//! *Owns* the format. *Invariants*: it is read znode by znode, so that its size is bounded by no memory; parents come
//! before their children, and none comes twice; what is unknown in a znode is ignored, but a version that is unknown is
//! refused. *Never* knows where the znodes are written.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};
use std::rc::Rc;

use bytes::Bytes;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Value, json};

use super::acl;
use super::output::{data_field, from_base64};
use crate::cli::graft::{Wanted, creates, placed};
use crate::proto::{Acl, Stat, Text};
use crate::tree::{Owner, ZnodePath, path};

/// What the file says it is.
const FORMAT: &str = "lockkeeper-znodes";
/// The version that is written, and the last that is understood.
const VERSION: u64 = 1;
/// Longest znode in the file, bytes: six times the longest that servers usually take, because text may be written out.
const ZNODE_BYTES_MAX: usize = 16 << 20;
/// Longest time to live: ZooKeeper has 40 bits for it.
const TTL_MS_MAX: i64 = (1 << 40) - 1;

/// A znode as clients see it.
pub(super) struct Seen {
    pub(super) data: Option<Bytes>,
    pub(super) acl: Vec<Acl>,
    pub(super) stat: Stat,
}

/// What comes before the znodes.
pub(super) fn beginning(root: &str) -> String {
    let (format, release) = (json!(FORMAT), json!(env!("CARGO_PKG_VERSION")));
    format!(
        "{{\n\"format\": {format},\n\"version\": {VERSION},\n\"release\": {release},\n\"root\": {},\n\"znodes\": [",
        line(&json!(root))
    )
}

/// A znode, without a comma; `at` is its path below the root, which is `/` itself.
pub(super) fn znode(at: &str, seen: &Seen) -> String {
    let Seen { data, acl, stat } = seen;
    let mut fields = Map::new();
    fields.insert("path".into(), at.into());
    let (name, value) = data_field(data.as_ref());
    fields.insert(name.into(), value);
    let acl: Vec<Value> = acl
        .iter()
        .map(|Acl { perms, scheme, id }| {
            json!({ "scheme": scheme.as_str(), "id": id.as_str(), "perms": acl::letters(*perms) })
        })
        .collect();
    fields.insert("acl".into(), acl.into());
    // Servers show it of old containers alone: to clients the others look like persistent znodes.
    if Owner::from_encoded(stat.ephemeral_owner) == Owner::Container {
        fields.insert("kind".into(), "container".into());
    }
    fields.insert("next_child".into(), creates(stat).into());
    fields.insert("stat".into(), super::output::stat_json(stat));
    line(&Value::Object(fields))
}

/// What comes behind them. `ephemerals`: those that were left out, by their paths below the root.
pub(super) fn end(ephemerals: &[String]) -> String {
    format!("\n],\n\"ephemerals_left_out\": {}\n}}\n", line(&json!(ephemerals)))
}

/// JSON in one line; a terminal takes nothing of it for a command.
fn line(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(is_command) {
        return text;
    }
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            character if is_command(character) => {
                plain += &format!("\\u{:04x}", u32::from(character))
            }
            character => plain.push(character),
        }
    }
    plain
}

/// Of the control characters, JSON writes those out that are below a blank.
fn is_command(character: char) -> bool {
    ('\u{7f}'..='\u{9f}').contains(&character)
}

/// Takes the znodes of a file.
pub(super) type TakeZnode<'a> = &'a mut dyn FnMut(Wanted) -> Result<(), String>;

/// Reads a file, whose znodes get `root`, which is a path, in front of theirs.
///
/// # Errors
/// It is no such file, with the line; or the first error of `take`.
pub(super) fn read(from: impl Read, root: &str, take: TakeZnode<'_>) -> Result<(), String> {
    let left = Rc::new(Cell::new(ZNODE_BYTES_MAX));
    let from = Limited { from, left: Rc::clone(&left) };
    let mut document = serde_json::Deserializer::from_reader(from);
    let visitor = Document { znodes: Znodes { root, left: &left, last: None, take } };
    document
        .deserialize_map(visitor)
        .and_then(|()| document.end())
        .map_err(|error| error.to_string())
}

/// Reads no more than what is left.
struct Limited<R> {
    from: R,
    left: Rc<Cell<usize>>,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        let left = self.left.get().checked_sub(read).ok_or_else(|| {
            io::Error::other(format!("a znode has more than {} MiB", ZNODE_BYTES_MAX >> 20))
        })?;
        self.left.set(left);
        Ok(read)
    }
}

/// The whole object.
struct Document<'a> {
    znodes: Znodes<'a>,
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object: the file of `export`")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let (mut is_known, mut has_znodes) = ((false, false), false);
        let wrong = A::Error::custom::<String>;
        while let Some(key) = map.next_key::<String>()? {
            self.znodes.left.set(ZNODE_BYTES_MAX);
            match key.as_str() {
                "format" => {
                    let format: String = map.next_value()?;
                    if format != FORMAT {
                        return Err(wrong(format!("its format is `{format}`, not `{FORMAT}`")));
                    }
                    is_known.0 = true;
                }
                "version" => {
                    let version: u64 = map.next_value()?;
                    if version != VERSION {
                        return Err(wrong(format!(
                            "its version is {version}, and this release reads {VERSION}"
                        )));
                    }
                    is_known.1 = true;
                }
                "znodes" if is_known != (true, true) => {
                    return Err(wrong(
                        "`format` and `version` have to stand before `znodes`".into(),
                    ));
                }
                "znodes" if has_znodes => return Err(wrong("it has `znodes` twice".into())),
                "znodes" => {
                    map.next_value_seed(&mut self.znodes)?;
                    has_znodes = true;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if self.znodes.last.is_none() {
            return Err(wrong("it has no znodes: it is not what `export` writes".into()));
        }
        Ok(())
    }
}

/// The list of them.
struct Znodes<'a> {
    root: &'a str,
    left: &'a Cell<usize>,
    /// The path of the last one, below the root.
    last: Option<String>,
    take: TakeZnode<'a>,
}

impl<'de> DeserializeSeed<'de> for &mut Znodes<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for &mut Znodes<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of znodes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        loop {
            self.left.set(ZNODE_BYTES_MAX);
            let Some(fields) = list.next_element::<Map<String, Value>>()? else { return Ok(()) };
            let taken = wanted(&fields).and_then(|mut znode| {
                check_order(self.last.as_deref(), &znode.path)?;
                let at = placed(self.root, &znode.path);
                self.last = Some(std::mem::replace(&mut znode.path, at));
                (self.take)(znode)
            });
            taken.map_err(A::Error::custom)?;
        }
    }
}

/// Parents before their children, and each once: so by the names on the way to them.
fn check_order(last: Option<&str>, at: &str) -> Result<(), String> {
    let Some(last) = last else {
        return match at {
            path::ROOT => Ok(()),
            _ => Err(format!("the first znode is {at}: it has to be /, which stands for the root")),
        };
    };
    if at.split('/').le(last.split('/')) || at == path::ROOT {
        return Err(format!(
            "{at} stands behind {last}: the znodes have to be in the order of their names, each once"
        ));
    }
    let parent = at.rsplit_once('/').map_or("", |(parent, _)| parent);
    let has_parent =
        last == parent || last.strip_prefix(parent).is_some_and(|rest| rest.starts_with('/'));
    if has_parent { Ok(()) } else { Err(format!("{at}: its parent is missing")) }
}

/// A znode of the file, with its path there.
fn wanted(fields: &Map<String, Value>) -> Result<Wanted, String> {
    let path = text(fields, "path")?.ok_or("a znode has no `path`")?.to_owned();
    let named = |reason: String| format!("{path}: {reason}");
    ZnodePath::parse(&path).map_err(|invalid| named(format!("the path {invalid}")))?;
    let data =
        match (text(fields, "data").map_err(named)?, text(fields, "dataBase64").map_err(named)?) {
            (Some(_), Some(_)) => return Err(named("it has `data` and `dataBase64`".into())),
            (Some(text), None) => Some(Bytes::copy_from_slice(text.as_bytes())),
            (None, Some(base64)) => {
                let bytes = from_base64(base64)
                    .map_err(|reason| named(format!("`dataBase64`: {reason}")))?;
                Some(Bytes::from(bytes))
            }
            (None, None) => None,
        };
    let acl = match fields.get("acl").and_then(Value::as_array) {
        Some(list) if !list.is_empty() => {
            list.iter().map(entry).collect::<Result<Vec<Acl>, String>>().map_err(named)?
        }
        Some(_) | None => return Err(named("`acl` has to be a list of at least one entry".into())),
    };
    let owner = owner(fields).map_err(named)?;
    let creates = number(fields, "next_child", i64::from(i32::MAX)).map_err(named)?.unwrap_or(0);
    Ok(Wanted { data, acl, owner, creates, is_part: true, path })
}

fn owner(fields: &Map<String, Value>) -> Result<Owner, String> {
    let ttl_ms = number(fields, "ttl_ms", TTL_MS_MAX)?;
    match (text(fields, "kind")?, ttl_ms) {
        (None | Some("persistent"), None) => Ok(Owner::Persistent),
        (Some("container"), None) => Ok(Owner::Container),
        (Some("ttl"), Some(ttl_ms @ 1..)) => Ok(Owner::Ttl(ttl_ms)),
        (Some("ttl"), Some(_) | None) => Err("`ttl_ms` has to be there, and more than 0".into()),
        (Some(kind @ ("persistent" | "container")), Some(_)) => {
            Err(format!("`kind` is {kind}, which has no `ttl_ms`"))
        }
        (None, Some(_)) => Err("`ttl_ms` needs `\"kind\": \"ttl\"`".into()),
        (Some(kind), _) => Err(format!("`kind` is {kind:?}: persistent, container or ttl")),
    }
}

fn entry(entry: &Value) -> Result<Acl, String> {
    let fields = entry.as_object().ok_or("an entry of `acl` is no object")?;
    let field =
        |name| text(fields, name)?.ok_or_else(|| format!("an entry of `acl` has no `{name}`"));
    let (scheme, id) = (field("scheme")?, field("id")?);
    let letters = field("perms")?;
    let perms = acl::perms_of(letters)
        .map_err(|letter| format!("`perms` is {letters:?}: there is no permission `{letter}`"))?;
    Ok(Acl { perms, scheme: Text::copy_from(scheme), id: Text::copy_from(id) })
}

fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, String> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{name}` has to be text")),
    }
}

fn number(fields: &Map<String, Value>, name: &str, max: i64) -> Result<Option<i64>, String> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_i64() {
            Some(number) if (0..=max).contains(&number) => Ok(Some(number)),
            Some(_) | None => Err(format!("`{name}` has to be a number from 0 to {max}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(data: Option<&'static [u8]>) -> Seen {
        let stat = Stat { cversion: 7, num_children: 1, version: 3, ..Stat::default() };
        Seen { data: data.map(Bytes::from_static), acl: vec![Acl::open()], stat }
    }

    fn file(znodes: &[String]) -> String {
        format!("{}\n{}{}", beginning("/app"), znodes.join(",\n"), end(&["/lock".into()]))
    }

    fn read_all(text: &str, root: &str) -> Result<Vec<Wanted>, String> {
        let mut all = Vec::new();
        read(text.as_bytes(), root, &mut |znode| {
            all.push(znode);
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn what_is_written_is_read_back_below_another_root() {
        let datas: [Option<&[u8]>; 5] =
            [None, Some(b""), Some(b"two\nlines \x7f\xc2\x9b"), Some(b"\xff\0"), Some(b"\"{}")];
        let paths = ["/", "/a", "/a/b", "/a/c", "/a-b"];
        let znodes: Vec<String> =
            paths.iter().zip(datas).map(|(at, data)| znode(at, &seen(data))).collect();
        let text = file(&znodes);
        assert!(!text.contains('\u{7f}') && !text.contains('\u{9b}'));
        for (root, placed) in [
            ("/", ["/", "/a", "/a/b", "/a/c", "/a-b"]),
            ("/x", ["/x", "/x/a", "/x/a/b", "/x/a/c", "/x/a-b"]),
        ] {
            let all = read_all(&text, root).unwrap();
            for ((znode, data), at) in all.iter().zip(datas).zip(placed) {
                assert_eq!((znode.path.as_str(), znode.data.as_deref()), (at, data));
                assert_eq!((znode.creates, znode.owner), (4, Owner::Persistent));
                assert_eq!(znode.acl, [Acl::open()]);
            }
            assert_eq!(all.len(), 5);
        }
        let pretty: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read_all(&format!("{pretty:#}"), "/").unwrap().len(), 5);
    }

    #[test]
    fn every_cut_of_a_file_is_noticed() {
        let text = file(&[znode("/", &seen(None)), znode("/a", &seen(Some(b"x")))]);
        let end = text.trim_end().len();
        for length in 0..end {
            assert!(read_all(&text[..length], "/").is_err(), "{}", &text[..length]);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let open = r#""acl":[{"scheme":"world","id":"anyone","perms":"cdrwa"}]"#;
        let root = format!(r#"{{"path":"/",{open}}}"#);
        for (znodes, says) in [
            (String::new(), "it has no znodes"),
            (r#"{"data":"x"}"#.into(), "a znode has no `path`"),
            (format!(r#"{{"path":"/a",{open}}}"#), "the first znode is /a"),
            (format!(r#"{root},{{"path":"a",{open}}}"#), "a: the path does not start with /"),
            (format!("{root},{root}"), "each once"),
            (format!(r#"{root},{{"path":"/a/b",{open}}}"#), "/a/b: its parent is missing"),
            (
                format!(r#"{root},{{"path":"/b",{open}}},{{"path":"/a",{open}}}"#),
                "in the order of their names",
            ),
            (r#"{"path":"/"}"#.into(), "`acl` has to be a list"),
            (r#"{"path":"/","acl":[]}"#.into(), "at least one entry"),
            (r#"{"path":"/","acl":[{"scheme":"world"}]}"#.into(), "has no `id`"),
            (
                r#"{"path":"/","acl":[{"scheme":"world","id":"anyone","perms":"rx"}]}"#.into(),
                "no permission `x`",
            ),
            (format!(r#"{{"path":"/",{open},"data":7}}"#), "`data` has to be text"),
            (format!(r#"{{"path":"/",{open},"dataBase64":"?"}}"#), "not base64"),
            (format!(r#"{{"path":"/",{open},"data":"","dataBase64":""}}"#), "`data` and"),
            (format!(r#"{{"path":"/",{open},"kind":"ephemeral"}}"#), "persistent, container or"),
            (format!(r#"{{"path":"/",{open},"kind":"ttl"}}"#), "`ttl_ms` has to be there"),
            (format!(r#"{{"path":"/",{open},"ttl_ms":5}}"#), "needs `\"kind\": \"ttl\"`"),
            (format!(r#"{{"path":"/",{open},"next_child":-1}}"#), "from 0 to 2147483647"),
        ] {
            let said = read_all(&file(std::slice::from_ref(&znodes)), "/").unwrap_err();
            assert!(said.contains(says) && !said.contains('\n'), "{znodes}: {said}");
        }
    }

    #[test]
    fn a_file_of_another_format_or_version_is_refused() {
        let text = file(&[znode("/", &seen(None))]);
        for (from, to, says) in [
            ("\"version\": 1", "\"version\": 2", "its version is 2"),
            (FORMAT, "other", "its format is `other`"),
            ("\"format\"", "\"formed\"", "have to stand before"),
            ("{\n", "[\n", "the file of `export`"),
        ] {
            let said = read_all(&text.replacen(from, to, 1), "/").unwrap_err();
            assert!(said.contains(says), "{said}");
        }
    }

    #[test]
    fn a_znode_has_a_limit_and_a_file_has_none() {
        let long = |bytes: usize| {
            let data = "x".repeat(bytes);
            format!(
                r#"{{"path":"/","data":"{data}","acl":[{{"scheme":"world","id":"anyone","perms":"r"}}]}}"#
            )
        };
        assert!(read_all(&file(&[long(ZNODE_BYTES_MAX - 200)]), "/").is_ok());
        let said = read_all(&file(&[long(ZNODE_BYTES_MAX)]), "/").unwrap_err();
        assert!(said.contains("more than 16 MiB"), "{said}");
    }
}
