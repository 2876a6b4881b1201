//! The files of the catalog. They are part of the program, so that a worker needs only its binary.

/// The files of one kernel.
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

/// All kernels. A test compares this list with the folder.
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
