//! The encoded items of a list: apart, for a worker that forwards single items unchanged, and together, for messages that share items which
//! are encoded already.

use super::{Encoding, scan};

impl Encoding {
    /// The bytes of each item of a decodable body; the whole body if it is not a list.
    pub fn items(self, body: &[u8]) -> Vec<&[u8]> {
        match (self.is_list(body), self) {
            (Ok(true), Self::MessagePack) => scan::items(body),
            (Ok(true), Self::Json) => json_items(body),
            (Ok(false) | Err(_), _) => vec![body],
        }
    }
}

impl Encoding {
    /// The list of these encoded items, of which there are fewer than 65,536.
    pub fn join(self, items: &[impl AsRef<[u8]>]) -> Vec<u8> {
        match self {
            Self::MessagePack => {
                // The header `array 16`.
                let count = u16::try_from(items.len()).expect("there are fewer than 65,536 items");
                let mut list = vec![0xdc];
                list.extend(count.to_be_bytes());
                items.iter().for_each(|item| list.extend_from_slice(item.as_ref()));
                list
            }
            Self::Json => {
                let items: Vec<&[u8]> = items.iter().map(AsRef::as_ref).collect();
                [b"[".as_slice(), &items.join(&b','), b"]"].concat()
            }
        }
    }
}

/// Splits a JSON list at its commas and brackets, except those in strings.
fn json_items(body: &[u8]) -> Vec<&[u8]> {
    let (mut items, mut start) = (Vec::new(), 0);
    let (mut depth, mut in_string, mut is_escaped) = (0_u32, false, false);
    for (at, byte) in body.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                depth += 1;
                if depth == 1 {
                    start = at + 1;
                }
            }
            b',' | b']' if depth == 1 => {
                items.push(body[start..at].trim_ascii());
                start = at + 1;
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    // An empty list has nothing between its brackets.
    items.retain(|item| !item.is_empty());
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_items_are_a_list_that_splits_into_them_again() {
        for (encoding, items) in [
            (Encoding::Json, [br#"{"a": [1, 2]}"#.as_slice(), br#"{"b": "],["}"#]),
            (Encoding::MessagePack, [[0x81, 0xa1, b'a', 1].as_slice(), &[0x80]]),
        ] {
            for count in 0..=items.len() {
                let items = &items[..count];
                assert_eq!(encoding.items(&encoding.join(items)), items, "{encoding:?}");
            }
        }
    }
}
