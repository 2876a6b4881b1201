//! Parses functions: signatures, performance directives, and the statements of a body.

use super::cursor::{Parsed, Parser};
use super::unsupported;
use crate::ptx::error::{LoadError, LoadErrorKind};
use crate::ptx::lexer::Kind;
use crate::ptx::tree::{Function, Linkage, Registers, Shape, Space, Statement, Variable};
use crate::ptx::types::Type;

/// Maximum registers of one `%r<N>` declaration. The compiler numbers them one by one, so that more would be a text of
/// hundreds of megabytes.
const REGISTERS_MAX: u64 = 1 << 20;

/// Maximum statements of a text: those of 16 MB of code. A statement takes about 300 bytes, and as much again when it
/// is lowered, however short it is.
const STATEMENTS_MAX: usize = 1 << 19;

/// Maximum nesting of braces in a body. The compiler opens one for each call, and inline assembly a few.
const NESTING_MAX: u32 = 256;

impl<'a> Parser<'a, '_> {
    fn params(&mut self) -> Parsed<Vec<Variable<'a>>> {
        let mut params = Vec::new();
        self.expect('(')?;
        while !self.eat(')') {
            let line = self.line();
            let space = self.space()?;
            let (ty, align, vector) = self.declared_type()?;
            let name = if let Some(Kind::Word(_)) = self.peek() { self.word()? } else { "" };
            let count = self.dimensions()?.checked_mul(vector).ok_or_else(|| self.error("array too large"))?;
            if space != Space::Param {
                return Err(LoadError::syntax(line, "parameter outside the .param space"));
            }
            let (linkage, initial, opaque) = (Linkage::Internal, Vec::new(), None);
            params.push(Variable { line, name, space, ty, align, count, linkage, initial, opaque });
            if !self.eat(',') && !self.is(')') {
                return self.unexpected("`,` or `)`");
            }
        }
        Ok(params)
    }

    pub(super) fn function(&mut self, line: u32, linkage: Linkage, is_entry: bool) -> Parsed<Function<'a>> {
        let results = if self.is('(') { self.params()? } else { Vec::new() };
        let name = self.word()?;
        let params = if self.is('(') { self.params()? } else { Vec::new() };
        let mut function = Function {
            line,
            name,
            linkage,
            is_entry,
            results,
            params,
            max_threads: None,
            required: None,
            registers_max: None,
            explicit_cluster: false,
            body: None,
        };
        loop {
            match self.peek() {
                Some(Kind::Dot(directive)) => self.performance(directive, &mut function)?,
                Some(Kind::Punct('{')) => {
                    function.body = Some(self.body()?);
                    return Ok(function);
                }
                Some(Kind::Punct(';')) => {
                    self.at += 1;
                    return Ok(function);
                }
                _ => return self.unexpected("the body of a function"),
            }
        }
    }

    fn performance(&mut self, directive: &'a str, function: &mut Function<'a>) -> Parsed<()> {
        let line = self.line();
        self.at += 1;
        match directive {
            "maxntid" => function.max_threads = Some(threads(self.shape()?)),
            "reqntid" => function.required = Some(self.shape()?),
            "explicitcluster" => function.explicit_cluster = true,
            "reqnctapercluster" => {
                function.explicit_cluster = true;
                if self.shape()? != [1; 3] {
                    let message = "clusters of more than one block are not supported";
                    return Err(LoadError::new(line, LoadErrorKind::UnsupportedDirective, message));
                }
            }
            "maxnreg" => function.registers_max = Some(self.small()?),
            "minnctapersm" | "maxnctapersm" | "maxclusterrank" => {
                self.integer()?;
            }
            "noreturn" => {}
            "pragma" => return self.skip_to(';'),
            "loc" => {
                self.at -= 1;
                self.skip_line();
            }
            _ => return Err(unsupported(line, directive)),
        }
        Ok(())
    }

    fn shape(&mut self) -> Parsed<[u32; 3]> {
        let mut shape = [1; 3];
        for (index, length) in shape.iter_mut().enumerate() {
            if index == 0 || self.eat(',') {
                *length = self.small()?;
            }
        }
        Ok(shape)
    }

    fn body(&mut self) -> Parsed<Vec<Statement<'a>>> {
        self.expect('{')?;
        let (mut statements, mut depth) = (Vec::new(), 1);
        loop {
            if self.eat('}') {
                depth -= 1;
                if depth == 0 {
                    return Ok(statements);
                }
                statements.push(Statement::Close);
            } else if self.eat('{') {
                depth += 1;
                if depth > NESTING_MAX {
                    return Err(self.error("braces nested too deeply"));
                }
                statements.push(Statement::Open);
            } else if !self.eat(';') {
                self.statement(&mut statements)?;
            }
            self.statements += 1;
            if self.statements > STATEMENTS_MAX {
                let message = format!("more than {STATEMENTS_MAX} statements; split the text into several");
                return Err(self.error(message));
            }
        }
    }

    fn statement(&mut self, statements: &mut Vec<Statement<'a>>) -> Parsed<()> {
        let line = self.line();
        match self.peek() {
            Some(Kind::Dot("reg")) => {
                self.at += 1;
                statements.push(Statement::Registers(self.registers(line)?));
            }
            Some(Kind::Dot("loc")) => statements.extend(self.location().map(Statement::Location)),
            Some(Kind::Dot("file")) => self.skip_line(),
            Some(Kind::Dot("pragma")) => self.skip_to(';')?,
            Some(Kind::Dot("extern")) => {
                self.at += 1;
                let variables = self.variables(Linkage::Extern)?;
                statements.extend(variables.into_iter().map(Statement::Variable));
            }
            Some(Kind::Dot("param" | "local" | "shared" | "global" | "const")) => {
                let variables = self.variables(Linkage::Internal)?;
                statements.extend(variables.into_iter().map(Statement::Variable));
            }
            Some(Kind::Dot(name)) => return Err(unsupported(line, name)),
            Some(Kind::Word(name)) if self.peek_at(1) == Some(Kind::Punct(':')) => {
                self.at += 2;
                statements.push(self.labelled(name)?);
            }
            Some(Kind::Word(_) | Kind::Punct('@')) => {
                statements.push(Statement::Instruction(self.instruction(line)?));
            }
            _ => return self.unexpected("a statement"),
        }
        Ok(())
    }

    fn labelled(&mut self, name: &'a str) -> Parsed<Statement<'a>> {
        match self.peek() {
            Some(Kind::Dot("callprototype" | "calltargets")) => {
                self.skip_to(';')?;
                Ok(Statement::Prototype)
            }
            Some(Kind::Dot("branchtargets")) => {
                self.at += 1;
                let mut targets = vec![self.word()?];
                while self.eat(',') {
                    targets.push(self.word()?);
                }
                self.expect(';')?;
                Ok(Statement::Targets(name, targets))
            }
            _ => Ok(Statement::Label(name)),
        }
    }

    fn registers(&mut self, line: u32) -> Parsed<Registers<'a>> {
        let (mut ty, mut shape) = (None, Shape::Scalar);
        while let Some(Kind::Dot(name)) = self.peek() {
            self.at += 1;
            match name {
                "v2" => shape = Shape::Vector(2),
                "v4" => shape = Shape::Vector(4),
                "b128" => (ty, shape) = (Some(Type::B64), Shape::Quad),
                _ => ty = Some(Type::parse(name).ok_or_else(|| unsupported(line, name))?),
            }
        }
        let Some(ty) = ty else { return self.unexpected("a register type") };
        if ty == Type::Pred && shape != Shape::Scalar {
            return Err(LoadError::syntax(line, "a vector can't hold predicates"));
        }
        let mut names = Vec::new();
        loop {
            let name = self.word()?;
            let count = if self.eat('<') {
                let count = self.integer()?;
                self.expect('>')?;
                if count > REGISTERS_MAX {
                    return Err(LoadError::syntax(line, format!("more than {REGISTERS_MAX} registers `{name}`")));
                }
                Some(count as u32)
            } else {
                None
            };
            names.push((name, count));
            if !self.eat(',') {
                self.expect(';')?;
                return Ok(Registers { line, ty, shape, names });
            }
        }
    }
}

/// Returns the threads of a block of this shape, saturated to `u64`.
pub fn threads(shape: [u32; 3]) -> u64 {
    shape.iter().fold(1, |product: u64, n| product.saturating_mul(u64::from(*n)))
}
