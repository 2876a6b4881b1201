//! The words of CUDA C++ after its directives, as far as signatures need them: macros without parameters are expanded,
//! and sections that `#if 0` hides are left out.
//!
//! Other conditions are not evaluated, so both of their branches remain.

use std::{borrow::Cow, collections::HashMap};

use super::lexer::{Lexer, Piece, is_name};

/// Replaces a macro that can't be expanded: it has parameters, two meanings, or a meaning that is too long.
pub const UNREADABLE: &str = "\u{fffd}";

/// How deep macros are expanded inside of macros.
const DEPTH_MAX: usize = 32;
/// The maximum number of words that one use of a macro is expanded to, including those of the macros in between.
const WORDS_OF_USE_MAX: usize = 1 << 16;
/// The maximum number of words that all uses are expanded to. Further uses are unreadable.
const WORDS_OF_USES_MAX: usize = 1 << 22;

/// Joins lines that end with a backslash to the next line.
pub fn spliced(code: &str) -> Cow<'_, str> {
    let code = code.strip_prefix('\u{feff}').unwrap_or(code);
    if code.contains("\\\n") || code.contains("\\\r\n") {
        Cow::Owned(code.replace("\\\r\n", "").replace("\\\n", ""))
    } else {
        Cow::Borrowed(code)
    }
}

/// Returns the words of the code, if it is compiled with these options of NVRTC.
pub fn words<'a>(code: &'a str, options: &'a [impl AsRef<str>]) -> Vec<&'a str> {
    let mut macros = Macros::default();
    for definition in definitions(options) {
        macros.define_option(definition);
    }
    let mut words = Vec::new();
    // How deep conditions are nested inside a group that `#if 0` hides; 0 outside of one.
    let mut hidden = 0_usize;
    for piece in Lexer::of_code(code) {
        match piece {
            Piece::Word(word) if hidden == 0 => macros.expand(word, &mut words),
            Piece::Word(_) => {}
            Piece::Directive(text) => macros.obey(text, &mut hidden),
        }
    }
    words
}

/// Returns the macros that the options define, each as `NAME` or `NAME=MEANING`.
fn definitions(options: &[impl AsRef<str>]) -> Vec<&str> {
    let mut definitions = Vec::new();
    let mut options = options.iter().map(AsRef::as_ref);
    while let Some(option) = options.next() {
        let prefixes = ["--define-macro=", "-define-macro=", "-D"];
        definitions.extend(match option {
            "-D" | "--define-macro" | "-define-macro" => options.next(),
            _ => prefixes.iter().find_map(|prefix| option.strip_prefix(prefix)),
        });
    }
    definitions
}

#[derive(Debug)]
struct Macros<'a> {
    meanings: HashMap<&'a str, Vec<&'a str>>,
    words_left: usize,
}

impl Default for Macros<'_> {
    fn default() -> Self {
        Self { meanings: HashMap::new(), words_left: WORDS_OF_USES_MAX }
    }
}

impl<'a> Macros<'a> {
    fn obey(&mut self, directive: &'a str, hidden: &mut usize) {
        let mut lexer = Lexer::of_words(directive);
        let name = lexer.next_word();
        match (name, *hidden) {
            (Some("if"), 0) => {
                let is_false = matches!(lexer.next_word(), Some("0" | "false")) && lexer.next_word().is_none();
                *hidden = usize::from(is_false);
            }
            (Some("define"), 0) => {
                if let Some(name) = lexer.next_word() {
                    // After a space, a parenthesis belongs to the meaning.
                    self.define(name, lexer.rest().starts_with('('), lexer.rest());
                }
            }
            (Some("undef"), 0) => {
                self.meanings.remove(lexer.next_word().unwrap_or_default());
            }
            (Some("if" | "ifdef" | "ifndef"), 1..) => *hidden += 1,
            (Some("endif"), 1..) | (Some("else" | "elif"), 1) => *hidden -= 1,
            _ => {}
        }
    }

    /// Obeys an option `NAME`, `NAME=MEANING` or `NAME(PARAMETERS)=MEANING`.
    fn define_option(&mut self, definition: &'a str) {
        let (head, meaning) = definition.split_once('=').unwrap_or((definition, "1"));
        let mut lexer = Lexer::of_words(head);
        if let Some(name) = lexer.next_word() {
            self.define(name, lexer.next_word().is_some(), meaning);
        }
    }

    fn define(&mut self, name: &'a str, has_parameters: bool, meaning: &'a str) {
        if !is_name(name) {
            return;
        }
        let unreadable = || vec![UNREADABLE];
        let words = if has_parameters { unreadable() } else { Lexer::of_words(meaning).words().collect() };
        match self.meanings.get_mut(name) {
            Some(known) if *known == words => {}
            Some(known) => *known = unreadable(),
            None => {
                self.meanings.insert(name, words);
            }
        }
    }

    /// Adds a word, or the meaning of a macro.
    fn expand(&mut self, word: &'a str, words: &mut Vec<&'a str>) {
        if !self.meanings.contains_key(word) {
            words.push(word);
            return;
        }
        let start = words.len();
        let limit = WORDS_OF_USE_MAX.min(self.words_left);
        let mut left = limit;
        if self.expand_within(word, DEPTH_MAX, &mut left, words).is_none() {
            words.truncate(start);
            words.push(UNREADABLE);
        }
        self.words_left -= limit - left;
    }

    /// Returns `None` if the meaning is too long.
    fn expand_within(&self, word: &'a str, depth: usize, left: &mut usize, words: &mut Vec<&'a str>) -> Option<()> {
        *left = left.checked_sub(1)?;
        match self.meanings.get(word) {
            None => words.push(word),
            Some(_) if depth == 0 => words.push(UNREADABLE),
            Some(meaning) => {
                for inner in meaning {
                    self.expand_within(inner, depth - 1, left, words)?;
                }
            }
        }
        Some(())
    }
}
