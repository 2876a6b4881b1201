//! Splits CUDA C++ into words and directives, and skips spaces and comments.

/// A piece of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A name, a number, a literal or a mark.
    Word(&'a str),
    /// The text of a directive after its `#`.
    Directive(&'a str),
}

/// The pieces of a text, in order. A literal is one word. `::` and `...` are the only marks of several characters.
#[derive(Debug)]
pub struct Lexer<'a> {
    text: &'a str,
    at: usize,
    /// Whether a `#` would begin a directive: only spaces and comments precede it on its line.
    begins_line: bool,
    has_directives: bool,
    /// Up to where no `"` and no `'` has a counterpart on its line. It saves looking for the same counterpart again.
    unclosed: [usize; 2],
}

impl<'a> Lexer<'a> {
    /// Reads code with directives.
    pub const fn of_code(text: &'a str) -> Self {
        Self { text, at: 0, begins_line: true, has_directives: true, unclosed: [0; 2] }
    }

    /// Reads the words of a directive or an option.
    pub const fn of_words(text: &'a str) -> Self {
        Self { text, at: 0, begins_line: false, has_directives: false, unclosed: [0; 2] }
    }

    /// Returns the next word of a text that has no directives.
    pub fn next_word(&mut self) -> Option<&'a str> {
        self.next().map(|(Piece::Word(word) | Piece::Directive(word))| word)
    }

    /// Returns the words of a text that has no directives.
    pub fn words(mut self) -> impl Iterator<Item = &'a str> {
        std::iter::from_fn(move || self.next_word())
    }

    /// Returns the text that was not read yet.
    pub fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Moves past a directive, which ends with its line. A comment in it may span lines.
    fn directive(&mut self) -> &'a str {
        let start = self.at + 1;
        while !self.rest().is_empty() && !self.rest().starts_with('\n') {
            self.unit();
        }
        &self.text[start..self.at]
    }

    /// Moves past the next word, comment or space. Returns whether it is a word.
    fn unit(&mut self) -> bool {
        let rest = self.rest();
        let end_of = |mark: &str, from: usize| rest[from..].find(mark).map_or(rest.len(), |at| from + at + mark.len());
        let (is_word, length) = match rest.as_bytes() {
            [b'/', b'/', ..] => (false, rest.find('\n').unwrap_or(rest.len())),
            // No compiler accepts a comment or a raw string without its end. So either goes on to the end of the text.
            [b'/', b'*', ..] => (false, end_of("*/", 2)),
            [b'"' | b'\'', ..] => (true, self.literal()),
            [b':', b':', ..] => (true, 2),
            [b'.', b'.', b'.', ..] => (true, 3),
            [b'0'..=b'9', ..] | [b'.', b'0'..=b'9', ..] => (true, number(rest)),
            _ => match rest.chars().next() {
                Some(first) if is_name_start(first) => {
                    let name = rest.find(|c| !is_name_part(c)).unwrap_or(rest.len());
                    let end = raw_string_end(&rest[..name], &rest[name..]);
                    (true, end.map_or(name, |mark| end_of(&mark, name + mark.len())))
                }
                Some(space) if space.is_whitespace() => (false, space.len_utf8()),
                Some(mark) => (true, mark.len_utf8()),
                None => (false, 0),
            },
        };
        self.at += length;
        is_word
    }

    /// Returns the length of a literal in quotes, or of the quote alone if the literal has no end on its line.
    fn literal(&mut self) -> usize {
        let bytes = self.text.as_bytes();
        let quote = bytes[self.at];
        let unclosed = &mut self.unclosed[usize::from(quote == b'\'')];
        let mut at = self.at + 1;
        while at > *unclosed {
            match bytes.get(at) {
                Some(b'\\') => at += 2,
                Some(b'\n') | None => *unclosed = at,
                Some(byte) => {
                    at += 1;
                    if *byte == quote {
                        return at - self.at;
                    }
                }
            }
        }
        1
    }
}

impl<'a> Iterator for Lexer<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        while !self.rest().is_empty() {
            if self.has_directives && self.begins_line && self.rest().starts_with('#') {
                return Some(Piece::Directive(self.directive()));
            }
            let start = self.at;
            self.begins_line |= self.has_directives && self.rest().starts_with('\n');
            if self.unit() {
                self.begins_line = false;
                return Some(Piece::Word(&self.text[start..self.at]));
            }
        }
        None
    }
}

/// Returns whether a word is a name, and not a number, a literal or a mark.
pub fn is_name(word: &str) -> bool {
    word.starts_with(is_name_start) && !word.contains('"')
}

fn is_name_start(c: char) -> bool {
    c.is_alphabetic() || c == '_' || c == '$'
}

fn is_name_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

fn number(text: &str) -> usize {
    let mut after_exponent = false;
    let end = text.find(|c| {
        let is_part = is_name_part(c) || matches!(c, '.' | '\'') || (after_exponent && matches!(c, '+' | '-'));
        after_exponent = matches!(c, 'e' | 'E' | 'p' | 'P');
        !is_part
    });
    end.unwrap_or(text.len())
}

/// Returns the mark that ends a raw string, if the text begins with one after a prefix such as `R`.
fn raw_string_end(prefix: &str, text: &str) -> Option<String> {
    /// The maximum length of a delimiter in C++.
    const DELIMITER_CHARS_MAX: usize = 16;
    if !matches!(prefix, "R" | "LR" | "uR" | "UR" | "u8R") {
        return None;
    }
    let text = text.strip_prefix('"')?;
    let (end, _) = text.char_indices().take(DELIMITER_CHARS_MAX + 1).find(|(_, c)| *c == '(')?;
    let delimiter = &text[..end];
    let is_delimiter = !delimiter.contains(|c: char| matches!(c, ')' | '\\') || c.is_whitespace());
    is_delimiter.then(|| format!("){delimiter}\""))
}
