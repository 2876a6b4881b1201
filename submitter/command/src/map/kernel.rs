//! The kernel of a run: one of the catalog, or one in a file of CUDA C.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use gpufleet::{
    Array, Job,
    schema::{Dtype, Number, SigningKey},
};
use gpufleet_kernels::{Role, catalog, spelling};

use super::Options;
use crate::{
    complaint::Complaint,
    files::{self, Purpose},
    kernels, keygen,
    signature::{self, Kind, Parameter},
    submit::SourceText,
};

/// The parameter that has the number of rows, unless `--rows` names another.
const ROWS: &str = "n";

/// A kernel that computes each row on its own.
#[derive(Debug)]
pub struct Kernel {
    name: String,
    buffers: Vec<Buffer>,
    signature: String,
    program: Program,
}

/// An array of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffer {
    pub name: String,
    pub dtype: Dtype,
    role: Role,
}

#[derive(Debug)]
enum Program {
    Catalog,
    Source(Box<Source>),
}

#[derive(Debug)]
struct Source {
    text: SourceText,
    compile_options: Vec<String>,
    key: Option<SigningKey>,
    parameters: Vec<Parameter>,
    /// The values of the scalars but for the number of rows.
    scalars: BTreeMap<String, Number>,
    rows: String,
}

impl Kernel {
    /// Finds the kernel, and reads its file if it is in one.
    pub fn plan(options: &Options) -> Result<Self, Complaint> {
        match &options.source {
            Some(path) => Self::of_source(options, path),
            None => Self::of_catalog(&options.kernel),
        }
    }

    /// A kernel of the catalog whose arrays can be cut into batches.
    fn of_catalog(name: &str) -> Result<Self, Complaint> {
        let kernel = kernels::find(name).map_err(|complaint| match catalog().closest(name) {
            Some(_) => complaint,
            None => complaint
                .hint("`gpufleet kernels` lists all kernels; give the file of a kernel of your own with --source FILE"),
        })?;
        if !kernel.is_elementwise {
            let others: Vec<&str> =
                catalog().iter().filter(|kernel| kernel.is_elementwise).map(|kernel| kernel.name.as_str()).collect();
            let problem = format!("kernel {name} does not compute each row on its own: {}", kernel.signature());
            let hint = format!(
                "the catalog's kernels that do are {}; submit others with `gpufleet submit`",
                others.join(", ")
            );
            return Err(Complaint::bad_input(problem).hint(hint));
        }
        let buffers = kernel.buffers.iter();
        Ok(Self {
            name: kernel.name.clone(),
            buffers: buffers
                .map(|buffer| Buffer { name: buffer.name.clone(), dtype: buffer.dtype, role: buffer.role })
                .collect(),
            signature: kernel.signature(),
            program: Program::Catalog,
        })
    }

