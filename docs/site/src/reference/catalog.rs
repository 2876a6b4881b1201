//! `catalog.md`: every kernel of the catalog, from its manifest and its source.

use std::fmt::Write as _;

use gpufleet_kernels::{Kernel, Role, Tolerance, catalog, manifest::Constraint};

use super::markdown::{cell, code, escaped, table, wrapped};
use crate::pictures;

pub fn page() -> String {
    let intro = "Every worker has these kernels, so a producer only names one: with `gpufleet submit NAME`, with `Job::catalog`, or \
                 with `{ \"catalog\": \"NAME\" }` as a task's program. Symbols in shapes, such as `n`, take their values from the \
                 arrays that a task gives. `gpufleet kernels` lists them on the command line.";
    let overview = catalog().iter().map(|kernel| [format!("[`{0}`](#{0})", kernel.name), cell(&kernel.summary)]);
    let mut page = format!("# Catalog\n\n{}\n\n{}", wrapped(intro, ""), table(["kernel", "computes"], overview));
    catalog().iter().for_each(|kernel| write_kernel(&mut page, kernel));
    page
}

fn write_kernel(page: &mut String, kernel: &Kernel) {
    let add = |page: &mut String, part: String| {
        if !part.is_empty() {
            write!(page, "\n{part}").expect("a string takes every text");
        }
    };
    add(page, format!("## `{}`\n", kernel.name));
    add(page, wrapped(&sentence(&kernel.summary), "") + "\n");
    add(page, code("text", &kernel.formula));
    add(page, parameters(kernel));
    add(page, constraints(kernel));
    add(page, tolerances(kernel));
    add(page, code("sh", &gpufleet_cli::example(kernel)));
    add(page, picture(kernel));
    add(page, format!("<details><summary>Source</summary>\n\n{}\n</details>\n", code("cpp", kernel.source())));
}

/// With a capital letter and a full stop, unless it begins with a symbol.
fn sentence(summary: &str) -> String {
    let is_word = summary.split(' ').next().is_some_and(|word| word.len() > 1) || summary.starts_with("a ");
    let mut letters = summary.chars();
    match letters.next() {
        Some(first) if is_word => format!("{}{}.", first.to_uppercase(), escaped(letters.as_str())),
        _ => format!("{}.", escaped(summary)),
    }
}

fn parameters(kernel: &Kernel) -> String {
    let scalars = kernel.scalars.iter().map(|scalar| {
        let default = scalar.default.map_or_else(|| "required".to_owned(), |default| format!("default `{default}`"));
        [
            format!("`{}`", scalar.name),
            format!("scalar, {default}"),
            format!("`{}`", scalar.dtype),
            meaning(scalar.description.as_ref()),
        ]
    });
    let buffers = kernel.buffers.iter().filter(|buffer| buffer.role != Role::Scratch).map(|buffer| {
        let role = match buffer.role {
            Role::In => "input",
            Role::Inout => "input and output",
            Role::Out | Role::Scratch => "output",
        };
        [
            format!("`{}`", buffer.name),
            role.to_owned(),
            format!("`{}`", buffer.form()),
            meaning(buffer.description.as_ref()),
        ]
    });
    table(["parameter", "kind", "type", "meaning"], scalars.chain(buffers))
}

fn meaning(description: Option<&String>) -> String {
    description.map(|text| cell(text)).unwrap_or_default()
}

fn constraints(kernel: &Kernel) -> String {
    kernel.constraints.iter().map(constraint).collect()
}

/// ``- `width` is at least 1: a picture has pixels.``
fn constraint(constraint: &Constraint) -> String {
    let bounds =
        [("equals", &constraint.equals), ("is at least", &constraint.at_least), ("is at most", &constraint.at_most)];
    let bounds = bounds.into_iter().filter_map(|(word, bound)| bound.as_ref().map(|bound| format!("{word} `{bound}`")));
    let bounds: Vec<String> = bounds.collect();
    let text = format!("`{}` {}: {}.", constraint.value, bounds.join(" and "), escaped(&constraint.because));
    format!("- {}\n", wrapped(&text, "  "))
}

fn tolerances(kernel: &Kernel) -> String {
    let of_output = |name: &str| match kernel.tolerance(name) {
        Tolerance { ulp: 0, abs, rel } if abs == 0.0 && rel == 0.0 => format!("`{name}` is exact"),
        Tolerance { ulp, abs, rel } => {
            let bounds = [(abs, "absolute"), (rel, "relative")];
            let bounds =
                bounds.into_iter().filter(|(bound, _)| *bound > 0.0).map(|(bound, kind)| format!("{bound:e} {kind}"));
            let bounds: Vec<String> = (ulp > 0).then(|| format!("{ulp} ulp")).into_iter().chain(bounds).collect();
            format!("`{name}` is within {} of the reference on the CPU", bounds.join(" plus "))
        }
    };
    let outputs: Vec<String> = kernel.outputs().map(|output| of_output(&output.name)).collect();
    wrapped(&format!("Precision: {}.", outputs.join("; ")), "") + "\n"
}

fn picture(kernel: &Kernel) -> String {
    let picture = pictures::ALL.iter().find(|picture| picture.kernel == kernel.name);
    picture.map_or_else(String::new, |picture| {
        format!(
            "![{}](../images/catalog/{}.png)\n\n{}\n",
            picture.caption,
            picture.kernel,
            wrapped(picture.caption, "")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_is_told_with_its_formula_parameters_example_and_source() {
        let page = page();
        for kernel in catalog().iter() {
            let part = page.split(&format!("\n## `{}`\n", kernel.name)).nth(1).expect("each kernel has a heading");
            let part = part.split("\n## ").next().expect("a split has a first part");
            let names = kernel.scalars.iter().map(|scalar| &scalar.name);
            let buffers =
                kernel.buffers.iter().filter(|buffer| buffer.role != Role::Scratch).map(|buffer| &buffer.name);
            for name in names.chain(buffers) {
                assert!(part.contains(&format!("| `{name}` |")), "{}: {name}", kernel.name);
            }
            assert!(part.contains(kernel.formula.trim()) && part.contains("gpufleet submit "), "{}", kernel.name);
            assert!(part.contains(kernel.source().trim()) && part.contains("Precision: "), "{}", kernel.name);
        }
    }

    #[test]
    fn a_summary_becomes_a_sentence_unless_it_begins_with_a_symbol() {
        assert_eq!(sentence("the sum"), "The sum.");
        assert_eq!(sentence("a matrix"), "A matrix.");
        assert_eq!(sentence("y ← a·x"), "y ← a·x.");
    }

    #[test]
    fn every_picture_belongs_to_a_kernel_and_is_committed() {
        for picture in pictures::ALL {
            assert!(catalog().get(picture.kernel).is_some(), "{}", picture.kernel);
            let path = crate::reference::tests::root().join(pictures::FOLDER).join(format!("{}.png", picture.kernel));
            assert!(path.is_file(), "{}; run `cargo xtask docs --pictures`", path.display());
        }
    }
}
