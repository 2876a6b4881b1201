//! Reads JSON and TOML with all digits of their numbers. A value of `serde_json` has floats of 64 bits, so a number with more digits that
//! matter becomes a string, which [`Number`] reads by its digits.

use std::collections::BTreeMap;

use gpufleet::schema::Number;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value, value::RawValue};
use toml::de::{DeTable, DeValue};

type Object = Map<String, Value>;

pub fn of_json(text: &str) -> Result<Object, serde_json::Error> {
    // The errors of the whole have the right place.
    serde_json::from_str::<Object>(text)?;
    let items: BTreeMap<String, Exact> = serde_json::from_str(text)?;
    Ok(items.into_iter().map(|(key, item)| (key, item.0)).collect())
}

pub fn of_toml(text: &str) -> Result<Object, toml::de::Error> {
    let mut object: Object = toml::from_str(text)?;
    let exact = DeTable::parse(text)?;
    restore_table(&mut object, exact.get_ref());
    Ok(object)
}

/// Whether a float of 64 bits is not enough to round the number to fewer bits.
fn has_more_digits(text: &str) -> bool {
    matches!(text.parse(), Ok(Number::Decimal(..)))
}

struct Exact(Value);

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        let value = match text.as_bytes().first() {
            Some(b'{') => serde_json::from_str(text).map(|items: BTreeMap<String, Self>| {
                Value::Object(items.into_iter().map(|(key, item)| (key, item.0)).collect())
            }),
            Some(b'[') => {
                serde_json::from_str(text).map(|items: Vec<Self>| items.into_iter().map(|item| item.0).collect())
            }
            Some(b'-' | b'0'..=b'9') if has_more_digits(text) => Ok(Value::String(text.to_owned())),
            _ => serde_json::from_str(text),
        };
        value.map(Self).map_err(D::Error::custom)
    }
}

fn restore_table(object: &mut Object, exact: &DeTable<'_>) {
    for (key, exact) in exact {
        if let Some(value) = object.get_mut(key.get_ref().as_ref()) {
            restore(value, exact.get_ref());
        }
    }
}

fn restore(value: &mut Value, exact: &DeValue<'_>) {
    match (value, exact) {
        (Value::Object(object), DeValue::Table(exact)) => restore_table(object, exact),
        (Value::Array(items), DeValue::Array(exact)) => {
            items.iter_mut().zip(exact.iter()).for_each(|(item, exact)| restore(item, exact.get_ref()));
        }
        (value @ Value::Number(_), DeValue::Float(float)) if has_more_digits(float.as_str()) => {
            *value = Value::String(float.as_str().to_owned());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LONG: &str = "1.00000017881393432617187499";

    #[test]
    fn a_number_keeps_the_digits_that_matter_and_any_other_value_is_unchanged() {
        let json = format!(r#"{{ "a": [{{ "b": {LONG} }}, 0.1, 7, -2.5e3], "c": "x\n", "d": null, "e": true }}"#);
        let wanted = json!({ "a": [{ "b": LONG }, 0.1, 7, -2500.0], "c": "x\n", "d": null, "e": true });
        assert_eq!(Value::Object(of_json(&json).unwrap()), wanted);
        let toml = format!("a = [{{ b = {LONG} }}, 0.1, 7, -2.5e3]\n[c]\nd = {LONG}\n");
        let wanted = json!({ "a": [{ "b": LONG }, 0.1, 7, -2500.0], "c": { "d": LONG } });
        assert_eq!(Value::Object(of_toml(&toml).unwrap()), wanted);
    }

    #[test]
    fn an_error_names_its_line() {
        assert_eq!(of_json("{\n  \"a\": 1.5.2 }").unwrap_err().line(), 2);
        assert!(of_toml("a = 1\nb = [").is_err());
    }
}
