//! Scans MessagePack's headers before anything is decoded.
//!
//! The scan checks that every claimed length fits into the body, and that no value nests deeper than a bound. After it,
//! a decoder that reserves memory by claimed lengths never reserves more than the size of the body.

/// The deepest type has seven levels; unknown fields, which are skipped, may have more.
const DEPTH_MAX: usize = 32;

pub(super) fn check(body: &[u8]) -> Result<(), String> {
    let mut rest = body;
    // The number of items that are still missing in each open array or map.
    let mut open: Vec<u64> = Vec::with_capacity(DEPTH_MAX);
    loop {
        let items = value(&mut rest)?;
        if items > rest.len() as u64 {
            return Err(format!("a list declares {items} items, but only {} bytes follow", rest.len()));
        }
        if items > 0 {
            if open.len() == DEPTH_MAX {
                return Err(format!("it nests deeper than {DEPTH_MAX} levels"));
            }
            open.push(items);
            continue;
        }
        loop {
            match open.last_mut() {
                None if rest.is_empty() => return Ok(()),
                None => return Err(format!("{} extra bytes follow the value", rest.len())),
                Some(left) => *left -= 1,
            }
            match open.last() {
                Some(0) => open.pop(),
                _ => break,
            };
        }
    }
}

/// The complete items of a list.
pub(super) fn items(body: &[u8]) -> Vec<&[u8]> {
    let mut rest = body;
    let count = value(&mut rest).unwrap_or(0);
    (0..count).map_while(|_| item(&mut rest)).collect()
}

/// Skips a value with all its contents.
pub(super) fn item<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let whole = *rest;
    let mut open = 1_u64;
    while open > 0 {
        open = open - 1 + value(rest).ok()?;
    }
    Some(&whole[..whole.len() - rest.len()])
}

/// Skips one value's header and flat contents. Returns the number of values that it contains.
pub(super) fn value(rest: &mut &[u8]) -> Result<u64, String> {
    let marker = uint(rest, 1)?;
    let (flat, items) = match marker {
        0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => (0, 0),
        0x80..=0x8f => (0, (marker & 0x0f) * 2),
        0x90..=0x9f => (0, marker & 0x0f),
        0xa0..=0xbf => (marker & 0x1f, 0),
        0xc4 | 0xd9 => (uint(rest, 1)?, 0),
        0xc5 | 0xda => (uint(rest, 2)?, 0),
        0xc6 | 0xdb => (uint(rest, 4)?, 0),
        0xc7 => (uint(rest, 1)? + 1, 0),
        0xc8 => (uint(rest, 2)? + 1, 0),
        0xc9 => (uint(rest, 4)? + 1, 0),
        0xcc | 0xd0 => (1, 0),
        0xcd | 0xd1 => (2, 0),
        0xca | 0xce | 0xd2 => (4, 0),
        0xcb | 0xcf | 0xd3 => (8, 0),
        0xd4..=0xd8 => ((1 << (marker - 0xd4)) + 1, 0),
        0xdc => (0, uint(rest, 2)?),
        0xdd => (0, uint(rest, 4)?),
        0xde => (0, uint(rest, 2)? * 2),
        0xdf => (0, uint(rest, 4)? * 2),
        _ => return Err(format!("byte {marker:#04x} does not start a value")),
    };
    let flat = usize::try_from(flat).expect("a length of 32 bits fits usize");
    *rest = rest.get(flat..).ok_or_else(|| format!("a value declares {flat} bytes, but only {} follow", rest.len()))?;
    Ok(items)
}

pub(super) fn uint(rest: &mut &[u8], bytes: usize) -> Result<u64, String> {
    let (head, tail) = rest.split_at_checked(bytes).ok_or("it ends in the middle of a value")?;
    *rest = tail;
    Ok(head.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_values_pass_and_every_cut_of_them_fails() {
        let value = serde_json::json!({"a": [1, 2, {"b": "text", "c": null}], "d": -1.5, "e": [[[]]], "f": {}});
        let body = rmp_serde::to_vec_named(&value).unwrap();
        assert_eq!(check(&body), Ok(()));
        for end in 0..body.len() {
            assert!(check(&body[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn a_claimed_length_beyond_the_body_is_refused() {
        assert!(check(&[0xdd, 0xff, 0xff, 0xff, 0xff]).unwrap_err().contains("4294967295 items"));
        assert!(check(&[0xc6, 0x7f, 0xff, 0xff, 0xff, 0]).unwrap_err().contains("bytes"));
        assert!(check(&[0xdf, 0x7f, 0xff, 0xff, 0xff, 0]).is_err());
    }

    #[test]
    fn deep_nesting_and_trailing_bytes_are_refused() {
        assert!(check(&[0x91; 1000]).unwrap_err().contains("deeper"));
        assert!(check(&[0xc0, 0xc0]).unwrap_err().contains("follow"));
        assert!(check(&[0xc1]).unwrap_err().contains("does not start a value"));
    }
}
