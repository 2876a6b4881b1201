//! `gpufleet kernels`: lists the catalog.

use clap::Args;
use gpufleet_kernels::{BufferSpec, Kernel, Role, catalog, manifest::ScalarSpec};
use serde_json::{Value, json};

use super::{
    complaint::Complaint,
    exit::Exit,
    options::{Format, OutputOptions},
    output,
};

/// List the catalog's kernels, or show one in full
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Kernel to show
    kernel: Option<String>,
    /// Print only the CUDA C of the kernel
    #[arg(long, requires = "kernel")]
    source: bool,
    #[command(flatten)]
    output: OutputOptions,
}

const EXAMPLES: &str = "\
Examples:
  gpufleet kernels
  gpufleet kernels saxpy
  gpufleet kernels saxpy --source > saxpy.cu";

pub fn run(options: &Options) -> Result<Exit, Complaint> {
    let text = match (&options.kernel, options.output.format) {
        (Some(name), _) if options.source => find(name)?.source().to_owned(),
        (Some(name), Format::Table) => describe(find(name)?),
        (Some(name), Format::Json) => pretty(&to_json(find(name)?)),
        (None, Format::Table) => list(),
        (None, Format::Json) => pretty(&catalog().iter().map(to_json).collect()),
    };
    output::emit(&text)?;
    Ok(Exit::Success)
}

/// A kernel by name, or a complaint with the most similar name.
pub fn find(name: &str) -> Result<&'static Kernel, Complaint> {
    catalog().get(name).ok_or_else(|| {
        let hint = match catalog().closest(name) {
            Some(closest) => format!("did you mean {closest}? `gpufleet kernels` lists all kernels"),
            None => "`gpufleet kernels` lists all kernels; submit your own CUDA C with --source FILE --entry NAME"
                .to_owned(),
        };
        Complaint::bad_input(format!("the catalog has no kernel {name:?}")).hint(hint)
    })
}

/// Prints signature and summary on separate lines, because together they are too wide for a terminal.
fn list() -> String {
    catalog().iter().map(|kernel| format!("{}\n    {}\n", kernel.signature(), kernel.summary)).collect()
}

fn describe(kernel: &Kernel) -> String {
    let mut text = format!("{}\n{}\n", kernel.signature(), kernel.summary);
    if !kernel.scalars.is_empty() {
        text.push_str("\nScalars (--arg):\n");
        text.push_str(&indented(kernel.scalars.iter().map(|scalar| (scalar.to_string(), &scalar.description))));
    }
    let buffers: Vec<&BufferSpec> = kernel.buffers.iter().filter(|buffer| buffer.role != Role::Scratch).collect();
    text.push_str("\nBuffers (--in, --inout, --out):\n");
    text.push_str(&indented(buffers.iter().map(|buffer| (buffer.to_string(), &buffer.description))));
    text.push_str(&format!("\nExample:\n  {}\n", example(kernel)));
    text
}

fn indented<'a>(items: impl Iterator<Item = (String, &'a Option<String>)>) -> String {
    let items: Vec<_> = items.collect();
    let width = items.iter().map(|(item, _)| item.chars().count()).max().unwrap_or_default();
    let line = |(item, description): &(String, &Option<String>)| {
        format!("  {item:<width$}  {}", description.as_deref().unwrap_or_default()).trim_end().to_owned() + "\n"
    };
    items.iter().map(line).collect()
}

/// An example command line for the kernel.
pub fn example(kernel: &Kernel) -> String {
    let mut words = vec![format!("gpufleet submit {}", kernel.name)];
    let required = kernel.scalars.iter().filter(|scalar| scalar.default.is_none());
    words.extend(required.map(|scalar| format!("--arg {}=2", scalar.name)));
    for buffer in &kernel.buffers {
        let name = &buffer.name;
        match buffer.role {
            Role::In => words.push(format!("--in {name}={name}.npy")),
            Role::Inout => words.push(format!("--inout {name}={name}.npy --out {name}=result.npy")),
            Role::Out => words.push(format!("--out {name}={name}.npy")),
            Role::Scratch => {}
        }
    }
    words.join(" ")
}

fn to_json(kernel: &Kernel) -> Value {
    let scalar = |scalar: &ScalarSpec| json!({"name": scalar.name, "dtype": scalar.dtype, "default": scalar.default, "description": scalar.description});
    let buffer = |buffer: &BufferSpec| {
        let shape: Vec<String> = buffer.shape.iter().map(ToString::to_string).collect();
        json!({
            "name": buffer.name,
            "role": buffer.role.name(),
            "dtype": buffer.dtype,
            "shape": shape,
            "description": buffer.description,
        })
    };
    json!({
        "name": kernel.name,
        "summary": kernel.summary,
        "signature": kernel.signature(),
        "scalars": kernel.scalars.iter().map(scalar).collect::<Vec<_>>(),
        "buffers": kernel.buffers.iter().map(buffer).collect::<Vec<_>>(),
    })
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_the_signature_and_summary_of_every_kernel() {
        insta::assert_snapshot!(list());
    }

    #[test]
    fn a_kernel_is_shown_with_an_example() {
        insta::assert_snapshot!(describe(find("saxpy").unwrap()));
        insta::assert_snapshot!(describe(find("mandelbrot").unwrap()));
    }

    #[test]
    fn the_hint_for_a_misspelt_name_suggests_the_closest_kernel() {
        assert!(find("saxpi").unwrap_err().hint.unwrap().starts_with("did you mean saxpy?"));
        assert!(find("fourier").unwrap_err().hint.unwrap().contains("gpufleet kernels"));
    }

    #[test]
    fn json_is_a_list_of_kernels() {
        let value: Value = catalog().iter().map(to_json).collect();
        let parsed: Value = serde_json::from_str(&pretty(&value)).unwrap();
        assert_eq!(parsed[0]["name"], "black_scholes");
    }
}
