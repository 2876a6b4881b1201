//! Finds the known name that is most similar to a mistyped one.

/// Longer texts are not compared, because no known name is as long.
const NAME_CHARS_MAX: usize = 64;
/// Shorter texts are the prefix of too many names.
const PREFIX_CHARS_MIN: usize = 3;

/// The name of `known` that is most similar to `typed`, if one is similar enough to suggest.
pub fn closest<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if typed.len() > NAME_CHARS_MAX {
        return None;
    }
    let typed = typed.trim().to_lowercase().replace('-', "_");
    let known: Vec<&str> = known.collect();
    let slips_max = 1 + typed.chars().count() / 4;
    let nearest = known.iter().map(|name| (slips(&typed, name), *name)).min();
    let shared = |name: &&str| typed.len().min(name.len()) >= PREFIX_CHARS_MIN && begins(&typed, name);
    match nearest {
        Some((slips, name)) if slips <= slips_max => Some(name),
        _ => known.into_iter().find(shared),
    }
}

/// Whether one word is a prefix of the other.
fn begins(one: &str, other: &str) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// The edit distance: how many letters to insert, remove or replace to get from one word to the other.
fn slips(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (taken, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = taken + 1;
        for (column, wanted) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *wanted);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::{closest, slips};

    const KNOWN: [&str; 4] = ["saxpy", "matmul_tiled", "reduce_sum", "transpose"];

    #[test]
    fn slips_count_single_letters() {
        assert_eq!(slips("saxpy", "saxpy"), 0);
        assert_eq!(slips("sacpy", "saxpy"), 1);
        assert_eq!(slips("", "abc"), 3);
        assert_eq!(slips("kitten", "sitting"), 3);
    }

    #[test]
    fn a_near_miss_or_a_beginning_is_suggested_and_noise_is_not() {
        let known = || KNOWN.into_iter();
        assert_eq!(closest("saxpi", known()), Some("saxpy"));
        assert_eq!(closest("Reduce-Sum", known()), Some("reduce_sum"));
        assert_eq!(closest("matmul", known()), Some("matmul_tiled"));
        assert_eq!(closest("fourier", known()), None);
        assert_eq!(closest("", known()), None);
        assert_eq!(closest(&"s".repeat(1000), known()), None);
    }
}
