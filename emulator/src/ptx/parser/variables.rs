//! Parses variables: state spaces, types, dimensions, and initial values.

use super::cursor::{Parsed, Parser};
use super::unsupported;
use crate::ptx::error::{LoadError, LoadErrorKind};
use crate::ptx::lexer::Kind;
use crate::ptx::tree::{Initial, Linkage, Opaque, Operand, Space, Variable};
use crate::ptx::types::Type;

/// Maximum nesting of braces in an initial value; PTX needs only a few.
const NESTING_MAX: u32 = 16;

/// Maximum zeros that pad the short rows of an initial value; more would be an array of many megabytes.
const PADDING_MAX: u64 = 1 << 20;

const TOO_LARGE: &str = "array too large";

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

    /// Parses type, alignment and attributes between the state space and the name; returns type, alignment
    /// and vector length.
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
                    // The alignment behind `.ptr` is that of the data that the pointer points to.
                    if !pointer {
                        align = Some(value);
                    }
                }
                "v2" => vector = 2,
                "v4" => vector = 4,
                "ptr" => pointer = true,
                "global" | "const" | "shared" | "local" | "generic" if pointer => {}
                "attribute" => self.skip_parentheses()?,
                _ => ty = Some(Type::parse(name).ok_or_else(|| unsupported(line, name))?),
            }
        }
        let Some(ty) = ty else { return self.unexpected("a type") };
        let natural = ty.bytes() * vector;
        Ok((ty, align.unwrap_or(natural).max(1), vector.into()))
    }

    fn skip_parentheses(&mut self) -> Parsed<()> {
        self.expect('(')?;
        let mut depth = 1;
        while depth > 0 {
            match self.next()? {
                Kind::Punct('(') => depth += 1,
                Kind::Punct(')') => depth -= 1,
                _ => {}
            }
        }
        Ok(())
    }

    /// Parses the dimensions behind a name; returns the number of elements, 0 if one dimension is open.
    pub(super) fn dimensions(&mut self) -> Parsed<u64> {
        let lengths = self.lengths()?;
        lengths.iter().try_fold(1u64, |count, length| count.checked_mul(*length)).ok_or_else(|| self.error(TOO_LARGE))
    }

    fn lengths(&mut self) -> Parsed<Vec<u64>> {
        let mut lengths = Vec::new();
        while self.eat('[') {
            lengths.push(if self.is(']') { 0 } else { self.integer()? });
            self.expect(']')?;
            if lengths.len() > NESTING_MAX as usize {
                return Err(self.error("too many dimensions"));
            }
        }
        Ok(lengths)
    }

    /// Parses one or more variables of one type, up to and including the semicolon.
    pub(super) fn variables(&mut self, linkage: Linkage) -> Parsed<Vec<Variable<'a>>> {
        let space = self.space()?;
        if let Some(Kind::Dot(name @ ("texref" | "samplerref" | "surfref"))) = self.peek() {
            self.at += 1;
            return self.opaque_variables(space, name, linkage);
        }
        let (ty, align, vector) = self.declared_type()?;
        let mut variables = Vec::new();
        loop {
            let line = self.line();
            let name = self.word()?;
            if self.eat('<') {
                let message = format!("numbered variables like `{name}<N>` outside .reg");
                return Err(LoadError::new(line, LoadErrorKind::UnsupportedDirective, message));
            }
            let mut lengths = self.lengths()?;
            if vector > 1 {
                lengths.push(vector);
            }
            // Number of elements in each place of every dimension.
            let mut sizes = vec![1u64];
            for length in lengths.iter().rev() {
                let below = *sizes.last().expect("there is one from the start");
                sizes.push(below.checked_mul(*length).ok_or_else(|| self.error(TOO_LARGE))?);
            }
            sizes.reverse();
            let mut initial = Vec::new();
            if self.eat('=') {
                self.initial(&mut initial, &sizes, 0)?;
            }
            let row = sizes.get(1).copied().unwrap_or(1).max(1);
            let count = match sizes[0] {
                0 if linkage != Linkage::Extern => (initial.len() as u64).next_multiple_of(row),
                count => count,
            };
            if initial.len() as u64 > count {
                return Err(LoadError::syntax(line, format!("`{name}` has more initial values than elements")));
            }
            variables.push(Variable { line, name, space, ty, align, count, linkage, initial, opaque: None });
            if !self.eat(',') {
                self.expect(';')?;
                return Ok(variables);
            }
        }
    }

    /// Parses variables for textures, samplers and surfaces, from behind their type. Only the initial values of
    /// samplers matter.
    fn opaque_variables(&mut self, space: Space, type_name: &'a str, linkage: Linkage) -> Parsed<Vec<Variable<'a>>> {
        let mut variables = Vec::new();
        loop {
            let line = self.line();
            let name = self.word()?;
            let properties = if self.eat('=') { self.properties()? } else { Vec::new() };
            let opaque = match type_name {
                "samplerref" => Opaque::Sampler(properties),
                _ if !properties.is_empty() => {
                    return Err(LoadError::syntax(line, format!("`{name}` can't have an initial value")));
                }
                "texref" => Opaque::Texture,
                _ => Opaque::Surface,
            };
            let (ty, align, initial) = (Type::U64, 8, Vec::new());
            variables.push(Variable { line, name, space, ty, align, count: 1, linkage, initial, opaque: Some(opaque) });
            if !self.eat(',') {
                self.expect(';')?;
                return Ok(variables);
            }
        }
    }

    /// Parses `{ name = value, … }`; values are names or numbers and stay as written.
    fn properties(&mut self) -> Parsed<Vec<(&'a str, &'a str)>> {
        let mut properties = Vec::new();
        self.expect('{')?;
        while !self.eat('}') {
            let name = self.word()?;
            self.expect('=')?;
            let token = self.tokens.get(self.at).copied();
            let value = match (self.next()?, token) {
                (Kind::Word(word), _) => word,
                (Kind::Integer(_), Some(token)) => &self.text[token.range()],
                _ => return self.unexpected("a name or a number"),
            };
            properties.push((name, value));
            if !self.eat(',') && !self.is('}') {
                return self.unexpected("`,` or `}`");
            }
        }
        Ok(properties)
    }

    /// Parses a value, or values in braces. `sizes` contains the elements of this and of each dimension below; a list
    /// that is too short leaves the rest of its dimension zero.
    fn initial(&mut self, values: &mut Vec<Initial<'a>>, sizes: &[u64], depth: u32) -> Parsed<()> {
        if depth > NESTING_MAX {
            return Err(self.error("initial value nested too deeply"));
        }
        if !self.eat('{') {
            let value = self.initial_value(depth)?;
            values.push(value);
            return Ok(());
        }
        let below = sizes.get(1..).unwrap_or_default();
        let start = values.len() as u64;
        loop {
            if self.eat('}') {
                return Ok(());
            }
            if self.is('{') {
                // A row begins at a multiple of its size, even if the row before is shorter.
                let row = below.first().copied().unwrap_or(1).max(1);
                let place = start + (values.len() as u64 - start).next_multiple_of(row);
                if place - values.len() as u64 > PADDING_MAX {
                    return Err(self.error(TOO_LARGE));
                }
                values.resize(place as usize, Initial::Integer(0));
            }
            let before = values.len() as u64;
            let is_row = self.is('{');
            self.initial(values, below, depth + 1)?;
            if is_row && values.len() as u64 - before > below.first().copied().unwrap_or(1) {
                return Err(self.error("more initial values than the dimension has elements"));
            }
            if !self.eat(',') {
                return self.expect('}');
            }
        }
    }

    /// Parses a number, an address with an offset, or one byte of either: `5`, `generic(a)+4`, `0xFF00(generic(a))`.
    fn initial_value(&mut self, depth: u32) -> Parsed<Initial<'a>> {
        if depth > NESTING_MAX {
            return Err(self.error("initial value nested too deeply"));
        }
        if let (Some(Kind::Integer(mask)), Some(Kind::Punct('('))) = (self.peek(), self.peek_at(1)) {
            let shift = mask.trailing_zeros();
            if mask == 0 || shift % 8 != 0 || mask >> shift != 0xff {
                return Err(self.error("the mask does not select one byte"));
            }
            self.at += 2;
            let value = self.initial_value(depth + 1)?;
            self.expect(')')?;
            return Ok(match value {
                Initial::Symbol { name, offset } => Initial::Byte { shift, name: Some(name), offset },
                Initial::Integer(number) => Initial::Byte { shift, name: None, offset: number as i64 },
                _ => return Err(self.error("unsupported initial value")),
            });
        }
        if self.peek() == Some(Kind::Word("generic")) && self.peek_at(1) == Some(Kind::Punct('(')) {
            self.at += 2;
            let inner = self.initial_value(depth + 1)?;
            self.expect(')')?;
            let Initial::Symbol { name, offset } = inner else {
                return Err(self.error("unsupported initial value"));
            };
            return Ok(Initial::Symbol { name, offset: offset.wrapping_add(self.offset()?) });
        }
        Ok(match self.operand(0)? {
            Operand::Integer(value) => Initial::Integer(value),
            Operand::Single(bits) => Initial::Single(bits),
            Operand::Double(value) => Initial::Double(value),
            Operand::Name(name) => Initial::Symbol { name, offset: 0 },
            Operand::Offset(name, offset) => Initial::Symbol { name, offset },
            _ => return Err(self.error("unsupported initial value")),
        })
    }
}
