//! The parameters of a kernel in CUDA C++ that the command needs to know: numbers, and arrays of numbers.
//!
//! `gpufleet_kernels::declaration` reads the code. What it can't read is an error here, with the parameter's name.

use std::collections::BTreeSet;

use gpufleet::schema::Dtype;
use gpufleet_kernels::declaration::{self, Problem};

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
    #[error("a macro that can't be read hides kernel {0}")]
    Hidden(String),
    #[error("kernel {0} is not extern \"C\", so the compiler changes its name")]
    NotC(String),
    #[error("kernel {0} is a template, and so has no parameters of its own")]
    Template(String),
    #[error("kernel {0} is declared more than once, with different parameters")]
    Ambiguous(String),
    #[error("the parameters of kernel {0} contain a macro with parameters or with two meanings")]
    Macro(String),
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

/// Why the name of a kernel has to be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoOnlyEntry {
    #[error("it has no kernel: no function is __global__")]
    None,
    #[error("a macro that can't be read hides its kernels")]
    Hidden,
    #[error("it has several kernels: {}", .0.join(", "))]
    Several(Vec<String>),
    #[error("its kernel {0} is a template")]
    Template(String),
    #[error("its kernel {0} is in a namespace")]
    Namespace(String),
}

/// The name by which a job launches the only kernel of the code: `NAME` if it is `extern "C"`, else `::NAME`.
pub fn only_entry(code: &str, options: &[String]) -> Result<String, NoOnlyEntry> {
    let kernels = declaration::kernels(code, options);
    match kernels.declared.as_slice() {
        [] if kernels.is_partial => Err(NoOnlyEntry::Hidden),
        [] => Err(NoOnlyEntry::None),
        [kernel] if kernel.is_template => Err(NoOnlyEntry::Template(kernel.name.clone())),
        [kernel] if kernel.is_c => Ok(kernel.name.clone()),
        [kernel] if kernel.is_in_namespace => Err(NoOnlyEntry::Namespace(kernel.name.clone())),
        [kernel] => Ok(format!("::{}", kernel.name)),
        several => Err(NoOnlyEntry::Several(sorted(several.iter().map(|kernel| kernel.name.clone()).collect()))),
    }
}

/// The parameters of the kernel with this name, which must be `extern "C"`.
pub fn parameters(code: &str, name: &str, options: &[String]) -> Result<Vec<Parameter>, Unreadable> {
    let kernels = declaration::kernels(code, options);
    match kernels.declared.iter().find(|kernel| kernel.name == name) {
        None if kernels.is_partial => Err(Unreadable::Hidden(name.to_owned())),
        None => {
            let kernels = sorted(kernels.declared.into_iter().map(|kernel| kernel.name).collect());
            Err(Unreadable::NoKernel { name: name.to_owned(), kernels })
        }
        Some(kernel) if kernel.is_template => Err(Unreadable::Template(name.to_owned())),
        Some(kernel) if !kernel.is_c => Err(Unreadable::NotC(name.to_owned())),
        Some(_) => parameters_of_entry(code, name, options),
    }
}

/// The parameters of the kernel with this entry name, such as `scale`, `::scale` or `scale<float>`.
pub fn parameters_of_entry(code: &str, entry: &str, options: &[String]) -> Result<Vec<Parameter>, Unreadable> {
    let found = match declaration::parameters(code, entry, options) {
        // The worker, and not its types, decides whether the kernel has this name.
        Err(Problem::Mangled { name, .. }) => declaration::parameters(code, &format!("::{name}"), options),
        found => found,
    };
    let found = found.map_err(|problem| unreadable(entry, problem))?;
    let read = found.into_iter().enumerate().map(|(index, parameter)| {
        let kind = match (parameter.is_pointer, parameter.is_input) {
            (false, _) => Kind::Scalar,
            (true, true) => Kind::Input,
            (true, false) => Kind::Output,
        };
        match (parameter.dtype(), parameter.name) {
            (Some(dtype), Some(name)) => Ok(Parameter { name, dtype, kind }),
            (_, name) => Err(no_number(entry, index, name, parameter.written)),
        }
    });
    let parameters = read.collect::<Result<Vec<_>, _>>()?;
    let mut names = BTreeSet::new();
    match parameters.iter().find(|parameter| !names.insert(&parameter.name)) {
        Some(Parameter { name, .. }) => Err(Unreadable::TwoOfOneName { kernel: entry.to_owned(), name: name.clone() }),
        None => Ok(parameters),
    }
}

fn unreadable(entry: &str, problem: Problem) -> Unreadable {
    match problem {
        Problem::NoKernel { name, kernels } => Unreadable::NoKernel { name, kernels: sorted(kernels) },
        Problem::HiddenByMacro { name } => Unreadable::Hidden(name),
        Problem::Mangled { name, .. } => Unreadable::NotC(name),
        Problem::Template { name } => Unreadable::Template(name),
        Problem::Ambiguous { name } => Unreadable::Ambiguous(name),
        Problem::MacroInSignature { name } => Unreadable::Macro(name),
        Problem::Reference(place)
        | Problem::PointerToPointers { place, .. }
        | Problem::NotPlain(place)
        | Problem::CompoundType { place, .. } => no_number(entry, place.index, place.name, place.written),
    }
}

fn no_number(entry: &str, index: usize, name: Option<String>, spelled: String) -> Unreadable {
    let name = name.unwrap_or_else(|| format!("{} (without a name)", index + 1));
    Unreadable::Parameter { kernel: entry.trim_start_matches("::").to_owned(), name, spelled }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names
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
