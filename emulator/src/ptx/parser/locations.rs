//! Parses `.file` and `.loc`, which say where in the source an instruction comes from. Only reports use them, so
//! unknown forms are skipped.

use super::cursor::Parser;
use crate::ptx::lexer::Kind;
use crate::ptx::tree::{Location, Position};

impl<'a> Parser<'a, '_> {
    /// Parses `.file 1 "kernel.cu"`.
    pub(super) fn file(&mut self) -> Option<(u32, &'a str)> {
        let file = match (self.peek_at(1), self.peek_at(2)) {
            (Some(Kind::Integer(number)), Some(Kind::Text(name))) => u32::try_from(number).ok().map(|n| (n, name)),
            _ => None,
        };
        self.skip_line();
        file
    }

    /// Parses `.loc 1 16 9` or `.loc 1 2 5, function_name NAME, inlined_at 1 5 5`.
    pub(super) fn location(&mut self) -> Option<Location> {
        let start = self.at;
        self.skip_line();
        let at = self.position(start + 1)?;
        let inlined = (start..self.at).find(|index| self.tokens[*index].kind == Kind::Word("inlined_at"));
        Some(Location { at, inlined_at: inlined.and_then(|index| self.position(index + 1)) })
    }

    /// Parses the three numbers between `start` and the current end of the line.
    fn position(&self, start: usize) -> Option<Position> {
        let numbers = self.tokens.get(start..start + 3).filter(|_| start + 3 <= self.at)?;
        let number = |index: usize| match numbers[index].kind {
            Kind::Integer(value) => u32::try_from(value).ok(),
            _ => None,
        };
        Some(Position { file: number(0)?, line: number(1)?, column: number(2)? })
    }
}
