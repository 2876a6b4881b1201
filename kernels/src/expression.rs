//! The arithmetic of manifests: extents, grids and derived scalars as functions of a task's sizes.
//!
//! Examples: `ceil_div(n, 256)`, `min(height, 65535)`, `2 * (width + 1)`. All values are `u64`. The sizes come from
//! untrusted tasks, so every step is checked: an overflow, a negative value or a division by zero is an error.

use std::fmt;

use serde::{Deserialize, Deserializer, de};

/// The maximum nesting of parentheses and calls: far deeper than in real manifests, and far too shallow to exhaust a
/// stack.
const DEPTH_MAX: usize = 32;
/// The maximum length of an expression in bytes. It also bounds the depth of the tree, because a chain of operators is
/// as deep as it is long.
const TEXT_BYTES_MAX: usize = 256;

/// A parsed expression. `Display` prints the original text.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    text: String,
    tree: Tree,
}

#[derive(Debug, Clone, PartialEq)]
enum Tree {
    Integer(u64),
    Symbol(String),
    Apply(Function, Box<[Tree; 2]>),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Function {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    CeilDiv,
    Min,
    Max,
}

/// A text that is not an expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an expression: {problem} at byte {at}")]
pub struct ParseError {
    text: String,
    problem: &'static str,
    at: usize,
}

/// The reason why an expression has no value for these sizes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvaluateError {
    #[error("{0} has no value")]
    Unknown(String),
    #[error("{0} is too large")]
    Overflow(String),
    #[error("{0} is negative")]
    Negative(String),
    #[error("{0} divides by zero")]
    DivisionByZero(String),
}

impl Expression {
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut parser = Parser { text, at: 0 };
        if text.len() > TEXT_BYTES_MAX {
            return parser.fail("too long");
        }
        let tree = parser.sum(0)?;
        match parser.peek() {
            None => Ok(Self { text: text.to_owned(), tree }),
            Some(_) => parser.fail("expected an operator or the end"),
        }
    }

    /// Computes the value. `value_of` gives the value of each symbol.
    pub fn evaluate(&self, value_of: &dyn Fn(&str) -> Option<u64>) -> Result<u64, EvaluateError> {
        self.tree.evaluate(value_of).map_err(|fault| match fault {
            Fault::Unknown(symbol) => EvaluateError::Unknown(symbol),
            Fault::Overflow => EvaluateError::Overflow(self.text.clone()),
            Fault::Negative => EvaluateError::Negative(self.text.clone()),
            Fault::DivisionByZero => EvaluateError::DivisionByZero(self.text.clone()),
        })
    }

    /// Returns the symbol, if the expression consists of one symbol.
    pub fn symbol(&self) -> Option<&str> {
        match &self.tree {
            Tree::Symbol(symbol) => Some(symbol),
            Tree::Integer(_) | Tree::Apply(..) => None,
        }
    }

    /// Returns the symbols of the expression, from left to right.
    pub fn symbols(&self) -> Vec<&str> {
        fn collect<'a>(tree: &'a Tree, into: &mut Vec<&'a str>) {
            match tree {
                Tree::Integer(_) => {}
                Tree::Symbol(symbol) => into.push(symbol),
                Tree::Apply(_, operands) => operands.iter().for_each(|operand| collect(operand, into)),
            }
        }
        let mut symbols = Vec::new();
        collect(&self.tree, &mut symbols);
        symbols
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Reads a string, or an integer for convenience.
impl<'de> Deserialize<'de> for Expression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrInteger;
        impl de::Visitor<'_> for TextOrInteger {
            type Value = Expression;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an expression such as \"ceil_div(n, 256)\", or an integer")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Expression, E> {
                Expression::parse(text).map_err(E::custom)
            }

            fn visit_u64<E>(self, value: u64) -> Result<Expression, E> {
                Ok(Expression { text: value.to_string(), tree: Tree::Integer(value) })
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Expression, E> {
                match u64::try_from(value) {
                    Ok(value) => self.visit_u64(value),
                    Err(_) => Err(E::invalid_value(de::Unexpected::Signed(value), &self)),
                }
            }
        }
        deserializer.deserialize_any(TextOrInteger)
    }
}

enum Fault {
    Unknown(String),
    Overflow,
    Negative,
    DivisionByZero,
}

