//! The history as Jepsen's EDN, for its checkers and for Knossos.
//!
//! What clients were told unasked has no place among Jepsen's operations: it is there as `:info` of
//! processes that do nothing else.

use serde_json::Value;

/// Lines of JSON as lines of EDN.
///
/// # Errors
/// A line that is no JSON object.
pub fn from_lines(lines: &str) -> Result<String, String> {
    let mut out = String::with_capacity(lines.len());
    for line in lines.lines().filter(|line| !line.is_empty()) {
        let value: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let object = value.as_object().ok_or("a line of the history is no object")?;
        let is_notice = object.get("type").is_some_and(|kind| kind == "notice");
        let fields = object.iter().map(|(name, value)| {
            let value = match (name.as_str(), value) {
                ("type", _) if is_notice => ":info".to_owned(),
                ("process", process) if is_notice => format!(":notices-{process}"),
                ("type" | "f" | "process", Value::String(word)) => format!(":{word}"),
                (_, value) => edn(value),
            };
            format!(":{name} {value}")
        });
        out.push_str(&format!("{{{}}}\n", fields.collect::<Vec<_>>().join(", ")));
    }
    Ok(out)
}

/// A value. Histories are nested a few levels deep: operations, parts of a multi, fields.
fn edn(value: &Value) -> String {
    match value {
        Value::Null => "nil".to_owned(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        Value::Array(values) => {
            format!("[{}]", values.iter().map(edn).collect::<Vec<_>>().join(" "))
        }
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| format!(":{name} {}", edn(value));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_become_maps_with_keywords() {
        let line =
            r#"{"f":"create","index":2,"process":0,"type":"ok","value":{"path":"/\"a","ok":null}}"#;
        let made = from_lines(line).unwrap();
        let value = r#"{:path "/\"a", :ok nil}"#;
        let expected = format!("{{:f :create, :index 2, :process 0, :type :ok, :value {value}}}\n");
        assert_eq!(made, expected);
    }

    #[test]
    fn faults_and_notices_are_info() {
        let made = from_lines(r#"{"f":"kill","process":"nemesis","type":"info"}"#).unwrap();
        assert_eq!(made, "{:f :kill, :process :nemesis, :type :info}\n");
        let made = from_lines(r#"{"f":"watch","process":3,"type":"notice"}"#).unwrap();
        assert_eq!(made, "{:f :watch, :process :notices-3, :type :info}\n");
    }
}
