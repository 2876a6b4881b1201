//! Builds the tree of a PTX text. Debug information is passed over; a directive that is not known is an error.

use super::lexer::{Kind, Token, tokens};
use super::tree::{Base, Function, Initial, Instruction, Operand, Registers, Space, Statement, Target, Tree, Variable};
use super::types::Type;
use crate::module::{LoadError, LoadErrorKind};

/// Braces and parentheses inside one another in an operand or an initial value; PTX has no use for more than a few.
const NESTING_MAX: u32 = 16;

/// Registers in one `%r<N>` declaration. The compiler numbers them one by one, so that more would be a text of
/// hundreds of megabytes.
const REGISTERS_MAX: u64 = 1 << 20;

/// Parses a PTX text.
pub fn parse(text: &str) -> Result<Tree<'_>, LoadError> {
    let tokens = tokens(text)?;
    let mut parser = Parser { text, tokens: &tokens, at: 0 };
    let mut tree = Tree::default();
    while parser.at < tokens.len() {
        parser.item(&mut tree)?;
    }
    Ok(tree)
}

struct Parser<'a, 't> {
    text: &'a str,
    tokens: &'t [Token<'a>],
    at: usize,
}

type Parsed<T> = Result<T, LoadError>;

impl<'a> Parser<'a, '_> {
    fn peek(&self) -> Option<Kind<'a>> {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> Option<Kind<'a>> {
        self.tokens.get(self.at + ahead).map(|token| token.kind)
    }

    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |token| token.line)
    }

    fn next(&mut self) -> Parsed<Kind<'a>> {
        let kind = self.peek().ok_or_else(|| self.error("the text ends in the middle of a statement"))?;
        self.at += 1;
        Ok(kind)
    }

    fn error(&self, message: impl Into<String>) -> LoadError {
        LoadError::syntax(self.line(), message)
    }

    fn unexpected<T>(&self, wanted: &str) -> Parsed<T> {
        let found = match self.tokens.get(self.at) {
            Some(token) => format!("`{}`", &self.text[token.start..token.end]),
            None => "the end of the text".to_owned(),
        };
        Err(self.error(format!("expected {wanted}, found {found}")))
    }

    fn is(&self, wanted: char) -> bool {
        self.peek() == Some(Kind::Punct(wanted))
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.is(wanted);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, wanted: char) -> Parsed<()> {
        if self.eat(wanted) { Ok(()) } else { self.unexpected(&format!("`{wanted}`")) }
    }

    fn word(&mut self) -> Parsed<&'a str> {
        match self.peek() {
            Some(Kind::Word(word)) => {
                self.at += 1;
                Ok(word)
            }
            _ => self.unexpected("a name"),
        }
    }

    fn integer(&mut self) -> Parsed<u64> {
        match self.peek() {
            Some(Kind::Integer(value)) => {
                self.at += 1;
                Ok(value)
            }
            _ => self.unexpected("a number"),
        }
    }

    fn small(&mut self) -> Parsed<u32> {
        let line = self.line();
        u32::try_from(self.integer()?).map_err(|_| LoadError::syntax(line, "number too large"))
    }

    /// Passes over the rest of a line: the directives of debug information end there.
    fn skip_line(&mut self) {
        let line = self.line();
        while self.tokens.get(self.at).is_some_and(|token| token.line == line) {
            self.at += 1;
        }
    }

    fn skip_to(&mut self, end: char) -> Parsed<()> {
        while self.next()? != Kind::Punct(end) {}
        Ok(())
    }

    fn skip_braces(&mut self) -> Parsed<()> {
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

    /// One item of the module's top level.
    fn item(&mut self, tree: &mut Tree<'a>) -> Parsed<()> {
        let mut is_extern = false;
        loop {
            let line = self.line();
            let Some(Kind::Dot(name)) = self.peek() else { return self.unexpected("a directive") };
            match name {
                "version" => {
                    self.at += 1;
                    self.skip_line();
                    return Ok(());
                }
                "target" => {
                    self.at += 1;
                    return self.target(tree);
                }
                "address_size" => {
                    self.at += 1;
                    if self.integer()? != 64 {
                        return Err(LoadError::new(line, LoadErrorKind::Target, "only 64-bit addresses are supported"));
                    }
                    return Ok(());
                }
                "file" | "loc" => {
                    self.skip_line();
                    return Ok(());
                }
                "section" => {
                    while !self.is('{') {
                        self.next()?;
                    }
                    return self.skip_braces();
                }
                "pragma" => return self.skip_to(';'),
                "visible" | "weak" | "common" => self.at += 1,
                "extern" => {
                    is_extern = true;
                    self.at += 1;
                }
                "entry" | "func" => {
                    self.at += 1;
                    let function = self.function(line, name == "entry")?;
                    tree.functions.push(function);
                    return Ok(());
                }
                "global" | "const" | "shared" => {
                    let variables = self.variables(is_extern)?;
                    tree.variables.extend(variables);
                    return Ok(());
                }
                _ => return Err(unsupported(line, name)),
            }
        }
    }

    fn target(&mut self, tree: &mut Tree<'a>) -> Parsed<()> {
        let line = self.line();
        loop {
            let name = self.word()?;
            if let Some(number) = name.strip_prefix("sm_") {
                let digits = number.trim_end_matches(|c: char| c.is_ascii_lowercase());
                let value: u32 = digits
                    .parse()
                    .map_err(|_| LoadError::new(line, LoadErrorKind::Target, format!("unknown target `{name}`")))?;
                let exact = digits.len() < number.len();
                tree.target = Some(Target { line, major: value / 10, minor: value % 10, exact });
            }
            if !self.eat(',') {
                return Ok(());
            }
        }
    }

    fn space(&mut self) -> Parsed<Space> {
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
    fn declared_type(&mut self) -> Parsed<(Type, u32, u64)> {
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
    fn dimensions(&mut self) -> Parsed<u64> {
        let mut count = 1u64;
        while self.eat('[') {
            let length = if self.is(']') { 0 } else { self.integer()? };
            count = count.checked_mul(length).ok_or_else(|| self.error("array too large"))?;
            self.expect(']')?;
        }
        Ok(count)
    }

    /// One or more variables of one type, up to and with the semicolon.
    fn variables(&mut self, is_extern: bool) -> Parsed<Vec<Variable<'a>>> {
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
                return Err(LoadError::syntax(line, "parameter outside .param"));
            }
            params.push(Variable { line, name, space, ty, align, count, is_extern: false, initial: Vec::new() });
            if !self.eat(',') && !self.is(')') {
                return self.unexpected("`,` or `)`");
            }
        }
        Ok(params)
    }

    fn function(&mut self, line: u32, is_entry: bool) -> Parsed<Function<'a>> {
        let results = if self.is('(') { self.params()? } else { Vec::new() };
        let name = self.word()?;
        let params = if self.is('(') { self.params()? } else { Vec::new() };
        let mut function =
            Function { line, name, is_entry, results, params, max_threads: None, required: None, body: None };
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
            "maxntid" => function.max_threads = Some(self.shape()?.iter().map(|n| u64::from(*n)).product()),
            "reqntid" => function.required = Some(self.shape()?),
            "minnctapersm" | "maxnctapersm" | "maxnreg" => {
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
                statements.push(Statement::Open);
            } else if !self.eat(';') {
                self.statement(&mut statements)?;
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
            Some(Kind::Dot("loc" | "file")) => self.skip_line(),
            Some(Kind::Dot("pragma")) => self.skip_to(';')?,
            Some(Kind::Dot("extern")) => {
                self.at += 1;
                let variables = self.variables(true)?;
                statements.extend(variables.into_iter().map(Statement::Variable));
            }
            Some(Kind::Dot("param" | "local" | "shared" | "global" | "const")) => {
                let variables = self.variables(false)?;
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
        let name = match self.next()? {
            Kind::Dot(name) => name,
            _ => {
                self.at -= 1;
                return self.unexpected("a register type");
            }
        };
        let ty = Type::parse(name).ok_or_else(|| unsupported(line, name))?;
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
                return Ok(Registers { line, ty, names });
            }
        }
    }

    fn instruction(&mut self, line: u32) -> Parsed<Instruction<'a>> {
        let guard = if self.eat('@') {
            let negated = self.eat('!');
            Some((self.word()?, negated))
        } else {
            None
        };
        let start = self.tokens.get(self.at).map_or(0, |token| token.start);
        let mnemonic = self.word()?;
        let mut modifiers = Vec::new();
        while let Some(Kind::Dot(modifier)) = self.peek() {
            modifiers.push(modifier);
            self.at += 1;
        }
        let text = &self.text[start..self.tokens[self.at - 1].end];
        let mut operands = Vec::new();
        while !self.eat(';') {
            operands.push(self.operand(0)?);
            if !self.eat(',') && !self.is(';') {
                return self.unexpected("`,` or `;`");
            }
        }
        Ok(Instruction { line, guard, text, mnemonic, modifiers, operands })
    }

    fn operand(&mut self, depth: u32) -> Parsed<Operand<'a>> {
        if depth > NESTING_MAX {
            return Err(self.error("operand nested too deeply"));
        }
        match self.peek() {
            Some(Kind::Punct('{')) => Ok(Operand::Vector(self.operands('{', '}', depth)?)),
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

    /// `+ 4`, `- 4`, `+-4` or nothing.
    fn offset(&mut self) -> Parsed<i64> {
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
            return Ok(Operand::Address(base, offset));
        }
        // Texture and tensor operands; the instructions that take them are refused by name later.
        let mut rest = Vec::new();
        while self.eat(',') {
            rest.push(self.operand(depth + 1)?);
        }
        self.expect(']')?;
        Ok(Operand::List(rest))
    }
}

fn unsupported(line: u32, name: &str) -> LoadError {
    LoadError::new(line, LoadErrorKind::UnsupportedDirective, format!("unsupported directive `.{name}`"))
}
