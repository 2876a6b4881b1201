//! Reads the parameters of kernels from their declarations in CUDA C++.
//!
//! This is no compiler. It knows built-in and fixed-width types, `typedef`, `using`, type parameters of templates,
//! macros without parameters, and sections that `#if 0` hides. It never guesses: a [`Problem`] says why the parameters
//! of a kernel are unknown. The command and the Python package use this one reader, each with its own texts.
//!
//! Time and memory are proportional to the length of the code, and no nesting in it is followed by recursion. Macros and
//! type names are replaced only up to fixed limits.

mod brackets;
mod functions;
mod lexer;
mod parameter;
mod preprocessor;
mod types;

use std::collections::{HashMap, hash_map::Entry};

use functions::Function;
use types::Types;

pub use parameter::{Parameter, Place};

/// The maximum number of parameters. CUDA allows 32,764 bytes of them.
const PARAMETERS_MAX: usize = 32_764;

/// A kernel that the code declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The name without its namespaces.
    pub name: String,
    /// Whether it is `extern "C"`, so that a job can name it without `::`.
    pub is_c: bool,
    pub is_template: bool,
    pub is_in_namespace: bool,
}

/// The kernels that the code declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernels {
    /// In the order of their first declarations, each name once.
    pub declared: Vec<Kernel>,
    /// Whether the code uses a macro that can't be expanded, so that there may be more kernels.
    pub is_partial: bool,
}

/// The reason why the parameters of a kernel are unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("the source has no kernel '{name}'; {}", known(.kernels))]
    NoKernel { name: String, kernels: Vec<String> },
    #[error("kernel '{name}' is a template; name one of its instances, for example '{name}<float>'")]
    Template { name: String },
    #[error(
        "kernel '{name}' is not extern \"C\", so the compiler mangles its name; write extern \"C\" before __global__, \
         or name it '{}::{name}'",
        qualifier(.is_in_namespace)
    )]
    Mangled { name: String, is_in_namespace: bool },
    #[error("parameter {} is a reference, which no host can pass; use a pointer or a value", .0.quoted_name())]
    Reference(Place),
    #[error(
        "parameter '{}' ({spelled}) points to pointers, which no host can fill; pass one array and offsets",
        .place.name_or_default()
    )]
    PointerToPointers { place: Place, spelled: String },
    /// The kernel was not found, but a macro may declare it.
    #[error("a macro with parameters hides it")]
    HiddenByMacro { name: String },
    /// The macro has parameters, two meanings, or a meaning that is too long.
    #[error("a macro with parameters is in its signature")]
    MacroInSignature { name: String },
    #[error("its parameters are not a plain list of types and names")]
    NotPlain(Place),
    /// A name stands for a type that is not plain, so `const` before it does not belong to the elements of an array.
    #[error("the type {type_name} is a pointer, an array or a function")]
    CompoundType { place: Place, type_name: String },
    #[error("it is declared more than once, with different parameters")]
    Ambiguous { name: String },
}

impl Problem {
    /// Returns whether no host can launch the kernel under this name. If not, the kernel may be fine, and only its parameters are unknown.
    pub const fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::NoKernel { .. }
                | Self::Template { .. }
                | Self::Mangled { .. }
                | Self::Reference(_)
                | Self::PointerToPointers { .. }
        )
    }
}

fn known(kernels: &[String]) -> String {
    match kernels {
        [] => "it has no __global__ function".to_owned(),
        some => format!("its kernels are {}", some.join(", ")),
    }
}

fn qualifier(is_in_namespace: &bool) -> &'static str {
    if *is_in_namespace { "namespace" } else { "" }
}

/// Returns the kernels that the code declares, if it is compiled with these options of NVRTC.
pub fn kernels(code: &str, options: &[impl AsRef<str>]) -> Kernels {
    let code = preprocessor::spliced(code);
    let words = preprocessor::words(&code, options);
    let (functions, _) = functions::find(&words);
    Kernels { declared: declared(&functions), is_partial: words.contains(&preprocessor::UNREADABLE) }
}

