//! The encoded items of a list, for a worker that forwards single items unchanged.

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
