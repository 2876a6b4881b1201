//! The words of CUDA C, without comments. Macros without parameters are replaced by their meaning.

use std::collections::BTreeMap;

/// The words of the code. Strings and characters are one word each.
pub fn tokens(code: &str) -> Vec<&str> {
    let mut macros: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut found = Vec::new();
    let mut rest = code;
    let mut begins_line = true;
    while let Some(first) = rest.chars().next() {
        if begins_line && first == '#' {
            let (directive, after) = rest.split_at(end_of_directive(rest));
            if let Some((name, meaning)) = definition(directive) {
                macros.insert(name, meaning);
            }
            rest = after;
            continue;
        }
        let (token, after) = rest.split_at(length(rest));
        rest = after;
        begins_line = token.contains('\n') || (begins_line && token.trim().is_empty());
        if is_word(token) {
            expand(token, &macros, &mut found);
        }
    }
    found
}

/// The index of the bracket that closes the one at `start`, or the number of words.
pub fn closing(tokens: &[&str], start: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(start) {
        match *token {
            "(" | "{" | "[" => depth += 1,
            ")" | "}" | "]" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return index;
        }
    }
    tokens.len()
}

/// The parts between the commas that are outside of brackets.
pub fn split<'a, 'b>(tokens: &'b [&'a str]) -> Vec<&'b [&'a str]> {
    let mut depth = 0_i32;
    tokens
        .split(|token| {
            match *token {
                "(" | "{" | "[" | "<" => depth += 1,
                ")" | "}" | "]" | ">" => depth -= 1,
                _ => {}
            }
            *token == "," && depth == 0
        })
        .collect()
}

/// The bytes of the word, the comment or the space at the start of the text. Zero if it is empty.
fn length(text: &str) -> usize {
    let end_of = |mark: &str, from: usize| text[from..].find(mark).map_or(text.len(), |at| from + at + mark.len());
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return end_of("*/", 2);
    }
    if let Some(raw) = text.strip_prefix("R\"") {
        let delimiter = raw.split('(').next().unwrap_or_default();
        return end_of(&format!("){delimiter}\""), 2);
    }
    if text.starts_with("::") {
        return 2;
    }
    let Some(first) = text.chars().next() else { return 0 };
    match first {
        '"' | '\'' => quoted(text, first),
        _ if is_part(first) => text.find(|c: char| !is_part(c)).unwrap_or(text.len()),
        _ => first.len_utf8(),
    }
}

fn quoted(text: &str, mark: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == mark => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$')
}

fn is_word(token: &str) -> bool {
    !(token.trim().is_empty() || token.starts_with("//") || token.starts_with("/*") || token == "\\")
}

/// A directive ends with its line, unless a backslash is at the end.
fn end_of_directive(text: &str) -> usize {
    let mut length = 0;
    for line in text.split_inclusive('\n') {
        length += line.len();
        if !line.trim_end().ends_with('\\') {
            break;
        }
    }
    length
}

/// The name and the words of a macro without parameters.
fn definition(directive: &str) -> Option<(&str, Vec<&str>)> {
    let rest = directive.strip_prefix('#')?.trim_start().strip_prefix("define")?;
    let rest = rest.strip_prefix([' ', '\t'])?.trim_start();
    let (name, mut rest) = rest.split_at(length(rest));
    if rest.starts_with('(') {
        return None;
    }
    let mut meaning = Vec::new();
    while !rest.is_empty() {
        let (token, after) = rest.split_at(length(rest));
        rest = after;
        if is_word(token) {
            meaning.push(token);
        }
    }
    Some((name, meaning))
}

/// Adds a word, or the meaning of a macro. The meaning is read once: a macro of a macro stays a name, which no type has.
fn expand<'a>(token: &'a str, macros: &BTreeMap<&'a str, Vec<&'a str>>, found: &mut Vec<&'a str>) {
    match macros.get(token) {
        Some(meaning) => found.extend(meaning),
        None => found.push(token),
    }
}
