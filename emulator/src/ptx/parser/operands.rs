//! Parses instructions and their operands.

use super::cursor::{Parsed, Parser};
use crate::ptx::lexer::Kind;
use crate::ptx::tree::{Base, Instruction, Operand};

/// Maximum nesting of braces and parentheses in an operand; PTX needs only a few.
const NESTING_MAX: u32 = 16;

impl<'a> Parser<'a, '_> {
    pub(super) fn instruction(&mut self, line: u32) -> Parsed<Instruction<'a>> {
        let guard = if self.eat('@') {
            let negated = self.eat('!');
            Some((self.word()?, negated))
        } else {
            None
        };
        let start = self.tokens.get(self.at).map_or(0, |token| token.range().start);
        let mnemonic = self.word()?;
        let mut modifiers = Vec::new();
        while let Some(Kind::Dot(modifier)) = self.peek() {
            modifiers.push(modifier);
            self.at += 1;
        }
        let text = &self.text[start..self.tokens[self.at - 1].range().end];
        let mut operands = Vec::new();
        while !self.eat(';') {
            operands.push(self.operand(0)?);
            if !self.eat(',') && !self.is(';') {
                return self.unexpected("`,` or `;`");
            }
        }
        Ok(Instruction { line, guard, text, mnemonic, modifiers, operands })
    }

    pub(super) fn operand(&mut self, depth: u32) -> Parsed<Operand<'a>> {
        if depth > NESTING_MAX {
            return Err(self.error("operand nested too deeply"));
        }
        match self.peek() {
            Some(Kind::Punct('{')) => {
                let parts = self.operands('{', '}', depth)?;
                if self.eat('|') { Ok(Operand::Resident(parts, self.word()?)) } else { Ok(Operand::Vector(parts)) }
            }
            Some(Kind::Punct('(')) => Ok(Operand::List(self.operands('(', ')', depth)?)),
            Some(Kind::Punct('[')) => self.address(depth),
            Some(Kind::Punct('!')) => {
                self.at += 1;
                Ok(Operand::Negated(self.word()?))
            }
            Some(Kind::Punct('-')) => {
                self.at += 1;
                match self.next()? {
                    Kind::Integer(value) => Ok(Operand::Integer(value.wrapping_neg())),
                    Kind::Single(bits) => Ok(Operand::Single(bits ^ 0x8000_0000)),
                    Kind::Double(value) => Ok(Operand::Double(-value)),
                    _ => {
                        self.at -= 1;
                        self.unexpected("a number")
                    }
                }
            }
            Some(Kind::Integer(value)) => {
                self.at += 1;
                Ok(Operand::Integer(value))
            }
            Some(Kind::Single(bits)) => {
                self.at += 1;
                Ok(Operand::Single(bits))
            }
            Some(Kind::Double(value)) => {
                self.at += 1;
                Ok(Operand::Double(value))
            }
            Some(Kind::Word("_")) => {
                self.at += 1;
                if self.eat('|') { Ok(Operand::Both("_", self.word()?)) } else { Ok(Operand::Sink) }
            }
            Some(Kind::Word(name)) => {
                self.at += 1;
                self.named(name)
            }
            _ => self.unexpected("an operand"),
        }
    }

    fn named(&mut self, name: &'a str) -> Parsed<Operand<'a>> {
        match self.peek() {
            Some(Kind::Dot(element)) => {
                self.at += 1;
                Ok(Operand::Element(name, element))
            }
            Some(Kind::Punct('|')) => {
                self.at += 1;
                Ok(Operand::Both(name, self.word()?))
            }
            Some(Kind::Punct('+' | '-')) => Ok(Operand::Offset(name, self.offset()?)),
            _ => Ok(Operand::Name(name)),
        }
    }

    /// Parses `+ 4`, `- 4`, `+-4` or nothing.
    pub(super) fn offset(&mut self) -> Parsed<i64> {
        let mut negative = false;
        if !self.is('+') && !self.is('-') {
            return Ok(0);
        }
        while self.is('+') || self.is('-') {
            negative ^= self.is('-');
            self.at += 1;
        }
        let value = self.integer()? as i64;
        Ok(if negative { value.wrapping_neg() } else { value })
    }

    fn operands(&mut self, open: char, close: char, depth: u32) -> Parsed<Vec<Operand<'a>>> {
        self.expect(open)?;
        let mut list = Vec::new();
        while !self.eat(close) {
            list.push(self.operand(depth + 1)?);
            if !self.eat(',') && !self.is(close) {
                return self.unexpected(&format!("`,` or `{close}`"));
            }
        }
        Ok(list)
    }

    fn address(&mut self, depth: u32) -> Parsed<Operand<'a>> {
        self.expect('[')?;
        let base = match self.next()? {
            Kind::Word(name) => Base::Name(name),
            Kind::Integer(value) => Base::Integer(value),
            _ => {
                self.at -= 1;
                return self.unexpected("an address");
            }
        };
        let offset = self.offset()?;
        if self.eat(']') {
            // `.unified` promises that the address is equal in all lanes; it is only a hint.
            self.at += usize::from(self.peek() == Some(Kind::Dot("unified")));
            return Ok(Operand::Address(base, offset));
        }
        let mut rest = Vec::new();
        while self.eat(',') {
            rest.push(self.operand(depth + 1)?);
        }
        self.expect(']')?;
        Ok(Operand::Indexed(base, rest))
    }
}
