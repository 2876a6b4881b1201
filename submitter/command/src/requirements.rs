//! Parses what a job requires of its device.

use std::str::FromStr;

/// A number of bytes, such as `40GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(pub u64);

/// A compute capability, such as `8.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability {
    pub major: u32,
    pub minor: u32,
}

/// The expected form, which clap prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected {0}")]
pub struct FormError(&'static str);

const SIZE: FormError = FormError("a whole number with a unit, B, KiB, MiB, GiB or TiB, as in 40GiB");
const CAPABILITY: FormError = FormError("major and minor version, as in 8.0");
/// The units with their powers of two. The last one is a suffix of all others. A number without a unit is refused, because 40 looks like 40 GiB.
const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

impl FromStr for ByteSize {
    type Err = FormError;

    fn from_str(text: &str) -> Result<Self, FormError> {
        let found = UNITS.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?.trim_end(), shift)));
        let (digits, shift) = found.ok_or(SIZE)?;
        let number: u64 = digits.parse().map_err(|_| SIZE)?;
        number.checked_mul(1 << shift).map(Self).ok_or(SIZE)
    }
}

impl FromStr for Capability {
    type Err = FormError;

    fn from_str(text: &str) -> Result<Self, FormError> {
        let (major, minor) = text.split_once('.').ok_or(CAPABILITY)?;
        let number = |text: &str| text.parse().map_err(|_| CAPABILITY);
        Ok(Self { major: number(major)?, minor: number(minor)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in
            [("17B", 17), ("3KiB", 3 << 10), ("96 MiB", 96 << 20), ("40GiB", 40 << 30), ("1TiB", 1 << 40)]
        {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "40", "GiB", "1.5GiB", "40GB", "-1B", "99999999999GiB"] {
            assert_eq!(text.parse::<ByteSize>(), Err(SIZE), "{text}");
        }
    }

    #[test]
    fn a_capability_has_a_major_and_a_minor_version() {
        assert_eq!("9.0".parse(), Ok(Capability { major: 9, minor: 0 }));
        for text in ["", "9", "9.", ".0", "9.0.1", "sm_90"] {
            assert_eq!(text.parse::<Capability>(), Err(CAPABILITY), "{text}");
        }
    }
}
