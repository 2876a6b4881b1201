//! Reads the parameters of a kernel in CUDA C.
//!
//! This is no compiler: it knows the built-in types, fixed-width types, `typedef`, `using` and macros without parameters.
//! What it can't read is an error with the parameter's name, and never a guess.

use std::collections::BTreeMap;

use gpufleet::schema::Dtype;

mod tokens;

use tokens::{closing, tokens};

/// A parameter of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    pub name: String,
    pub dtype: Dtype,
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `const T *`
    Input,
    /// `T *`
    Output,
    /// `T`
    Scalar,
}

/// Why the parameters are not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("it has no kernel {name}{}", known(.kernels))]
    NoKernel { name: String, kernels: Vec<String> },
    #[error("kernel {0} is not extern \"C\", so the compiler changes its name")]
    NotC(String),
    #[error("kernel {0} is a template, and so has no parameters of its own")]
    Template(String),
    #[error("kernel {0} is declared more than once, with different parameters")]
    Ambiguous(String),
    #[error(
        "parameter {name} of kernel {kernel} is {spelled}, and not a number or a pointer to numbers of fixed width"
    )]
    Parameter { kernel: String, name: String, spelled: String },
    #[error("two parameters of kernel {kernel} have the name {name}")]
    TwoOfOneName { kernel: String, name: String },
}

fn known(kernels: &[String]) -> String {
    match kernels {
        [] => ", and no other kernel".to_owned(),
        some => format!("; its kernels are {}", some.join(", ")),
    }
}

/// The name by which a job launches the only kernel of the code: `NAME` if it is `extern "C"`, else `::NAME`.
pub fn only_entry(code: &str) -> Result<String, NoOnlyEntry> {
    let tokens = tokens(code);
    let declarations = declarations(&tokens, &mut Aliases::new());
    let mut names: Vec<&str> = declarations.iter().map(|declaration| declaration.name).collect();
    names.sort_unstable();
    names.dedup();
    let [name] = names.as_slice() else {
        return Err(match names.as_slice() {
            [] => NoOnlyEntry::None,
            several => NoOnlyEntry::Several(several.iter().map(|name| (*name).to_owned()).collect()),
        });
    };
    if declarations.iter().any(|declaration| declaration.is_template) {
        return Err(NoOnlyEntry::Template((*name).to_owned()));
    }
    if declarations.iter().any(|declaration| declaration.is_c) {
        return Ok((*name).to_owned());
    }
    match declarations.iter().any(|declaration| declaration.is_in_namespace) {
        true => Err(NoOnlyEntry::Namespace((*name).to_owned())),
        false => Ok(format!("::{name}")),
    }
}

/// Why the name of a kernel has to be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoOnlyEntry {
    #[error("it has no kernel: no function is __global__")]
    None,
    #[error("it has several kernels: {}", .0.join(", "))]
    Several(Vec<String>),
    #[error("its kernel {0} is a template")]
    Template(String),
    #[error("its kernel {0} is in a namespace")]
    Namespace(String),
}

/// The parameters of the kernel with this name, which must be `extern "C"`.
pub fn parameters(code: &str, name: &str) -> Result<Vec<Parameter>, Unreadable> {
    read(code, name, true)
}

/// The parameters of the kernel with this entry name, which may be `::NAME`.
pub fn parameters_of_entry(code: &str, entry: &str) -> Result<Vec<Parameter>, Unreadable> {
    let name = entry.strip_prefix("::").unwrap_or(entry);
    match name.split_once('<') {
        Some((template, _)) => Err(Unreadable::Template(template.to_owned())),
        None => read(code, name, false),
    }
}

