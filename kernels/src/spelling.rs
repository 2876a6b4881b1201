//! Finds the known name that is most similar to a mistyped one.

use strsim::osa_distance;

/// The maximum length of a text that is compared. No known name is as long.
const NAME_CHARS_MAX: usize = 64;
/// The minimum length of a prefix. Shorter texts are the prefix of too many names.
const PREFIX_CHARS_MIN: usize = 3;

/// Returns the name of `known` that is most similar to `typed`, if one is similar enough to suggest.
pub fn closest<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if typed.len() > NAME_CHARS_MAX {
        return None;
    }
    let typed = plain(typed.trim());
    let known: Vec<&str> = known.collect();
    let nearest = known.iter().map(|name| (osa_distance(&typed, &plain(name)), *name)).min();
    let shared = |name: &&str| typed.len().min(name.len()) >= PREFIX_CHARS_MIN && begins(&typed, &plain(name));
    match nearest {
        Some((slips, name)) if is_slip(slips, typed.chars().count().max(name.chars().count())) => Some(name),
        _ => known.into_iter().find(shared),
    }
}

/// Removes differences that are common mistakes: capitals, and a dash instead of an underscore.
fn plain(word: &str) -> String {
    word.to_lowercase().replace('-', "_")
}

/// Returns whether this number of slips is a plausible mistake for words of at most this many letters: one slip, or one for each four
/// letters, and at most half of the word. So `y` is not taken for `x`.
const fn is_slip(slips: usize, letters: usize) -> bool {
    let slips_max = if letters < 8 { 1 } else { letters / 4 };
    slips <= slips_max && 2 * slips <= letters
}

/// Returns whether one word is a prefix of the other.
fn begins(one: &str, other: &str) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

#[cfg(test)]
mod tests {
    use super::closest;

    const KNOWN: [&str; 4] = ["saxpy", "matmul_tiled", "reduce_sum", "transpose"];

    #[test]
    fn a_near_miss_or_a_beginning_is_suggested_and_noise_is_not() {
        let known = || KNOWN.into_iter();
        assert_eq!(closest("saxpi", known()), Some("saxpy"));
        assert_eq!(closest("Reduce-Sum", known()), Some("reduce_sum"));
        assert_eq!(closest("matmul", known()), Some("matmul_tiled"));
        assert_eq!(closest("sapxy", known()), Some("saxpy"));
        assert_eq!(closest("transpsoe", known()), Some("transpose"));
        assert_eq!(closest("taem-a", ["team-a", "default"].into_iter()), Some("team-a"));
        assert_eq!(closest("fourier", known()), None);
        assert_eq!(closest("sobel", known()), None);
        assert_eq!(closest("", known()), None);
        assert_eq!(closest(&"s".repeat(1000), known()), None);
    }

    #[test]
    fn another_short_name_is_not_a_misspelling() {
        assert_eq!(closest("b", ["a", "x", "y"].into_iter()), None);
        assert_eq!(closest("xx", ["x", "y"].into_iter()), Some("x"));
        assert_eq!(closest("jobs", ["blobs", "logs"].into_iter()), None);
        assert_eq!(closest("start", ["stats", "top"].into_iter()), None);
    }
}
