//! The files of the catalog, as part of the program: a worker needs nothing beside its binary.

/// What belongs to one kernel.
#[derive(Debug)]
pub(crate) struct Files {
    pub name: &'static str,
    pub source: &'static str,
    pub manifest: &'static str,
    pub ptx: &'static str,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(Files {
            name: $name,
            source: include_str!(concat!("../", $name, ".cu")),
            manifest: include_str!(concat!("../", $name, ".toml")),
            ptx: include_str!(concat!("../", $name, ".ptx")),
        }),*]
    };
}

/// A kernel that is not listed here does not exist; a test compares with the folder.
pub(crate) static FILES: [Files; 13] = files![
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
];
