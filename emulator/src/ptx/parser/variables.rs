//! Variables: state spaces, types, dimensions, initial values.

use super::cursor::{Parsed, Parser};
use super::unsupported;
use crate::module::{LoadError, LoadErrorKind};
use crate::ptx::lexer::Kind;
use crate::ptx::tree::{Initial, Operand, Space, Variable};
use crate::ptx::types::Type;

/// Braces inside one another in an initial value; PTX has no use for more than a few.
const NESTING_MAX: u32 = 16;

impl<'a> Parser<'a, '_> {
    pub(super) fn space(&mut self) -> Parsed<Space> {
        let line = self.line();
        match self.next()? {
            Kind::Dot("global") => Ok(Space::Global),
            Kind::Dot("const") => Ok(Space::Const),
            Kind::Dot("shared") => Ok(Space::Shared),
            Kind::Dot("local") => Ok(Space::Local),
            Kind::Dot("param") => Ok(Space::Param),
            Kind::Dot(name) => Err(unsupported(line, name)),
            _ => {
                self.at -= 1;
                self.unexpected("a state space")
            }
        }
    }

    /// Type, alignment and attributes between the state space and the name.
    pub(super) fn declared_type(&mut self) -> Parsed<(Type, u32, u64)> {
        let (mut ty, mut align, mut vector, mut pointer) = (None, None, 1, false);
        while let Some(Kind::Dot(name)) = self.peek() {
            let line = self.line();
            self.at += 1;
            match name {
                "align" => {
                    let value = self.small()?;
                    if !value.is_power_of_two() {
                        return Err(LoadError::syntax(line, "alignment is not a power of two"));
                    }
                    // The alignment behind `.ptr` is that of what the pointer points to.
                    if !pointer {
                        align = Some(value);
                    }
                }
                "v2" => vector = 2,
                "v4" => vector = 4,
                "ptr" => pointer = true,
                "global" | "const" | "shared" | "local" | "generic" if pointer => {}
                "attribute" => {
                    self.expect('(')?;
                    self.skip_to(')')?;
                }
                _ => ty = Some(Type::parse(name).ok_or_else(|| unsupported(line, name))?),
            }
        }
        let Some(ty) = ty else { return self.unexpected("a type") };
        let natural = ty.bytes() * vector;
        Ok((ty, align.unwrap_or(natural).max(1), vector.into()))
    }

    /// The dimensions behind a name: elements, 0 where one is left open.
    pub(super) fn dimensions(&mut self) -> Parsed<u64> {
        let mut count = 1u64;
        while self.eat('[') {
            let length = if self.is(']') { 0 } else { self.integer()? };
            count = count.checked_mul(length).ok_or_else(|| self.error("array too large"))?;
            self.expect(']')?;
        }
        Ok(count)
    }

    /// One or more variables of one type, up to and with the semicolon.
    pub(super) fn variables(&mut self, is_extern: bool) -> Parsed<Vec<Variable<'a>>> {
        let space = self.space()?;
        let (ty, align, vector) = self.declared_type()?;
        let mut variables = Vec::new();
        loop {
            let line = self.line();
            let name = self.word()?;
            if self.eat('<') {
                let message = format!("numbered variables like `{name}<N>` outside .reg");
                return Err(LoadError::new(line, LoadErrorKind::UnsupportedDirective, message));
            }
            let count = self.dimensions()?.checked_mul(vector).ok_or_else(|| self.error("array too large"))?;
            let mut initial = Vec::new();
            if self.eat('=') {
                self.initial(&mut initial, 0)?;
            }
            let count = if count == 0 && !is_extern { initial.len() as u64 } else { count };
            if initial.len() as u64 > count {
                return Err(LoadError::syntax(line, format!("`{name}` has more initial values than elements")));
            }
            variables.push(Variable { line, name, space, ty, align, count, is_extern, initial });
            if !self.eat(',') {
                self.expect(';')?;
                return Ok(variables);
            }
        }
    }

    fn initial(&mut self, values: &mut Vec<Initial<'a>>, depth: u32) -> Parsed<()> {
        if depth > NESTING_MAX {
            return Err(self.error("initial value nested too deeply"));
        }
        if self.eat('{') {
            loop {
                if self.eat('}') {
                    return Ok(());
                }
                self.initial(values, depth + 1)?;
                if !self.eat(',') {
                    return self.expect('}');
                }
            }
        }
        let generic = self.peek() == Some(Kind::Word("generic")) && self.peek_at(1) == Some(Kind::Punct('('));
        if generic {
            self.at += 2;
        }
        let value = self.operand(0)?;
        if generic {
            self.expect(')')?;
        }
        values.push(match value {
            Operand::Integer(value) => Initial::Integer(value),
            Operand::Single(bits) => Initial::Single(bits),
            Operand::Double(value) => Initial::Double(value),
            Operand::Name(name) => Initial::Symbol { name, offset: 0 },
            Operand::Offset(name, offset) => Initial::Symbol { name, offset },
            _ => return Err(self.error("unsupported initial value")),
        });
        Ok(())
    }
}
