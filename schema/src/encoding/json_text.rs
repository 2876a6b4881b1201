//! Reads a value of any kind, for values whose meaning this release does not know, and shows it as JSON text.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

use super::messagepack;

/// The value as one line of JSON, cut to this many bytes.
pub(crate) fn json_text(encoded: &[u8], bytes_max: usize) -> String {
    let mut text = match messagepack::from_slice::<AnyValue>(encoded) {
        Ok(AnyValue(value)) => value.to_string(),
        Err(_) => format!("({} bytes that can't be shown)", encoded.len()),
    };
    text.truncate(text.floor_char_boundary(bytes_max));
    text
}

/// A value of any kind. Bytes become base64.
pub(crate) struct AnyValue(Value);

impl fmt::Display for AnyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Value::String(text) => f.write_str(text),
            value => value.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for AnyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyVisitor).map(Self)
    }
}

struct AnyVisitor;

impl<'de> Visitor<'de> for AnyVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Value, E> {
        Ok(STANDARD.encode(bytes).into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(AnyValue(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Map::new();
        while let Some((AnyValue(key), AnyValue(value))) = map.next_entry()? {
            let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
            entries.insert(key, value);
        }
        Ok(entries.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_shown_within_the_bound() {
        let value = (1, -2, 0.5, true, Option::<u8>::None, "ä\n", serde_bytes::Bytes::new(b"\x00\xff"));
        let encoded = rmp_serde::to_vec_named(&value).unwrap();
        let shown = r#"[1,-2,0.5,true,null,"ä\n","AP8="]"#;
        assert_eq!(json_text(&encoded, 1000), shown);
        assert_eq!(json_text(&encoded, 24), r#"[1,-2,0.5,true,null,"ä\"#);
        let by_number = [0x81, 0x01, 0xc0];
        assert_eq!(json_text(&by_number, 100), r#"{"1":null}"#);
        assert_eq!(json_text(&[0xd4, 1, 2], 100), "(3 bytes that can't be shown)");
    }
}
