//! Mutations that leave most of a text valid PTX: lines and words move, and numbers become edge values. Mutations of
//! single bytes, which libFuzzer makes itself, seldom get past the parser.

use std::ops::Range;

/// Numbers at the limits of fields, counts and sizes.
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "3",
    "-1",
    "16",
    "31",
    "33",
    "255",
    "65536",
    "2147483647",
    "4294967295",
    "1099511627776",
    "18446744073709551615",
    "0x8000000000000000",
];

/// Mutates `data`, whose first `size` bytes are a text; returns the new size, or `None` if nothing changed.
pub fn mutate(data: &mut [u8], size: usize, seed: u32) -> Option<usize> {
    // Mixes the seed, because small seeds would give only small numbers.
    let mut random = Random(u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let text = &data[..size];
    let changed = match random.below(6) {
        0 => replace(text, pick(&lines(text), &mut random)?, &[]),
        1 | 2 => {
            let lines = lines(text);
            let (from, to) = (pick(&lines, &mut random)?, pick(&lines, &mut random)?);
            replace(text, to.start..to.start, &text[from])
        }
        3 | 4 => {
            let words = words(text);
            let (from, to) = (pick(&words, &mut random)?, pick(&words, &mut random)?);
            replace(text, to, &text[from])
        }
        _ => {
            let numbers: Vec<_> = words(text).into_iter().filter(|word| text[word.start].is_ascii_digit()).collect();
            replace(text, pick(&numbers, &mut random)?, NUMBERS[random.below(NUMBERS.len())].as_bytes())
        }
    };
    let target = data.get_mut(..changed.len())?;
    target.copy_from_slice(&changed);
    Some(changed.len())
}

fn replace(text: &[u8], range: Range<usize>, with: &[u8]) -> Vec<u8> {
    [&text[..range.start], with, &text[range.end..]].concat()
}

fn pick(ranges: &[Range<usize>], random: &mut Random) -> Option<Range<usize>> {
    if ranges.is_empty() { None } else { Some(ranges[random.below(ranges.len())].clone()) }
}

/// Returns the lines with their line ends.
fn lines(text: &[u8]) -> Vec<Range<usize>> {
    split(text.split_inclusive(|byte| *byte == b'\n'))
}

/// Returns the runs of letters and digits, with a leading sign or dot.
fn words(text: &[u8]) -> Vec<Range<usize>> {
    let mut words = split(text.chunk_by(|_, next| is_inside(*next)));
    words.retain(|word| word.len() > 1 || text[word.start].is_ascii_alphanumeric());
    words
}

fn is_inside(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'$')
}

/// Returns the ranges of consecutive parts.
fn split<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Vec<Range<usize>> {
    let mut end = 0;
    let mut range = |part: &[u8]| {
        let start = end;
        end += part.len();
        start..end
    };
    parts.map(&mut range).collect()
}

/// An xorshift generator. libFuzzer passes the seed and expects equal seeds to give equal mutations.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }
}
