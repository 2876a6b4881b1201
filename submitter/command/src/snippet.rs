//! Shows the lines of a program around the one that failed, with a caret below it.

use gpufleet::schema::Excerpt;

/// The longest line that is shown whole, because generated programs can have very long lines.
const LINE_CHARS_MAX: usize = 160;

/// The lines with their numbers, below the name of the place. If the compiler's log has a caret below the failing line, the result has it
/// too; otherwise the whole line is marked.
pub fn render(excerpt: &Excerpt, line: u32, place: &str, log: &str) -> String {
    let width = excerpt.lines().last().map_or(1, |(number, _)| number.to_string().len());
    let mut text = format!("{:width$}--> {place}\n", "");
    for (number, line_text) in excerpt.lines() {
        let shown: String = line_text.replace('\t', "    ").chars().take(LINE_CHARS_MAX).collect();
        text.push_str(format!("{number:>width$} | {shown}").trim_end());
        text.push('\n');
        if number == line {
            let indent = shown.chars().take_while(|c| c.is_whitespace()).count();
            let (skip, carets) = match column(log, shown.trim()) {
                Some(column) => (indent + column, 1),
                None => (indent, shown.trim().chars().count().max(1)),
            };
            text.push_str(&format!("{:width$} | {}{}\n", "", " ".repeat(skip), "^".repeat(carets)));
        }
    }
    text.trim_end().to_owned()
}

/// The column of the log's caret below this line of source, counted from the line's first character.
fn column(log: &str, source_line: &str) -> Option<usize> {
    let lines: Vec<&str> = log.lines().collect();
    let pair = lines.windows(2).find(|pair| pair[0].trim() == source_line && pair[1].trim() == "^")?;
    let margin = |line: &str| line.chars().take_while(|c| c.is_whitespace()).count();
    margin(pair[1]).checked_sub(margin(pair[0])).filter(|column| *column < source_line.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failing_line_is_marked() {
        let excerpt = Excerpt { first_line: 9, text: "int i;\n\ty[i] = z;\n}".to_owned() };
        let marked = "  --> k.cu:10\n 9 | int i;\n10 |     y[i] = z;\n   |     ^^^^^^^^^\n11 | }";
        assert_eq!(render(&excerpt, 10, "k.cu:10", ""), marked);
        let with_column = marked.replace("^^^^^^^^^", "       ^");
        assert_eq!(render(&excerpt, 10, "k.cu:10", "kernel.cu(10): error\n  y[i] = z;\n         ^\n"), with_column);
    }
}
