//! The modifiers of one instruction. Code that supports a modifier takes it. A modifier that is left over makes the
//! instruction unsupported, so no modifier is ever ignored by accident.

use crate::ops::exact::Rounding;
use crate::ptx::error::{LoadError, LoadErrorKind};
use crate::ptx::tree::Instruction;
use crate::ptx::types::Type;

#[derive(Debug)]
pub struct Modifiers<'a> {
    left: Vec<&'a str>,
    line: u32,
    text: &'a str,
}

impl<'a> Modifiers<'a> {
    pub fn of(instruction: &Instruction<'a>) -> Modifiers<'a> {
        Modifiers { left: instruction.modifiers.clone(), line: instruction.line, text: instruction.text }
    }

    /// Takes a modifier; returns whether it was there.
    pub fn take(&mut self, name: &str) -> bool {
        match self.left.iter().position(|left| *left == name) {
            Some(index) => {
                self.left.remove(index);
                true
            }
            None => false,
        }
    }

    /// Takes the first of several modifiers that is there.
    pub fn one_of(&mut self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| self.take(name))
    }

    /// Takes the first modifier that names a type.
    pub fn ty(&mut self) -> Result<Type, LoadError> {
        self.try_ty().ok_or_else(|| self.unsupported())
    }

    pub fn try_ty(&mut self) -> Option<Type> {
        self.first(Type::parse)
    }

    /// Takes the first modifier that `parse` accepts.
    pub fn first<T>(&mut self, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let (index, found) = self.left.iter().enumerate().find_map(|(index, name)| Some((index, parse(name)?)))?;
        self.left.remove(index);
        Some(found)
    }

    /// Takes the first modifier that `parse` accepts.
    pub fn parsed<T>(&mut self, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let (index, found) = self.left.iter().enumerate().find_map(|(index, name)| Some((index, parse(name)?)))?;
        self.left.remove(index);
        Some(found)
    }

    /// Takes `rn`, `rz`, `rm` or `rp`.
    pub fn rounding(&mut self) -> Option<Rounding> {
        Some(match self.one_of(&["rn", "rz", "rm", "rp"])? {
            "rn" => Rounding::Nearest,
            "rz" => Rounding::Zero,
            "rm" => Rounding::Down,
            _ => Rounding::Up,
        })
    }

    /// Returns an error if a modifier is left over.
    pub fn finish(&self) -> Result<(), LoadError> {
        if self.left.is_empty() { Ok(()) } else { Err(self.unsupported()) }
    }

    pub fn unsupported(&self) -> LoadError {
        unsupported(self.line, self.text)
    }
}

pub fn unsupported(line: u32, text: &str) -> LoadError {
    LoadError::new(line, LoadErrorKind::UnsupportedOpcode, format!("unsupported opcode `{text}`"))
}
