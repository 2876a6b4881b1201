//! Text for a page: wrapped, and without characters that Markdown would take for its own.

/// Fits the bound on prose with room for what stands in front.
const COLUMNS: usize = 110;

/// Plain text as Markdown shows it. Text between backticks stays as it is.
pub fn escaped(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(index, part)| match index % 2 {
        0 => part.replace('<', "&lt;").replace('*', "\\*"),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("`")
}

/// A cell of a table, on one line.
pub fn cell(text: &str) -> String {
    escaped(&text.split_whitespace().collect::<Vec<_>>().join(" ")).replace('|', "\\|")
}

/// One paragraph, wrapped. Lines after the first begin with `indent`.
pub fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is a first line");
        let columns = indent.len() + line.chars().count() + 1 + word.chars().count();
        if line.is_empty() {
            line.push_str(word);
        } else if columns > COLUMNS {
            lines.push(word.to_owned());
        } else {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.join(&format!("\n{indent}"))
}

/// A table with these columns.
pub fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(&head.map(str::to_owned)) + &line(&[const { "---" }; N].map(str::to_owned));
    text.extend(rows.into_iter().map(|row| line(&row)));
    text
}

/// A block of code. Its end can't stand in what we put into one.
pub fn code(language: &str, text: &str) -> String {
    format!("```{language}\n{}\n```\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_outside_code_is_escaped_and_inside_it_stays() {
        assert_eq!(escaped("a <b> *c* `<d>`"), "a &lt;b> \\*c\\* `<d>`");
        assert_eq!(cell("a | b\n c"), "a \\| b c");
    }

    #[test]
    fn long_text_is_wrapped_with_its_indent() {
        let text = wrapped(&"word ".repeat(40), "  ");
        assert!(text.lines().count() == 2 && text.lines().all(|line| line.len() <= COLUMNS), "{text}");
        assert!(text.lines().nth(1).unwrap().starts_with("  word"));
    }
}
