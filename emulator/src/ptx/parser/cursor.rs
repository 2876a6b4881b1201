//! The position in a list of tokens, and the basic steps that all parts of the parser share.

use crate::ptx::error::LoadError;
use crate::ptx::lexer::{Kind, Token};

pub(super) type Parsed<T> = Result<T, LoadError>;

pub(super) struct Parser<'a, 't> {
    pub(super) text: &'a str,
    pub(super) tokens: &'t [Token<'a>],
    pub(super) at: usize,
    /// Number of statements in all functions so far.
    pub(super) statements: usize,
}

impl<'a, 't> Parser<'a, 't> {
    pub(super) fn new(text: &'a str, tokens: &'t [Token<'a>]) -> Parser<'a, 't> {
        Parser { text, tokens, at: 0, statements: 0 }
    }

    pub(super) fn peek(&self) -> Option<Kind<'a>> {
        self.peek_at(0)
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Option<Kind<'a>> {
        self.tokens.get(self.at + ahead).map(|token| token.kind)
    }

    pub(super) fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |token| token.line)
    }

    pub(super) fn next(&mut self) -> Parsed<Kind<'a>> {
        let kind = self.peek().ok_or_else(|| self.error("the text ends in the middle of a statement"))?;
        self.at += 1;
        Ok(kind)
    }

    pub(super) fn error(&self, message: impl Into<String>) -> LoadError {
        LoadError::syntax(self.line(), message)
    }

    pub(super) fn unexpected<T>(&self, wanted: &str) -> Parsed<T> {
        let found = match self.tokens.get(self.at) {
            Some(token) => format!("`{}`", &self.text[token.range()]),
            None => "the end of the text".to_owned(),
        };
        Err(self.error(format!("expected {wanted}, found {found}")))
    }

    pub(super) fn is(&self, wanted: char) -> bool {
        self.peek() == Some(Kind::Punct(wanted))
    }

    pub(super) fn eat(&mut self, wanted: char) -> bool {
        let found = self.is(wanted);
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, wanted: char) -> Parsed<()> {
        if self.eat(wanted) { Ok(()) } else { self.unexpected(&format!("`{wanted}`")) }
    }

    pub(super) fn word(&mut self) -> Parsed<&'a str> {
        match self.peek() {
            Some(Kind::Word(word)) => {
                self.at += 1;
                Ok(word)
            }
            _ => self.unexpected("a name"),
        }
    }

    pub(super) fn integer(&mut self) -> Parsed<u64> {
        match self.peek() {
            Some(Kind::Integer(value)) => {
                self.at += 1;
                Ok(value)
            }
            _ => self.unexpected("a number"),
        }
    }

    pub(super) fn small(&mut self) -> Parsed<u32> {
        let line = self.line();
        u32::try_from(self.integer()?).map_err(|_| LoadError::syntax(line, "number too large"))
    }

    /// Skips the rest of a line, where the directives of debug information end.
    pub(super) fn skip_line(&mut self) {
        let line = self.line();
        while self.tokens.get(self.at).is_some_and(|token| token.line == line) {
            self.at += 1;
        }
    }

    pub(super) fn skip_to(&mut self, end: char) -> Parsed<()> {
        while self.next()? != Kind::Punct(end) {}
        Ok(())
    }

    pub(super) fn skip_braces(&mut self) -> Parsed<()> {
        self.expect('{')?;
        let mut depth = 1;
        while depth > 0 {
            match self.next()? {
                Kind::Punct('{') => depth += 1,
                Kind::Punct('}') => depth -= 1,
                _ => {}
            }
        }
        Ok(())
    }
}