fn read(code: &str, name: &str, must_be_c: bool) -> Result<Vec<Parameter>, Unreadable> {
    let tokens = tokens(code);
    let mut aliases = Aliases::new();
    let declarations = declarations(&tokens, &mut aliases);
    let mut found = declarations.iter().filter(|declaration| declaration.name == name);
    let Some(first) = found.next() else {
        let mut kernels: Vec<String> = declarations.iter().map(|declaration| declaration.name.to_owned()).collect();
        kernels.sort();
        kernels.dedup();
        return Err(Unreadable::NoKernel { name: name.to_owned(), kernels });
    };
    if first.is_template {
        return Err(Unreadable::Template(name.to_owned()));
    }
    if must_be_c && !first.is_c && !found.clone().any(|declaration| declaration.is_c) {
        return Err(Unreadable::NotC(name.to_owned()));
    }
    let parameters = first.parameters(&aliases)?;
    for other in found {
        let others = other.parameters(&aliases)?;
        let types = |list: &[Parameter]| list.iter().map(|each| (each.dtype, each.kind)).collect::<Vec<_>>();
        if types(&others) != types(&parameters) {
            return Err(Unreadable::Ambiguous(name.to_owned()));
        }
    }
    let mut names = std::collections::BTreeSet::new();
    match parameters.iter().find(|parameter| !names.insert(&parameter.name)) {
        Some(Parameter { name: twice, .. }) => {
            Err(Unreadable::TwoOfOneName { kernel: name.to_owned(), name: twice.clone() })
        }
        None => Ok(parameters),
    }
}

/// What a name of a type stands for.
type Aliases<'a> = BTreeMap<&'a str, Vec<&'a str>>;

/// A `__global__` function.
#[derive(Debug)]
struct Declaration<'a> {
    name: &'a str,
    parameters: &'a [&'a str],
    is_template: bool,
    is_c: bool,
    is_in_namespace: bool,
}

/// All `__global__` functions outside of bodies. Collects the names of types on the way.
fn declarations<'a>(tokens: &'a [&'a str], aliases: &mut Aliases<'a>) -> Vec<Declaration<'a>> {
    let mut found = Vec::new();
    // The blocks around the current token that may contain kernels, and whether each is `extern "C"`.
    let mut blocks: Vec<bool> = Vec::new();
    let mut head: Vec<&str> = Vec::new();
    let mut index = 0;
    while let Some(&token) = tokens.get(index) {
        match token {
            "{" => match block(&head) {
                Some(is_c) => {
                    blocks.push(is_c);
                    head.clear();
                }
                // The body of a function ends its declaration; that of a type may be followed by a name.
                None if head.contains(&")") => {
                    index = closing(tokens, index);
                    head.clear();
                }
                None => {
                    index = closing(tokens, index);
                    head.push("{}");
                }
            },
            ";" | "}" => {
                note_alias(&head, aliases);
                head.clear();
                if token == "}" {
                    blocks.pop();
                }
            }
            "(" => {
                let end = closing(tokens, index);
                if let Some(&name) = head.last().filter(|name| head.contains(&"__global__") && is_name(name)) {
                    found.push(Declaration {
                        name,
                        parameters: &tokens[index + 1..end],
                        is_template: head.contains(&"template"),
                        is_c: blocks.contains(&true) || head.contains(&"\"C\""),
                        is_in_namespace: blocks.contains(&false),
                    });
                }
                head.extend(["(", ")"]);
                index = end;
            }
            _ => head.push(token),
        }
        index += 1;
    }
    found
}

/// Whether a block that begins here may contain kernels, and then whether it is `extern "C"`.
fn block(head: &[&str]) -> Option<bool> {
    match head {
        ["extern", language] => Some(*language == "\"C\""),
        _ => head.contains(&"namespace").then_some(false),
    }
}

/// Attributes such as `__launch_bounds__` are also followed by parentheses.
fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
        && !(token.starts_with("__") && token.ends_with("__"))
}

fn note_alias<'a>(head: &[&'a str], aliases: &mut Aliases<'a>) {
    match head {
        ["typedef", meaning @ .., name] => aliases.insert(name, meaning.to_vec()),
        ["using", name, "=", meaning @ ..] => aliases.insert(name, meaning.to_vec()),
        _ => None,
    };
}

