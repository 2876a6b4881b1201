//! Removes comments and string literals from PTX, because they could contain text that looks like a declaration.

/// Returns the text with a space in place of each comment and string. `None` if a driver might read the text differently: for an
/// unterminated quote or comment, a backslash or a preprocessor line. No compiler writes these.
pub(super) fn plain(ptx: &str) -> Option<String> {
    let mut plain = String::with_capacity(ptx.len());
    let mut rest = ptx;
    while let Some(start) = rest.find(['/', '"', '\\', '#']) {
        plain.push_str(&rest[..start]);
        rest = &rest[start..];
        let length = skipped(rest)?;
        plain.push_str(if length == 0 { "/" } else { " " });
        rest = &rest[length.max(1)..];
    }
    plain.push_str(rest);
    Some(plain)
}

/// Returns the length of the comment or string at the start, or 0 for a plain slash.
fn skipped(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        let comment = &rest[..rest.find('\n').unwrap_or(rest.len())];
        let is_one_line = !comment.contains('\\') && !comment.trim_end_matches('\r').contains('\r');
        return is_one_line.then_some(comment.len());
    }
    if let Some(comment) = rest.strip_prefix("/*") {
        return comment.find("*/").map(|end| end + "/**/".len());
    }
    if let Some(string) = rest.strip_prefix('"') {
        let end = string.find(['"', '\\', '\n'])?;
        return string[end..].starts_with('"').then_some(end + "\"\"".len());
    }
    rest.starts_with('/').then_some(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn comments_and_strings_become_spaces() {
        assert_eq!(plain("a // b \" /*\nc /* \" // */ d 4/2 \"x /* // y\" e").unwrap(), "a  \nc   d 4/2   e");
        assert_eq!(plain("a // the end").unwrap(), "a  ");
    }

    #[test]
    fn what_a_driver_might_read_otherwise_is_not_guessed() {
        for text in ["\"a\\\" b\"", "\"a\nb\"", "\"a", "/* a", "#define A B", "a \\\nb", "// a \\\nb", "// a\rb\nc"] {
            assert_eq!(plain(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_to_its_end(text in "[a\\\\/*\"#\n\rß]{0,40}") {
            let _ = plain(&text);
        }
    }
}
