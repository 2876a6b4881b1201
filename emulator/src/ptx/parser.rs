//! The parser: builds the tree of a PTX text. This file has the module scope and its directives. Of debug information
//! it keeps the lines and skips the rest; an unknown directive is an error.

mod cursor;
mod functions;
mod locations;
mod operands;
mod variables;

use self::cursor::{Parsed, Parser};
pub use self::functions::threads;
use super::lexer::{Kind, tokens};
use super::tree::{Linkage, Target, Tree};
use crate::ptx::error::{LoadError, LoadErrorKind};

/// Maximum bytes of a text: several times the largest libraries. The tree takes about ten times the bytes of the text.
const TEXT_BYTES_MAX: usize = 64 << 20;

/// Maximum functions and variables of a text. Each takes one or two kilobytes, however short it is.
const DEFINITIONS_MAX: usize = 1 << 16;

/// Parses a PTX text.
pub fn parse(text: &str) -> Result<Tree<'_>, LoadError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(LoadError::syntax(0, format!("the text has more than {TEXT_BYTES_MAX} bytes")));
    }
    let tokens = tokens(text)?;
    let mut parser = Parser::new(text, &tokens);
    let mut tree = Tree::default();
    while parser.at < tokens.len() {
        parser.item(&mut tree)?;
        if tree.functions.len() + tree.variables.len() > DEFINITIONS_MAX {
            let message = format!("more than {DEFINITIONS_MAX} functions and variables; split the text into several");
            return Err(parser.error(message));
        }
    }
    Ok(tree)
}

impl<'a> Parser<'a, '_> {
    /// Parses one item of the module scope.
    fn item(&mut self, tree: &mut Tree<'a>) -> Parsed<()> {
        let mut linkage = Linkage::Internal;
        loop {
            let line = self.line();
            let Some(Kind::Dot(name)) = self.peek() else { return self.unexpected("a directive") };
            match name {
                "version" => {
                    self.at += 1;
                    tree.version = self.version().unwrap_or_default();
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
                "file" => {
                    tree.files.extend(self.file());
                    return Ok(());
                }
                "loc" => {
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
                "alias" => {
                    self.at += 1;
                    let alias = self.word()?;
                    self.expect(',')?;
                    tree.aliases.push((alias, self.word()?));
                    return self.expect(';');
                }
                "visible" | "weak" | "common" | "extern" => {
                    linkage = match name {
                        "visible" => Linkage::Visible,
                        "weak" => Linkage::Weak,
                        "common" => Linkage::Common,
                        _ => Linkage::Extern,
                    };
                    self.at += 1;
                }
                "entry" | "func" => {
                    self.at += 1;
                    let function = self.function(line, linkage, name == "entry")?;
                    tree.functions.push(function);
                    return Ok(());
                }
                "global" | "const" | "shared" => {
                    let variables = self.variables(linkage)?;
                    tree.variables.extend(variables);
                    return Ok(());
                }
                _ => return Err(unsupported(line, name)),
            }
        }
    }

    /// Parses the number behind `.version`.
    fn version(&self) -> Option<(u32, u32)> {
        let token = self.tokens.get(self.at)?;
        let (major, minor) = self.text[token.range()].split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
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
}

fn unsupported(line: u32, name: &str) -> LoadError {
    LoadError::new(line, LoadErrorKind::UnsupportedDirective, format!("unsupported directive `.{name}`"))
}
