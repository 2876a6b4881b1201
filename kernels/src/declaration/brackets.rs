//! Lists of words with brackets.

/// Returns the index of the bracket that closes the one at `start`, or the number of words if none does.
pub fn closing(words: &[&str], start: usize) -> usize {
    let opening = words[start];
    let closing = match opening {
        "(" => ")",
        "[" => "]",
        "{" => "}",
        _ => ">",
    };
    let mut depth = 0_usize;
    for (index, word) in words.iter().enumerate().skip(start) {
        if *word == opening {
            depth += 1;
        } else if *word == closing {
            depth -= 1;
            if depth == 0 {
                return index;
            }
        }
    }
    words.len()
}

/// Returns the parts between the commas that are outside of brackets. An empty list has no parts.
pub fn split<'w, 'a>(words: &'w [&'a str]) -> impl Iterator<Item = &'w [&'a str]> {
    let mut depth = 0_i64;
    let parts = words.split(move |word| {
        match *word {
            "(" | "{" | "[" | "<" => depth += 1,
            ")" | "}" | "]" | ">" => depth -= 1,
            _ => {}
        }
        *word == "," && depth == 0
    });
    parts.take(if words.is_empty() { 0 } else { usize::MAX })
}

/// Returns the words outside of angle brackets, with their indices. The words inside belong to another type.
pub fn outside<'a>(words: &[&'a str]) -> impl Iterator<Item = (usize, &'a str)> {
    let mut depth = 0_i64;
    let with_depths = words.iter().enumerate().map(move |(index, word)| {
        depth -= i64::from(*word == ">");
        let outside = depth == 0;
        depth += i64::from(*word == "<");
        (outside, index, *word)
    });
    with_depths.filter_map(|(outside, index, word)| outside.then_some((index, word)))
}

/// Returns whether a word is outside of angle brackets.
pub fn has(words: &[&str], sought: &str) -> bool {
    outside(words).any(|(_, word)| word == sought)
}

/// Returns the words before the first such word outside of angle brackets.
pub fn before<'w, 'a>(words: &'w [&'a str], sought: &str) -> &'w [&'a str] {
    let end = outside(words).find(|(_, word)| *word == sought).map_or(words.len(), |(index, _)| index);
    &words[..end]
}
