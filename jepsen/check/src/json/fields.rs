//! Typed access to the fields of a JSON object, with messages that name the field.

use serde_json::{Map, Value, json};

use crate::op::{Acl, Data, Stat};

/// What is wrong with a line, for people.
pub type Fault = String;

/// An object, and what it is called in messages.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a Map<String, Value>);

impl<'a> Fields<'a> {
    /// The fields of a value that must be an object.
    pub fn of(value: &'a Value, name: &str) -> Result<Self, Fault> {
        value.as_object().map(Fields).ok_or_else(|| format!("{name} is no object"))
    }

    /// A field, unless it is absent or null.
    pub fn maybe(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub fn need(self, name: &str) -> Result<&'a Value, Fault> {
        self.maybe(name).ok_or_else(|| format!("{name} is missing"))
    }

    pub fn text(self, name: &str) -> Result<String, Fault> {
        text(self.need(name)?).ok_or_else(|| format!("{name} is no text"))
    }

    pub fn maybe_text(self, name: &str) -> Result<Option<String>, Fault> {
        self.maybe(name).map(|_| self.text(name)).transpose()
    }

    /// A number, also as hexadecimal text: sessions do not fit what many readers of JSON hold.
    pub fn long(self, name: &str) -> Result<i64, Fault> {
        long(self.need(name)?).ok_or_else(|| format!("{name} is no number of 64 bits"))
    }

    pub fn long_or(self, name: &str, otherwise: i64) -> Result<i64, Fault> {
        self.maybe(name).map_or(Ok(otherwise), |_| self.long(name))
    }

    pub fn int(self, name: &str) -> Result<i32, Fault> {
        let fault = || format!("{name} is no number of 32 bits");
        i32::try_from(self.long(name)?).map_err(|_| fault())
    }

    pub fn int_or(self, name: &str, otherwise: i32) -> Result<i32, Fault> {
        self.maybe(name).map_or(Ok(otherwise), |_| self.int(name))
    }

    pub fn flag(self, name: &str) -> Result<bool, Fault> {
        match self.maybe(name) {
            None => Ok(false),
            Some(value) => {
                value.as_bool().ok_or_else(|| format!("{name} is neither true nor false"))
            }
        }
    }

    pub fn list(self, name: &str) -> Result<&'a [Value], Fault> {
        match self.maybe(name) {
            None => Ok(&[]),
            Some(value) => {
                value.as_array().map(Vec::as_slice).ok_or_else(|| format!("{name} is no list"))
            }
        }
    }

    pub fn texts(self, name: &str) -> Result<Vec<String>, Fault> {
        let texts = self.list(name)?.iter().map(text);
        texts.collect::<Option<_>>().ok_or_else(|| format!("{name} has what is no text"))
    }

    /// Stored bytes: text, `{"hex": ...}` if they are none, null if there are none.
    pub fn data(self, name: &str) -> Result<Data, Fault> {
        match self.maybe(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_bytes().to_vec())),
            Some(value) => {
                let hex = Fields::of(value, name)?.text("hex")?;
                bytes(&hex).map(Some).ok_or_else(|| format!("{name}.hex is not hexadecimal"))
            }
        }
    }

    pub fn stat(self, name: &str) -> Result<Stat, Fault> {
        stat(self.need(name)?).map_err(|fault| format!("{name}.{fault}"))
    }

    pub fn acl(self, name: &str) -> Result<Option<Vec<Acl>>, Fault> {
        let Some(value) = self.maybe(name) else { return Ok(None) };
        let list = value.as_array().ok_or_else(|| format!("{name} is no list"))?;
        list.iter().map(acl).collect::<Result<_, _>>().map(Some)
    }
}

pub fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

pub fn long(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => {
            let bits = u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()?;
            Some(bits.cast_signed())
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

pub fn hex(number: i64) -> Value {
    json!(format!("{number:#x}"))
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = hex.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    let pair = |pair: &[u32]| u8::try_from(pair[0] * 16 + pair[1]).expect("two digits");
    Some(digits.chunks(2).map(pair).collect())
}

/// Stored bytes as JSON.
pub fn data_value(data: &Data) -> Value {
    let Some(data) = data else { return Value::Null };
    match std::str::from_utf8(data) {
        Ok(text) => json!(text),
        Err(_) => {
            let hex: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({ "hex": hex })
        }
    }
}

pub fn stat(value: &Value) -> Result<Stat, Fault> {
    let fields = Fields::of(value, "stat")?;
    Ok(Stat {
        czxid: fields.long("czxid")?,
        mzxid: fields.long("mzxid")?,
        ctime: fields.long("ctime")?,
        mtime: fields.long("mtime")?,
        version: fields.int("version")?,
        cversion: fields.int("cversion")?,
        aversion: fields.int("aversion")?,
        ephemeral_owner: fields.long("ephemeralOwner")?,
        data_length: fields.int("dataLength")?,
        num_children: fields.int("numChildren")?,
        pzxid: fields.long("pzxid")?,
    })
}

pub fn stat_value(stat: &Stat) -> Value {
    json!({
        "czxid": stat.czxid, "mzxid": stat.mzxid, "ctime": stat.ctime, "mtime": stat.mtime,
        "version": stat.version, "cversion": stat.cversion, "aversion": stat.aversion,
        "ephemeralOwner": hex(stat.ephemeral_owner), "dataLength": stat.data_length,
        "numChildren": stat.num_children, "pzxid": stat.pzxid,
    })
}

fn acl(value: &Value) -> Result<Acl, Fault> {
    let fields = Fields::of(value, "an entry of the acl")?;
    Ok(Acl { perms: fields.int("perms")?, scheme: fields.text("scheme")?, id: fields.text("id")? })
}

pub fn acl_value(acl: &[Acl]) -> Value {
    let entry = |entry: &Acl| json!({"perms": entry.perms, "scheme": entry.scheme, "id": entry.id});
    acl.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_whether_they_are_text_or_not() {
        for data in [None, Some(vec![]), Some(b"text".to_vec()), Some(vec![0xff, 0, 0x1f])] {
            let mut object = Map::new();
            object.insert("data".to_owned(), data_value(&data));
            assert_eq!(Fields(&object).data("data"), Ok(data));
        }
    }

    #[test]
    fn a_session_is_read_as_hexadecimal_text_and_as_a_number() {
        assert_eq!(long(&json!("0xffffffffffffffff")), Some(-1));
        assert_eq!(long(&hex(i64::MIN)), Some(i64::MIN));
        assert_eq!(long(&json!(-5)), Some(-5));
        assert_eq!(long(&json!("5")), None);
        assert_eq!(long(&json!(1.5)), None);
    }
}
