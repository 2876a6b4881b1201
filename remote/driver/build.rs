//! Linker options. The SONAME lets glibc answer a later `dlopen("libcuda.so")` with this library once it is loaded by
//! path. The RPATH lets it find itself as `libcuda.so.1` in a folder with links of both names: see `names.rs`. It is no
//! RUNPATH, because glibc searches `LD_LIBRARY_PATH`, where another driver may be, before that. `nodelete` keeps the
//! library mapped when a program closes it, because its threads wait for work in its code.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--disable-new-dtags,-rpath,$ORIGIN");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
