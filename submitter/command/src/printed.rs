//! Prints the output of kernels, set apart from the command's own messages.

use gpufleet::schema::PrintfOutput;
use gpufleet_ledger::JobDetail;

/// The most lines that [`beginning`] shows.
const LINES_MAX: usize = 20;
/// A line may be as long as the whole text.
const BYTES_MAX: usize = 4 << 10;

/// The whole text: a heading, a bar before each line, and a remark if it is incomplete.
pub fn whole(printed: &PrintfOutput) -> String {
    let mut text = format!("printed by the kernels:\n{}", barred(&printed.text));
    text.extend(missing(printed).map(|missing| format!("  ({missing})\n")));
    text
}

/// The beginning of the text, or its end if the text is the end of an output, and the command that prints the rest.
pub fn beginning(printed: &PrintfOutput, rest: &str) -> String {
    if printed.is_tail {
        return end(printed, rest);
    }
    let shown: usize = printed.text.split_inclusive('\n').take(LINES_MAX).map(str::len).sum();
    let shown = printed.text.floor_char_boundary(shown.min(BYTES_MAX));
    if shown == printed.text.len() {
        return whole(printed);
    }
    format!("printed by the kernels:\n{}  (shortened; `{rest}` prints all of it)\n", barred(&printed.text[..shown]))
}

/// The last lines of a host program's output.
fn end(printed: &PrintfOutput, rest: &str) -> String {
    let text = printed.text.as_str();
    let shown: usize = text.split_inclusive('\n').rev().take(LINES_MAX).map(str::len).sum();
    let shown = &text[text.ceil_char_boundary(text.len() - shown.min(BYTES_MAX))..];
    let is_all = shown.len() == text.len() && printed.dropped_bytes == 0;
    let note = if is_all { String::new() } else { format!("  (the end; `{rest}` prints more)\n") };
    format!("written by the program:\n{}{note}", barred(shown))
}

/// What the attempt printed that decided the outcome.
pub fn by_deciding_attempt(detail: &JobDetail) -> Option<PrintfOutput> {
    let attempt = detail.attempts.iter().find(|attempt| Some(attempt.attempt) == detail.job.attempt)?;
    attempt.printf_output.clone()
}

/// The remark about an incomplete text.
pub fn missing(printed: &PrintfOutput) -> Option<String> {
    let PrintfOutput { text, dropped_bytes, is_tail } = printed;
    (*dropped_bytes > 0).then(|| match is_tail {
        true => format!("only the last {} bytes are here; {dropped_bytes} before them were left out", text.len()),
        false => format!("only the first {} bytes were kept; {dropped_bytes} more were dropped", text.len()),
    })
}

fn barred(text: &str) -> String {
    text.lines().map(|line| format!("  | {line}").trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str, dropped_bytes: u64) -> PrintfOutput {
        PrintfOutput { text: text.to_owned(), dropped_bytes, is_tail: false }
    }

    #[test]
    fn each_line_has_a_bar_and_missing_bytes_are_counted() {
        assert_eq!(whole(&printed("x=1\n\ny=2", 0)), "printed by the kernels:\n  | x=1\n  |\n  | y=2\n");
        assert_eq!(
            whole(&printed("x=1\n", 9)),
            "printed by the kernels:\n  | x=1\n  (only the first 4 bytes were kept; 9 more were dropped)\n"
        );
    }

    #[test]
    fn of_a_host_program_the_end_is_shown() {
        let tail = |text: &str, dropped_bytes| PrintfOutput { is_tail: true, ..printed(text, dropped_bytes) };
        assert_eq!(beginning(&tail("a\nb\n", 0), "r"), "written by the program:\n  | a\n  | b\n");
        let long = beginning(&tail(&("first\n".to_owned() + &"line\n".repeat(LINES_MAX)), 0), "gpufleet logs 0199");
        assert!(!long.contains("first") && long.matches("| line").count() == LINES_MAX, "{long}");
        assert!(long.ends_with("  (the end; `gpufleet logs 0199` prints more)\n"), "{long}");
        assert_eq!(missing(&tail("x=1\n", 9)).unwrap(), "only the last 4 bytes are here; 9 before them were left out");
    }

    #[test]
    fn only_the_beginning_of_a_long_text_is_shown() {
        let rest = "gpufleet logs 0199";
        let lines = "line\n".repeat(LINES_MAX);
        assert_eq!(beginning(&printed(&lines, 3), rest), whole(&printed(&lines, 3)));
        let more = beginning(&printed(&(lines + "line\n"), 3), rest);
        assert_eq!(more.matches("| line").count(), LINES_MAX);
        assert!(more.ends_with("  (shortened; `gpufleet logs 0199` prints all of it)\n"), "{more}");
        let wide = beginning(&printed(&"ä".repeat(BYTES_MAX), 0), rest);
        assert!(wide.len() < BYTES_MAX + 200 && wide.contains("prints all"), "{wide}");
    }
}
