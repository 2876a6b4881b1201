//! One parameter of a kernel.

use gpufleet_schema::Dtype;

use super::{
    Problem,
    brackets::{before, has, outside},
    lexer::is_name,
    types::{self, Types},
};

/// A parameter of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// `None` if no declaration names it.
    pub name: Option<String>,
    /// The words of the type without `const` and without the pointer, for example `unsigned`, `int`. Names of types are
    /// replaced by the types for which they stand.
    pub base: Vec<String>,
    pub is_pointer: bool,
    /// Whether it is a pointer to what the kernel only reads.
    pub is_input: bool,
    /// The words of the declaration, with a space between each two.
    pub written: String,
}

impl Parameter {
    /// Returns the type without names of types, for example `const float*`.
    pub fn spelled(&self) -> String {
        spelled(&self.base, usize::from(self.is_pointer), self.is_input)
    }

    /// Returns the dtype of the scalar or of the elements of the array. `None` if they are no numbers of the wire format.
    pub fn dtype(&self) -> Option<Dtype> {
        types::dtype(&self.base)
    }

    pub fn has_type_of(&self, other: &Self) -> bool {
        (&self.base, self.is_pointer, self.is_input) == (&other.base, other.is_pointer, other.is_input)
    }
}

/// A parameter that can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub index: usize,
    pub name: Option<String>,
    /// The words of the declaration, with a space between each two.
    pub written: String,
}

impl Place {
    pub fn new(index: usize, name: Option<&str>, words: &[&str]) -> Self {
        Self { index, name: name.map(str::to_owned), written: words.join(" ") }
    }

    pub fn name_or_default(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("arg{}", self.index))
    }

    /// Returns the name in quotes, or the index.
    pub fn quoted_name(&self) -> String {
        self.name.as_ref().map_or_else(|| self.index.to_string(), |name| format!("'{name}'"))
    }
}

/// Reads the parameter with this index from its words.
pub fn read<'a>(index: usize, part: &[&'a str], types: &mut Types<'_, 'a>) -> Result<Parameter, Problem> {
    let declared: Vec<&'a str> = before(part, "=").iter().copied().filter(|word| !is_ignored(word)).collect();
    let not_plain = || Problem::NotPlain(Place::new(index, None, part));
    if declared.contains(&"...") || declared.contains(&"(") {
        return Err(not_plain());
    }
    let is_array = has(&declared, "[");
    let words = before(&declared, "[");
    let (words, name) = split_name(words).ok_or_else(not_plain)?;
    let place = || Place::new(index, name, part);
    if has(words, "&") {
        return Err(Problem::Reference(place()));
    }
    let stars = outside(words).filter(|(_, word)| *word == "*").count() + usize::from(is_array);
    let base = before(words, "*");
    let is_const = has(base, "const");
    let base = types
        .resolve(&without_const(base))
        .map_err(|name| Problem::CompoundType { place: place(), type_name: name.to_owned() })?;
    let base: Vec<String> = base.into_iter().map(str::to_owned).collect();
    if stars > 1 {
        return Err(Problem::PointerToPointers { place: place(), spelled: spelled(&base, stars, is_const) });
    }
    Ok(Parameter {
        name: name.map(str::to_owned),
        base,
        is_pointer: stars == 1,
        is_input: is_const && stars == 1,
        written: part.join(" "),
    })
}

/// Returns whether a word changes neither how a parameter is passed nor its type.
fn is_ignored(word: &str) -> bool {
    matches!(
        word,
        "__restrict__"
            | "__restrict"
            | "restrict"
            | "volatile"
            | "__grid_constant__"
            | "register"
            | "struct"
            | "class"
            | "enum"
            | "union"
            | "typename"
    )
}

fn is_built_in(word: &str) -> bool {
    matches!(
        word,
        "signed" | "unsigned" | "char" | "short" | "int" | "long" | "float" | "double" | "bool" | "void" | "const"
    )
}

/// Separates the parameter's name from its type. Returns `None` if there are no words.
fn split_name<'w, 'a>(words: &'w [&'a str]) -> Option<(&'w [&'a str], Option<&'a str>)> {
    let (last, before) = words.split_last()?;
    let type_end = without_const(before).last().copied();
    let is_named = is_name(last) && !is_built_in(last) && type_end.is_some_and(|word| word != "::");
    Some(if is_named { (before, Some(last)) } else { (words, None) })
}

/// Returns the words without a `const` that is outside of angle brackets.
fn without_const<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let consts: Vec<usize> = outside(words).filter(|(_, word)| *word == "const").map(|(index, _)| index).collect();
    let mut consts = consts.into_iter().peekable();
    let kept = words.iter().enumerate().filter(|(index, _)| consts.next_if_eq(index).is_none());
    kept.map(|(_, word)| *word).collect()
}

fn spelled(base: &[String], stars: usize, is_const: bool) -> String {
    let mut text = base.join(" ");
    for mark in ["::", "<", ">", ","] {
        text = text.replace(&format!(" {mark}"), mark).replace(&format!("{mark} "), mark);
    }
    let constness = if is_const && stars > 0 { "const " } else { "" };
    format!("{constness}{text}{}", "*".repeat(stars))
}