    /// A kernel in a file. `const T *` is an input, `T *` an output, and also an input if `--columns` names it.
    fn of_source(options: &Options, path: &Path) -> Result<Self, Complaint> {
        let name = &options.kernel;
        let text = files::read_text(path, Purpose::Program)?;
        let parameters = signature::parameters(&text, name, &options.compile_option)
            .map_err(|problem| unreadable(path, name, &problem))?;
        let signature = signature::spelled(name, &parameters);
        let named: BTreeSet<&str> = options.columns.iter().filter_map(|spec| spec.buffer.as_deref()).collect();
        let role = |parameter: &Parameter| match parameter.kind {
            Kind::Input => Some(Role::In),
            Kind::Output if named.contains(parameter.name.as_str()) => Some(Role::Inout),
            Kind::Output => Some(Role::Out),
            Kind::Scalar => None,
        };
        let buffers: Vec<Buffer> = parameters
            .iter()
            .filter_map(|parameter| {
                Some(Buffer { name: parameter.name.clone(), dtype: parameter.dtype, role: role(parameter)? })
            })
            .collect();
        if !buffers.iter().any(|buffer| buffer.role.is_returned()) {
            return Err(Complaint::bad_input(format!("kernel {name} has no output: {signature}"))
                .hint("give it a parameter that is a pointer without const, which becomes a column"));
        }
        if !buffers.iter().any(|buffer| buffer.role.is_given()) {
            return Err(Complaint::bad_input(format!("kernel {name} reads no column: {signature}")).hint(
                "declare what it only reads as const T *, or name what it reads and writes: --columns y=COLUMN",
            ));
        }
        let scalars: Vec<&Parameter> = parameters.iter().filter(|parameter| parameter.kind == Kind::Scalar).collect();
        let rows = rows_parameter(options, &scalars, &signature)?;
        let scalars = scalar_values(options, &scalars, &rows, &signature)?;
        let key = options.sign_key.as_deref().map(keygen::read).transpose()?;
        let text = SourceText { path: path.to_owned(), text };
        let compile_options = options.compile_option.clone();
        let source = Source { text, compile_options, key, scalars, rows, parameters };
        Ok(Self { name: name.clone(), buffers, signature, program: Program::Source(Box::new(source)) })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The arrays that are read from columns.
    pub fn inputs(&self) -> impl Iterator<Item = &Buffer> {
        self.buffers.iter().filter(|buffer| buffer.role.is_given())
    }

    /// The arrays that become columns.
    pub fn outputs(&self) -> impl Iterator<Item = &Buffer> {
        self.buffers.iter().filter(|buffer| buffer.role.is_returned())
    }

    /// The kernel with its parameters, for people.
    pub fn signature(&self) -> &str {
        &self.signature
    }

    /// The file of the kernel, if it is in one.
    pub fn source(&self) -> Option<&SourceText> {
        match &self.program {
            Program::Catalog => None,
            Program::Source(source) => Some(&source.text),
        }
    }

    /// The bytes of the largest element.
    pub fn element_bytes_max(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.dtype.size()).max().unwrap_or(1)
    }

    /// The most rows of a batch whose number the kernel can take.
    pub fn rows_max(&self) -> u64 {
        let Program::Source(source) = &self.program else { return u64::MAX };
        match source.parameters.iter().find(|parameter| parameter.name == source.rows).map(|rows| rows.dtype) {
            Some(Dtype::I32) => i32::MAX.unsigned_abs().into(),
            Some(Dtype::U32) => u32::MAX.into(),
            _ => i64::MAX.unsigned_abs(),
        }
    }

    /// The job for a batch.
    pub fn job(&self, options: &Options, inputs: Vec<(String, Array)>) -> Job {
        let Program::Source(source) = &self.program else {
            let job =
                options.arg.iter().fold(Job::catalog(&self.name), |job, scalar| job.scalar(&scalar.name, scalar.value));
            return inputs.into_iter().fold(job, |job, (name, array)| job.input_array(name, array));
        };
        let rows = inputs.first().map_or(0, |(_, array)| array.shape().iter().product());
        let mut job = Job::source(&source.text.text);
        job = source.compile_options.iter().fold(job, Job::compile_option);
        if let Some(key) = &source.key {
            job = job.signed_by(key);
        }
        job = inputs.into_iter().fold(job, |job, (name, array)| job.input_array(name, array));
        let made = self.buffers.iter().filter(|buffer| buffer.role == Role::Out);
        job = made.fold(job, |job, buffer| job.zeros(&buffer.name, buffer.dtype, [rows]));
        job = job.entry(&self.name).cover([rows]);
        job = source.parameters.iter().fold(job, |job, parameter| match parameter.kind {
            Kind::Input | Kind::Output => job.arg_buffer(&parameter.name),
            Kind::Scalar => {
                let value = source.scalars.get(&parameter.name).copied();
                job.arg_scalar(parameter.dtype, value.unwrap_or(Number::Unsigned(rows)))
            }
        });
        self.outputs().fold(job, |job, buffer| job.output(&buffer.name))
    }
}