impl Declaration<'_> {
    fn parameters(&self, aliases: &Aliases<'_>) -> Result<Vec<Parameter>, Unreadable> {
        let parts = tokens::split(self.parameters);
        match parts.as_slice() {
            [part] if part.is_empty() || *part == ["void"] => Ok(Vec::new()),
            _ => parts.iter().enumerate().map(|(index, part)| self.parameter(index, part, aliases)).collect(),
        }
    }

    fn parameter(&self, index: usize, part: &[&str], aliases: &Aliases<'_>) -> Result<Parameter, Unreadable> {
        const IGNORED: [&str; 6] =
            ["__restrict__", "__restrict", "restrict", "volatile", "__grid_constant__", "struct"];
        let declared = part.split(|token| *token == "=").next().unwrap_or_default();
        let words: Vec<&str> = declared.iter().copied().filter(|word| !IGNORED.contains(word)).collect();
        let is_array = words.contains(&"[");
        let words = words.split(|word| *word == "[").next().unwrap_or_default();
        let (name, words) = match words {
            [words @ .., name] if has_type(words) && is_name(name) && !is_built_in(name) => (*name, words),
            // A parameter without a name. The place of one that is named has no such form.
            words => ("", words),
        };
        let unreadable = || Unreadable::Parameter {
            kernel: self.name.to_owned(),
            name: if name.is_empty() { format!("{} (without a name)", index + 1) } else { name.to_owned() },
            spelled: part.join(" "),
        };
        let stars = words.iter().filter(|word| **word == "*").count() + usize::from(is_array);
        let base = words.split(|word| *word == "*").next().unwrap_or_default();
        let is_const = base.contains(&"const");
        let base: Vec<&str> = base.iter().copied().filter(|word| *word != "const").collect();
        let kind = match stars {
            0 => Kind::Scalar,
            1 if is_const => Kind::Input,
            1 => Kind::Output,
            _ => return Err(unreadable()),
        };
        match dtype(&resolved(&base, aliases)) {
            Some(dtype) if !name.is_empty() => Ok(Parameter { name: name.to_owned(), dtype, kind }),
            _ => Err(unreadable()),
        }
    }
}

fn has_type(words: &[&str]) -> bool {
    words.iter().any(|word| *word != "const" && is_name(word))
}

fn is_built_in(word: &str) -> bool {
    matches!(word, "signed" | "unsigned" | "char" | "short" | "int" | "long" | "float" | "double" | "bool" | "const")
}

/// The words with names of types replaced by what they stand for. A chain has no more links than there are names.
fn resolved<'a>(words: &[&'a str], aliases: &Aliases<'a>) -> Vec<&'a str> {
    let mut words = words.to_vec();
    for _ in 0..=aliases.len() {
        words = words.iter().flat_map(|word| aliases.get(word).cloned().unwrap_or_else(|| vec![*word])).collect();
    }
    words
}

/// The dtype of a type. `long` has 64 bits in CUDA on Linux.
fn dtype(words: &[&str]) -> Option<Dtype> {
    let words = words.strip_prefix(&["std", "::"]).unwrap_or(words);
    let named = match words {
        ["float"] => Dtype::F32,
        ["double"] => Dtype::F64,
        ["bool"] => Dtype::Bool,
        ["__half" | "half"] => Dtype::F16,
        ["__nv_bfloat16" | "nv_bfloat16"] => Dtype::Bf16,
        ["int8_t"] => Dtype::I8,
        ["int16_t"] => Dtype::I16,
        ["int32_t"] => Dtype::I32,
        ["int64_t" | "ptrdiff_t"] => Dtype::I64,
        ["uint8_t"] => Dtype::U8,
        ["uint16_t"] => Dtype::U16,
        ["uint32_t"] => Dtype::U32,
        ["uint64_t" | "size_t"] => Dtype::U64,
        _ => return integer(words),
    };
    Some(named)
}

/// The dtype of an integer type in one of its spellings, such as `unsigned long long`.
fn integer(words: &[&str]) -> Option<Dtype> {
    let is_integer = |word: &&str| matches!(*word, "signed" | "unsigned" | "char" | "short" | "int" | "long");
    if words.is_empty() || !words.iter().all(is_integer) {
        return None;
    }
    let (signed, unsigned) = if words.contains(&"char") {
        (Dtype::I8, Dtype::U8)
    } else if words.contains(&"short") {
        (Dtype::I16, Dtype::U16)
    } else if words.contains(&"long") {
        (Dtype::I64, Dtype::U64)
    } else {
        (Dtype::I32, Dtype::U32)
    };
    Some(if words.contains(&"unsigned") { unsigned } else { signed })
}

/// The kernel with its parameters, in the form of the catalog: `scale(x: in f64, y: out f64, factor: f64, n: u32)`.
pub fn spelled(name: &str, parameters: &[Parameter]) -> String {
    let parameter = |parameter: &Parameter| {
        let direction = match parameter.kind {
            Kind::Input => "in ",
            Kind::Output => "out ",
            Kind::Scalar => "",
        };
        format!("{}: {direction}{}", parameter.name, parameter.dtype)
    };
    format!("{name}({})", parameters.iter().map(parameter).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests;
