//! Standard headers that NVRTC lacks, and advice about headers that no worker has.
//!
//! NVRTC declares most of C's functions without any header, so code needs the C headers only for their names. C++ headers come from
//! libcu++; ours make its names available in `std` too.

macro_rules! from_libcuxx {
    ($name:literal) => {
        concat!("#include <cuda/std/", $name, ">\nnamespace std { using namespace cuda::std; }\n")
    };
}

/// The headers, with their names and texts. They are in memory, so the sandbox needs no folder for them.
pub(super) const HEADERS: &[(&str, &str)] = &[
    ("stdint.h", include_str!("headers/stdint.h")),
    ("cstdint", include_str!("headers/stdint.h")),
    ("stddef.h", include_str!("headers/stddef.h")),
    ("cstddef", include_str!("headers/stddef.h")),
    ("limits.h", "#include <cuda/std/climits>\n"),
    ("climits", "#include <cuda/std/climits>\n"),
    ("float.h", include_str!("headers/float.h")),
    ("cfloat", include_str!("headers/float.h")),
    ("math.h", include_str!("headers/math.h")),
    ("cmath", include_str!("headers/math.h")),
    ("stdio.h", include_str!("headers/stdio.h")),
    ("cstdio", include_str!("headers/stdio.h")),
    ("stdlib.h", include_str!("headers/stdlib.h")),
    ("cstdlib", include_str!("headers/stdlib.h")),
    ("string.h", include_str!("headers/string.h")),
    ("cstring", include_str!("headers/string.h")),
    ("assert.h", "// NVRTC has assert.\n"),
    ("cassert", "// NVRTC has assert.\n"),
    ("stdbool.h", "// C++ has bool.\n"),
    ("array", from_libcuxx!("array")),
    ("atomic", from_libcuxx!("atomic")),
    ("bit", from_libcuxx!("bit")),
    ("concepts", from_libcuxx!("concepts")),
    ("functional", from_libcuxx!("functional")),
    ("initializer_list", from_libcuxx!("initializer_list")),
    ("iterator", from_libcuxx!("iterator")),
    ("limits", from_libcuxx!("limits")),
    ("numeric", from_libcuxx!("numeric")),
    ("optional", from_libcuxx!("optional")),
    ("ratio", from_libcuxx!("ratio")),
    ("span", from_libcuxx!("span")),
    ("tuple", from_libcuxx!("tuple")),
    ("type_traits", from_libcuxx!("type_traits")),
    ("utility", from_libcuxx!("utility")),
    ("variant", from_libcuxx!("variant")),
    (
        "cub/cub.cuh",
        "#error cub/cub.cuh is for host programs; include the parts that kernels use, such as <cub/block/block_reduce.cuh>\n",
    ),
    ("thrust/complex.h", include_str!("headers/thrust_complex.h")),
];

const MISSING: &str = "cannot open source file \"";

/// Adds advice to errors about headers that the worker lacks, for every reader of the log. Removes the system's reason, because it would
/// reveal which files exist on the worker's host.
pub(super) fn with_advice(log: &str) -> String {
    log.split_inclusive('\n').map(|line| line_with_advice(line).unwrap_or_else(|| line.to_owned())).collect()
}

fn line_with_advice(line: &str) -> Option<String> {
    let (before, rest) = line.split_once(MISSING)?;
    let (name, _reason) = rest.rsplit_once('"')?;
    let end = if line.ends_with('\n') { "\n" } else { "" };
    Some(format!("{before}{MISSING}{name}\"; {}{end}", advice(name)))
}

fn advice(name: &str) -> &'static str {
    let folder = name.split('/').next().unwrap_or_default();
    match (folder, name) {
        (_, "complex" | "complex.h" | "ccomplex") => "include <cuda/std/complex> and use cuda::std::complex",
        ("cub", _) => "only the parts of CUB that run in kernels are available, such as <cub/block/block_reduce.cuh>",
        ("thrust", _) => {
            "Thrust runs on the host; kernels use <thrust/complex.h>, <cuda/std/...> and <cub/block/...> instead"
        }
        (_, "curand_kernel.h" | "curand.h") => {
            "workers have no cuRAND; copy a counter-based generator such as Philox into the source, or pass random numbers as an input"
        }
        (
            "cublas_v2.h" | "cublas.h" | "cusparse.h" | "cusolverDn.h" | "cufft.h" | "cudnn.h" | "nccl.h" | "npp.h",
            _,
        ) => "this library is called by a host program; a job has kernels only",
        ("cutlass" | "cute" | "torch" | "ATen" | "c10" | "Eigen", _) => {
            "workers have CUDA's own headers only; compile the program elsewhere and submit its PTX or cubin"
        }
        (_, "helper_math.h" | "helper_cuda.h" | "helper_functions.h" | "cutil_math.h") => {
            "this header is of NVIDIA's samples and not of CUDA; copy what the kernel uses into the source"
        }
        (
            _,
            "iostream" | "sstream" | "fstream" | "vector" | "string" | "map" | "set" | "unordered_map" | "list"
            | "memory" | "algorithm" | "random" | "thread" | "mutex" | "exception" | "stdexcept" | "iomanip",
        ) => {
            "it belongs to a host program; kernels can use the headers below <cuda/std/>, and printf without any header"
        }
        (_, "cuda.h") => "it is the API of a host program, which kernels can't call; remove the include",
        _ => "workers have CUDA's own headers only; put the text of other headers into the source",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_header_has_advice_in_the_log() {
        let log = |name: &str| {
            format!(
                "kernel.cu(1): catastrophic error: cannot open source file \"{name}\"\n  #include <{name}>\n     ^\n"
            )
        };
        for (name, told) in [
            ("curand_kernel.h", "no cuRAND"),
            ("cub/device/device_reduce.cuh", "run in kernels"),
            ("thrust/device_vector.h", "Thrust runs on the host"),
            ("vector", "belongs to a host program"),
            ("complex", "cuda::std::complex"),
            ("mine.h", "put the text"),
        ] {
            let advised = with_advice(&log(name));
            let first = advised.lines().next().unwrap();
            assert!(
                first.starts_with(&format!("kernel.cu(1): catastrophic error: cannot open source file \"{name}\"; "))
            );
            assert!(first.contains(told), "{first}");
            assert_eq!(advised.lines().count(), 3);
        }
        assert_eq!(with_advice("kernel.cu(7): error: x\n"), "kernel.cu(7): error: x\n");
    }

    #[test]
    fn the_log_does_not_say_whether_a_file_exists() {
        let log = |reason: &str| {
            with_advice(&format!("kernel.cu(1): catastrophic error: cannot open source file \"/etc/shadow\"{reason}\n"))
        };
        assert_eq!(log(": Permission denied"), log(""));
        assert_eq!(log(": Is a directory"), log(""));
    }
}