/// The parameter that has the number of rows. Without it, threads after the last row would write beyond the arrays.
fn rows_parameter(options: &Options, scalars: &[&Parameter], signature: &str) -> Result<String, Complaint> {
    let name = options.rows.as_deref().unwrap_or(ROWS);
    let found = scalars.iter().find(|parameter| parameter.name == name);
    let advice = "add a parameter such as `unsigned n`, and return from threads with an index of n or more";
    let Some(found) = found else {
        return Err(match &options.rows {
            Some(_) => Complaint::bad_input(format!("the kernel has no number {name}"))
                .hint(format!("the kernel is {signature}")),
            None => {
                Complaint::bad_input(format!("the kernel has no parameter {ROWS} for the number of rows: {signature}"))
                    .hint(format!("name the parameter with --rows NAME; or {advice}"))
            }
        });
    };
    if options.arg.iter().any(|arg| arg.name == name) {
        return Err(Complaint::bad_input(format!(
            "parameter {name} is the number of rows, and --arg gives it a value"
        ))
        .hint("remove --arg, or name the parameter that has the number of rows with --rows NAME"));
    }
    match found.dtype {
        Dtype::I32 | Dtype::U32 | Dtype::I64 | Dtype::U64 => Ok(name.to_owned()),
        other => Err(Complaint::bad_input(format!("parameter {name} for the number of rows is {other}"))
            .hint("make it an integer of 32 or 64 bits; or name another parameter with --rows NAME")),
    }
}

/// The value of each other scalar.
fn scalar_values(
    options: &Options,
    scalars: &[&Parameter],
    rows: &str,
    signature: &str,
) -> Result<BTreeMap<String, Number>, Complaint> {
    let mut values = BTreeMap::new();
    for arg in &options.arg {
        let Some(parameter) = scalars.iter().find(|parameter| parameter.name == arg.name) else {
            let names = scalars.iter().map(|parameter| parameter.name.as_str());
            let hint = spelling::closest(&arg.name, names).map(|name| format!("did you mean {name}? "));
            return Err(Complaint::bad_input(format!("the kernel has no number {}", arg.name))
                .hint(format!("{}the kernel is {signature}", hint.unwrap_or_default())));
        };
        arg.value.write(parameter.dtype, &mut Vec::new()).map_err(|problem| {
            Complaint::bad_input(format!("--arg {}: {problem}", arg.name))
                .hint(format!("give a number that fits {}", parameter.dtype))
        })?;
        values.insert(arg.name.clone(), arg.value);
    }
    match scalars.iter().find(|parameter| parameter.name != rows && !values.contains_key(&parameter.name)) {
        Some(Parameter { name, .. }) => {
            Err(Complaint::bad_input(format!("parameter {name} of the kernel has no value"))
                .hint(format!("add --arg {name}=VALUE")))
        }
        None => Ok(values),
    }
}

fn unreadable(path: &Path, name: &str, problem: &signature::Unreadable) -> Complaint {
    use signature::Unreadable;
    let hint = match problem {
        Unreadable::NoKernel { kernels, .. } => match spelling::closest(name, kernels.iter().map(String::as_str)) {
            Some(closest) => format!("did you mean {closest}?"),
            None => "name a __global__ function of the file with --kernel".to_owned(),
        },
        Unreadable::Hidden(_) | Unreadable::Macro(_) => {
            "write the signature of the kernel without the macro".to_owned()
        }
        Unreadable::NotC(_) => "write extern \"C\" before __global__".to_owned(),
        Unreadable::Template(_) => {
            format!("write a kernel that calls it for one type: extern \"C\" __global__ void {name}_f32(…)")
        }
        Unreadable::Ambiguous(_) => "keep one declaration, or give each its own name".to_owned(),
        Unreadable::Parameter { .. } => {
            "use pointers to numbers and numbers: float, double, bool, __half, or integers such as int64_t".to_owned()
        }
        Unreadable::TwoOfOneName { .. } => "give each parameter its own name".to_owned(),
    };
    Complaint::bad_input(format!("failed to read the kernel in {}: {problem}", path.display())).hint(hint)
}

#[cfg(test)]
mod tests;