/// Returns the parameters of a kernel in the code, if it is compiled with these options of NVRTC.
///
/// `entry` is the name of an `extern "C"` kernel or a name expression, such as `::scale`, `space::scale` or `scale<float>`.
pub fn parameters(code: &str, entry: &str, options: &[impl AsRef<str>]) -> Result<Vec<Parameter>, Problem> {
    let code = preprocessor::spliced(code);
    let words = preprocessor::words(&code, options);
    let (functions, aliases) = functions::find(&words);
    let entry_words = preprocessor::words(entry, &[""; 0]);
    let (name, arguments) = split_entry(&entry_words);
    let found: Vec<&Function<'_, '_>> = functions.iter().filter(|function| function.name == name).collect();
    if found.is_empty() {
        return Err(if words.contains(&preprocessor::UNREADABLE) {
            Problem::HiddenByMacro { name: name.to_owned() }
        } else {
            let kernels = declared(&functions).into_iter().map(|kernel| kernel.name).collect();
            Problem::NoKernel { name: name.to_owned(), kernels }
        });
    }
    if entry == name {
        check_linkage(name, &found)?;
    }
    let mut parameters: Option<Vec<Parameter>> = None;
    for function in found {
        let types = Types::new(&aliases, &function.template, &arguments);
        let read = parameters_of(function, types)?;
        match &mut parameters {
            None => parameters = Some(read),
            Some(first) if have_same_types(first, &read) => add_names(first, read),
            Some(_) => return Err(Problem::Ambiguous { name: name.to_owned() }),
        }
    }
    Ok(parameters.expect("at least one declaration was found"))
}

fn declared(functions: &[Function<'_, '_>]) -> Vec<Kernel> {
    let mut kernels: Vec<Kernel> = Vec::new();
    let mut places = HashMap::new();
    for function in functions {
        match places.entry(function.name) {
            Entry::Vacant(place) => {
                place.insert(kernels.len());
                kernels.push(Kernel {
                    name: function.name.to_owned(),
                    is_c: function.is_c,
                    is_template: function.is_template,
                    is_in_namespace: function.is_in_namespace,
                });
            }
            Entry::Occupied(place) => {
                let kernel = &mut kernels[*place.get()];
                kernel.is_c |= function.is_c;
                kernel.is_template |= function.is_template;
                kernel.is_in_namespace |= function.is_in_namespace;
            }
        }
    }
    kernels
}

/// Splits a name expression into the kernel's own name and its template arguments.
fn split_entry<'a>(words: &[&'a str]) -> (&'a str, Vec<Vec<&'a str>>) {
    let Some(start) = words.iter().position(|word| *word == "<") else {
        return (words.last().copied().unwrap_or_default(), Vec::new());
    };
    let arguments = &words[start + 1..brackets::closing(words, start)];
    let name = if start == 0 { "" } else { words[start - 1] };
    (name, brackets::split(arguments).map(<[&str]>::to_vec).collect())
}

/// Refuses a plain name that no symbol of the compiled code has.
fn check_linkage(name: &str, found: &[&Function<'_, '_>]) -> Result<(), Problem> {
    let name = name.to_owned();
    if found.iter().any(|function| function.is_c) {
        Ok(())
    } else if found.iter().any(|function| function.is_template) {
        Err(Problem::Template { name })
    } else {
        Err(Problem::Mangled { name, is_in_namespace: found[0].is_in_namespace })
    }
}

fn parameters_of<'a>(function: &Function<'_, 'a>, mut types: Types<'_, 'a>) -> Result<Vec<Parameter>, Problem> {
    if function.parameters.contains(&preprocessor::UNREADABLE) {
        return Err(Problem::MacroInSignature { name: function.name.to_owned() });
    }
    if function.parameters == ["void"] {
        return Ok(Vec::new());
    }
    let parts = brackets::split(function.parameters);
    let read = parts.enumerate().map(|(index, part)| match index {
        PARAMETERS_MAX.. => Err(Problem::NotPlain(Place::new(index, None, part))),
        _ => parameter::read(index, part, &mut types),
    });
    read.collect()
}

fn have_same_types(one: &[Parameter], other: &[Parameter]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.has_type_of(other))
}

/// Names parameters without a name as another declaration names them.
fn add_names(parameters: &mut [Parameter], others: Vec<Parameter>) {
    for (parameter, other) in parameters.iter_mut().zip(others) {
        parameter.name = parameter.name.take().or(other.name);
    }
}

#[cfg(test)]
mod tests;
