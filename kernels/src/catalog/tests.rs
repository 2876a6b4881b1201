use std::{collections::BTreeSet, path::Path};

use gpufleet_schema::{Block, Dtype};

use super::{Catalog, Kernel, catalog};
use crate::{
    embedded::{FILES, Files},
    manifest::{ArgRule, BufferSpec},
    provenance::{PTX_VERSION, stamp},
};

#[test]
fn every_manifest_parses() {
    let catalog = Catalog::parse(&FILES).unwrap();
    assert_eq!(catalog.iter().count(), FILES.len());
}

#[test]
fn every_file_in_the_folder_is_in_the_catalog_and_has_its_companions() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let stems_of = |extension: &str| -> BTreeSet<String> {
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let with_extension = files.filter(|path| path.extension().is_some_and(|found| found == extension));
        with_extension.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    };
    let known: BTreeSet<String> = FILES.iter().map(|files| files.name.to_owned()).collect();
    assert_eq!(stems_of("cu"), known);
    assert_eq!(stems_of("ptx"), known);
    let manifests: BTreeSet<String> = stems_of("toml").into_iter().filter(|stem| stem != "Cargo").collect();
    assert_eq!(manifests, known);
}

#[test]
fn every_ptx_was_built_from_the_source_beside_it() {
    for kernel in catalog().iter() {
        let first_line = kernel.ptx().lines().next().unwrap();
        assert_eq!(first_line, stamp(&kernel.name, kernel.source()), "run `cargo xtask kernels` and commit the result");
        assert!(kernel.ptx().contains("\n.target sm_80"), "the PTX of {} does not target sm_80", kernel.name);
    }
}

/// Drivers refuse PTX of a newer version than they support.
#[test]
fn no_ptx_asks_for_a_newer_driver_than_it_needs() {
    for kernel in catalog().iter() {
        let versions: Vec<_> = kernel.ptx().lines().filter_map(|line| line.strip_prefix(".version ")).collect();
        assert_eq!(versions, [PTX_VERSION], "{}: run `cargo xtask kernels`", kernel.name);
    }
}

#[test]
fn every_launch_fits_its_entry_in_the_ptx() {
    for kernel in catalog().iter() {
        for launch in &kernel.launches {
            let entry = Entry::find(kernel.ptx(), &launch.entry);
            let entry = entry.unwrap_or_else(|| panic!("{} has no entry {}", kernel.name, launch.entry));
            let args: Vec<&str> = launch.args.iter().map(|arg| parameter_type(kernel, arg)).collect();
            assert_eq!(args, entry.parameters, "{}", launch.entry);
            if let (Block::Threads(threads), Some(max)) = (&launch.block, entry.threads_max) {
                assert!(threads.iter().product::<u32>() <= max, "{} allows {max} threads", launch.entry);
            }
        }
    }
}

#[test]
fn every_entry_in_the_ptx_is_launched() {
    for kernel in catalog().iter() {
        assert_eq!(kernel.ptx().matches(".entry ").count(), kernel.launches.len(), "{}", kernel.name);
    }
}

/// Returns the PTX type of the parameter for this argument.
fn parameter_type(kernel: &Kernel, arg: &ArgRule) -> &'static str {
    let dtype = match arg {
        ArgRule::Computed(dtype, _) => *dtype,
        ArgRule::Named(name) => match kernel.scalar(name) {
            Some(scalar) => scalar.dtype,
            // A buffer is passed by its address.
            None => Dtype::U64,
        },
    };
    match dtype {
        Dtype::U32 => ".u32",
        Dtype::U64 => ".u64",
        Dtype::F32 => ".f32",
        other => panic!("no kernel has a scalar of {other} yet"),
    }
}

struct Entry<'a> {
    parameters: Vec<&'a str>,
    threads_max: Option<u32>,
}

impl<'a> Entry<'a> {
    fn find(ptx: &'a str, name: &str) -> Option<Self> {
        let (_, rest) = ptx.split_once(&format!(".entry {name}("))?;
        let (parameters, rest) = rest.split_once(')')?;
        let (directives, _) = rest.split_once('{')?;
        let parameters = parameters.split(',').map(|parameter| parameter.split_whitespace().nth(1).unwrap()).collect();
        let threads_max = directives.split_once(".maxntid ").map(|(_, extents)| {
            let extents = extents.lines().next().unwrap().split(',');
            extents.map(|extent| extent.trim().parse::<u32>().unwrap()).product()
        });
        Some(Self { parameters, threads_max })
    }
}

#[test]
fn every_default_fits_its_dtype() {
    for scalar in catalog().iter().flat_map(|kernel| &kernel.scalars) {
        if let Some(default) = scalar.default {
            default.write(scalar.dtype, &mut Vec::new()).unwrap();
        }
    }
}

