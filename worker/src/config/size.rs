//! The value of an option that is a size, such as `64MiB`.

use std::{fmt, str::FromStr};

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// A text that is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a number of bytes, or a number with KiB, MiB or GiB, as in 512MiB")]
pub struct SizeError;

/// The units and their powers of two. A size is printed in the first unit that divides it.
const UNITS: [(&str, u32); 4] = [("GiB", 30), ("MiB", 20), ("KiB", 10), ("", 0)];

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let found = UNITS.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?.trim_end(), *shift)));
        let (digits, shift) = found.expect("the empty unit is a suffix of everything");
        let number: u64 = digits.parse().map_err(|_| SizeError)?;
        number.checked_mul(1 << shift).map(Self).ok_or(SizeError)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS.iter().find(|(_, shift)| self.0.is_multiple_of(1 << shift));
        let (unit, shift) = whole.expect("every number is a multiple of one");
        write!(f, "{}{unit}", self.0 >> shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_units_and_are_written_with_them() {
        for (text, bytes) in [("17", 17), ("3KiB", 3 << 10), ("96 MiB", 96 << 20), ("2GiB", 2 << 30)] {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!((size.0, size.to_string()), (bytes, text.replace(' ', "")));
        }
        for text in ["", "MiB", "1.5GiB", "10GB", "-1", "99999999999GiB"] {
            assert_eq!(text.parse::<ByteSize>(), Err(SizeError), "{text}");
        }
    }
}