impl Tree {
    fn evaluate(&self, value_of: &dyn Fn(&str) -> Option<u64>) -> Result<u64, Fault> {
        match self {
            Self::Integer(value) => Ok(*value),
            Self::Symbol(symbol) => value_of(symbol).ok_or_else(|| Fault::Unknown(symbol.clone())),
            Self::Apply(function, operands) => {
                let [left, right] = operands.as_ref();
                function.apply(left.evaluate(value_of)?, right.evaluate(value_of)?)
            }
        }
    }
}

impl Function {
    fn named(name: &str) -> Option<Self> {
        match name {
            "ceil_div" => Some(Self::CeilDiv),
            "min" => Some(Self::Min),
            "max" => Some(Self::Max),
            _ => None,
        }
    }

    fn apply(self, left: u64, right: u64) -> Result<u64, Fault> {
        match self {
            Self::Add => left.checked_add(right).ok_or(Fault::Overflow),
            Self::Subtract => left.checked_sub(right).ok_or(Fault::Negative),
            Self::Multiply => left.checked_mul(right).ok_or(Fault::Overflow),
            Self::Divide => left.checked_div(right).ok_or(Fault::DivisionByZero),
            Self::Remainder => left.checked_rem(right).ok_or(Fault::DivisionByZero),
            Self::CeilDiv if right == 0 => Err(Fault::DivisionByZero),
            Self::CeilDiv => Ok(left.div_ceil(right)),
            Self::Min => Ok(left.min(right)),
            Self::Max => Ok(left.max(right)),
        }
    }
}

/// A recursive-descent parser over bytes, because an expression is ASCII.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn sum(&mut self, depth: usize) -> Result<Tree, ParseError> {
        let mut left = self.product(depth)?;
        loop {
            let function = match self.peek() {
                Some(b'+') => Function::Add,
                Some(b'-') => Function::Subtract,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Tree::Apply(function, Box::new([left, self.product(depth)?]));
        }
    }

    fn product(&mut self, depth: usize) -> Result<Tree, ParseError> {
        let mut left = self.factor(depth)?;
        loop {
            let function = match self.peek() {
                Some(b'*') => Function::Multiply,
                Some(b'/') => Function::Divide,
                Some(b'%') => Function::Remainder,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Tree::Apply(function, Box::new([left, self.factor(depth)?]));
        }
    }

    fn factor(&mut self, depth: usize) -> Result<Tree, ParseError> {
        if depth > DEPTH_MAX {
            return self.fail("too many parentheses");
        }
        match self.peek() {
            Some(b'(') => {
                self.at += 1;
                let inner = self.sum(depth + 1)?;
                self.expect(b')', "a closing parenthesis is missing")?;
                Ok(inner)
            }
            Some(b'0'..=b'9') => match self.word().parse() {
                Ok(value) => Ok(Tree::Integer(value)),
                Err(_) => self.fail("not a 64-bit integer"),
            },
            Some(b'a'..=b'z' | b'A'..=b'Z' | b'_') => self.symbol_or_call(depth),
            _ => self.fail("expected a number, a name or a parenthesis"),
        }
    }

    fn symbol_or_call(&mut self, depth: usize) -> Result<Tree, ParseError> {
        let word = self.word();
        if self.peek() != Some(b'(') {
            return Ok(Tree::Symbol(word.to_owned()));
        }
        let Some(function) = Function::named(word) else {
            return self.fail("unknown function; use ceil_div, min or max");
        };
        self.at += 1;
        let left = self.sum(depth + 1)?;
        self.expect(b',', "the function takes two operands")?;
        let right = self.sum(depth + 1)?;
        self.expect(b')', "a closing parenthesis is missing")?;
        Ok(Tree::Apply(function, Box::new([left, right])))
    }

    fn word(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// Returns the next byte that is not blank, without consuming it.
    fn peek(&mut self) -> Option<u8> {
        while self.text.as_bytes().get(self.at) == Some(&b' ') {
            self.at += 1;
        }
        self.text.as_bytes().get(self.at).copied()
    }

    fn expect(&mut self, byte: u8, problem: &'static str) -> Result<(), ParseError> {
        if self.peek() != Some(byte) {
            return self.fail(problem);
        }
        self.at += 1;
        Ok(())
    }

    fn fail<T>(&self, problem: &'static str) -> Result<T, ParseError> {
        Err(ParseError { text: self.text.chars().take(TEXT_BYTES_MAX).collect(), problem, at: self.at })
    }
}

#[cfg(test)]
mod tests;
