//! The lexer: splits PTX text into tokens.

use std::ops::Range;

use crate::ptx::error::LoadError;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind<'a> {
    /// A name, a register or a mnemonic.
    Word(&'a str),
    /// A directive or a modifier, without its dot.
    Dot(&'a str),
    Integer(u64),
    /// `0f` literal: the bits of an f32.
    Single(u32),
    Double(f64),
    Text(&'a str),
    Punct(char),
}

#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    pub kind: Kind<'a>,
    pub line: u32,
    /// Start of the byte range in the text; texts are far shorter than 4 GiB.
    start: u32,
    end: u32,
}

impl Token<'_> {
    /// Returns the byte range of the token in the text.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// Maximum tokens of a text: those of 20 MB of code. A token takes 40 bytes.
const TOKENS_MAX: usize = 8 << 20;

/// Returns the tokens of a text, or an error for the first place where there is none.
pub fn tokens(text: &str) -> Result<Vec<Token<'_>>, LoadError> {
    let mut lexer = Lexer { text, at: 0, line: 1 };
    let mut found = Vec::with_capacity(text.len() / 6);
    while let Some(token) = lexer.token()? {
        if found.len() == TOKENS_MAX {
            return Err(LoadError::syntax(token.line, format!("the text is too long: more than {TOKENS_MAX} tokens")));
        }
        found.push(token);
    }
    Ok(found)
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}

impl<'a> Lexer<'a> {
    fn peek(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn fail<T>(&self, what: &str) -> Result<T, LoadError> {
        Err(LoadError::syntax(self.line, what))
    }

    /// Advances while `wanted` holds and returns what was passed.
    fn take(&mut self, wanted: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at;
        while self.at < self.text.len() && wanted(self.peek(0)) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    fn skip_blank(&mut self) -> Result<(), LoadError> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (b'\n', _) => {
                    self.line += 1;
                    self.at += 1;
                }
                (b' ' | b'\t' | b'\r', _) => self.at += 1,
                (b'/', b'/') => {
                    self.take(|byte| byte != b'\n');
                }
                (b'/', b'*') => {
                    let Some(length) = self.text[self.at..].find("*/") else {
                        return self.fail("unterminated comment");
                    };
                    let comment = &self.text[self.at..self.at + length];
                    self.line += comment.matches('\n').count() as u32;
                    self.at += length + 2;
                }
                _ => return Ok(()),
            }
        }
    }

    fn token(&mut self) -> Result<Option<Token<'a>>, LoadError> {
        self.skip_blank()?;
        if self.at >= self.text.len() {
            return Ok(None);
        }
        let (start, line) = (self.at, self.line);
        let kind = self.kind()?;
        Ok(Some(Token { kind, line, start: start as u32, end: self.at as u32 }))
    }

    fn kind(&mut self) -> Result<Kind<'a>, LoadError> {
        let first = self.peek(0);
        match first {
            b'%' | b'_' | b'$' | b'a'..=b'z' | b'A'..=b'Z' => {
                let start = self.at;
                self.at += 1;
                self.take(is_word);
                Ok(Kind::Word(&self.text[start..self.at]))
            }
            b'0'..=b'9' => self.number(),
            b'.' if is_word(self.peek(1)) => {
                self.at += 1;
                let start = self.at;
                self.take(is_word);
                while self.peek(0) == b':' && self.peek(1) == b':' {
                    self.at += 2;
                    self.take(is_word);
                }
                Ok(Kind::Dot(&self.text[start..self.at]))
            }
            b'"' => {
                self.at += 1;
                let inner = self.take(|byte| byte != b'"' && byte != b'\n');
                if self.peek(0) != b'"' {
                    return self.fail("unterminated string");
                }
                self.at += 1;
                Ok(Kind::Text(inner))
            }
            b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'<' | b'>' | b',' | b';' | b':' | b'+' | b'-' | b'*' | b'/'
            | b'=' | b'@' | b'!' | b'|' | b'&' | b'~' | b'^' | b'?' => {
                self.at += 1;
                Ok(Kind::Punct(first.into()))
            }
            _ => {
                let character = self.text[self.at..].chars().next().unwrap_or(' ');
                self.fail(&format!("unexpected character {character:?}"))
            }
        }
    }

    fn number(&mut self) -> Result<Kind<'a>, LoadError> {
        let start = self.at;
        let word = self.take(is_word);
        match word.as_bytes() {
            [b'0', b'f' | b'F', ..] => return self.hexadecimal(&word[2..], 8).map(|bits| Kind::Single(bits as u32)),
            [b'0', b'd' | b'D', ..] => {
                return self.hexadecimal(&word[2..], 16).map(|bits| Kind::Double(f64::from_bits(bits)));
            }
            _ => {}
        }
        let fraction = self.peek(0) == b'.' && self.peek(1).is_ascii_digit();
        if fraction {
            self.at += 1;
            self.take(is_word);
        }
        let is_decimal = word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'e' || byte == b'E');
        if fraction || is_decimal && word.contains(['e', 'E']) {
            if matches!(self.text.as_bytes()[self.at - 1], b'e' | b'E') && matches!(self.peek(0), b'+' | b'-') {
                self.at += 1;
                self.take(is_word);
            }
            let written = &self.text[start..self.at];
            return written.parse().map(Kind::Double).or_else(|_| self.fail(&format!("invalid number `{written}`")));
        }
        let digits = word.trim_end_matches(['u', 'U']);
        let (digits, radix) = match digits.as_bytes() {
            [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
            [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
            [b'0', _, ..] => (&digits[1..], 8),
            _ => (digits, 10),
        };
        u64::from_str_radix(digits, radix)
            .map(Kind::Integer)
            .or_else(|_| self.fail(&format!("invalid number `{word}`")))
    }

    fn hexadecimal(&self, digits: &str, length: usize) -> Result<u64, LoadError> {
        if digits.len() != length || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return self.fail(&format!("invalid floating-point literal: expected {length} hexadecimal digits"));
        }
        u64::from_str_radix(digits, 16).or_else(|_| self.fail("invalid floating-point literal"))
    }
}