#[test]
fn the_documented_kernels_exist() {
    let names: Vec<&str> = catalog().iter().map(|kernel| kernel.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "black_scholes",
            "convolve_2d",
            "histogram",
            "mandelbrot",
            "matmul_tiled",
            "monte_carlo_pi",
            "nbody_step",
            "reduce_sum",
            "saxpy",
            "scan_inclusive",
            "sobel",
            "transpose",
            "vector_add",
        ]
    );
}

/// The Python package recognizes these kernels by their shapes.
#[test]
fn the_kernels_of_one_dimension_are_marked_as_elementwise() {
    let names: Vec<&str> =
        catalog().iter().filter(|kernel| kernel.is_elementwise).map(|kernel| kernel.name.as_str()).collect();
    assert_eq!(names, ["black_scholes", "saxpy", "vector_add"]);
    for kernel in catalog().iter() {
        let is_row = |buffer: &BufferSpec| buffer.shape.len() == 1 && buffer.shape == kernel.buffers[0].shape;
        let is_given = kernel.buffers.iter().any(|buffer| buffer.role.is_given());
        assert_eq!(kernel.is_elementwise, is_given && kernel.buffers.iter().all(is_row), "{}", kernel.name);
    }
}

#[test]
fn a_signature_lists_arguments_inputs_and_outputs() {
    let signature = |name: &str| catalog().get(name).unwrap().signature();
    assert_eq!(signature("saxpy"), "saxpy(a: f32, x: in f32[n], y: inout f32[n])");
    assert_eq!(signature("matmul_tiled"), "matmul_tiled(a: in f32[m, k], b: in f32[k, n], c: out f32[m, n])");
    assert_eq!(signature("reduce_sum"), "reduce_sum(values: in f32[n], sum: out f32[1])");
    assert_eq!(signature("monte_carlo_pi"), "monte_carlo_pi(samples: u64, seed: u64 = 0, hits: out u64[1])");
}

#[test]
fn a_misspelt_name_finds_the_most_similar_kernel() {
    assert_eq!(catalog().closest("sacpy"), Some("saxpy"));
    assert_eq!(catalog().closest("matmul"), Some("matmul_tiled"));
    assert_eq!(catalog().closest("black-scholes"), Some("black_scholes"));
    assert_eq!(catalog().closest("fft"), None);
}

const GOOD: &str = r#"
name = "k"
summary = "s"
formula = "f"
[[scalars]]
name = "width"
dtype = "u32"
[[buffers]]
name = "x"
role = "in"
dtype = "f32"
shape = ["n"]
[[buffers]]
name = "y"
role = "out"
dtype = "f32"
shape = ["n", "width"]
[[launches]]
entry = "k"
cover = ["n"]
block = [256]
args = ["x", "y", { u64 = "n" }]
"#;

fn parse(manifest: String) -> Result<Kernel, String> {
    let files = Files { name: "k", source: "", manifest: manifest.leak(), ptx: "" };
    Kernel::parse(Box::leak(Box::new(files))).map_err(|error| error.to_string())
}

#[test]
fn a_manifest_that_contradicts_itself_is_refused_with_the_reason() {
    parse(GOOD.to_owned()).unwrap();
    for (from, to, reason) in [
        ("name = \"k\"", "name = \"other\"", "the name is \"other\""),
        ("name = \"y\"", "name = \"x\"", "\"x\" is declared twice"),
        ("formula = \"f\"", "formula = \"f\"\nelementwise = true", "elementwise, but \"y\" has another shape"),
        ("shape = [\"n\", \"width\"]", "shape = [\"m\"]", "m in m has no value"),
        ("cover = [\"n\"]", "cover = [\"n\"]\nblocks = [1]", "a launch needs either cover or blocks"),
        ("block = [256]", "block = \"big\"", "block must be \"auto\" or a list of thread counts"),
        ("args = [\"x\",", "args = [\"z\",", "k takes \"z\", which is neither a buffer nor a scalar"),
        ("{ u64 = \"n\" }", "{ f32 = \"n\" }", "n is a size and cannot be passed as f32"),
        ("{ u64 = \"n\" }", "{ u64 = \"n +\" }", "did not match"),
        ("summary = \"s\"", "summary = \"s\"\nsumary = 1", "unknown field"),
        ("[[launches]]", "[tolerance.x]\nulp = 1\n[[launches]]", "a tolerance names \"x\", which is not an output"),
    ] {
        let manifest = GOOD.replacen(from, to, 1);
        assert_ne!(manifest, GOOD, "{from} stands in the manifest");
        let error = parse(manifest).unwrap_err();
        assert!(error.starts_with("k.toml: ") && error.contains(reason), "{error:?} should say {reason:?}");
    }
}
