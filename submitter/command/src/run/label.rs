//! The label of a session: the program as the history shows it.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

use gpufleet::schema::text::recordable;

/// The base names of the command and of its first argument, as in `python train.py`. The argument is left out unless it looks like the name of
/// a file, and so are all others, because they may contain secrets.
pub fn of(command: &[OsString]) -> String {
    let mut words = command.iter();
    let program = words.next().map(|word| base_name(word));
    let first = words.next().filter(|word| is_plain(word)).map(|word| base_name(word));
    recordable(&program.into_iter().chain(first).collect::<Vec<_>>().join(" "))
}

/// Returns whether the word is neither an option nor an assignment nor a URL.
fn is_plain(word: &OsStr) -> bool {
    let bytes = word.as_encoded_bytes();
    let is_special = |byte: &u8| matches!(byte, b'=' | b':' | b'?' | b'@') || byte.is_ascii_whitespace();
    !bytes.starts_with(b"-") && !bytes.iter().any(is_special)
}

fn base_name(word: &OsStr) -> String {
    Path::new(word).file_name().unwrap_or(word).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_base_names_and_no_options() {
        let label = |words: &[&str]| of(&words.iter().map(OsString::from).collect::<Vec<_>>());
        for (words, expected) in [
            (&["python", "train.py", "--token", "secret"][..], "python train.py"),
            (&["/usr/bin/python3", "/home/anna/run/train.py"], "python3 train.py"),
            (&["python", "-m", "pytest"], "python"),
            (&["./simulate"], "simulate"),
            (&["a\nb", ".."], "a\u{fffd}b .."),
            (&["env", "API_KEY=secret", "python", "train.py"], "env"),
            (&["curl", "https://example.org/secret"], "curl"),
            (&["sh", "-c", "secret"], "sh"),
            (&["echo", "a secret"], "echo"),
        ] {
            assert_eq!(label(words), expected, "{words:?}");
        }
    }
}
