//! The SONAME lets glibc answer a later `dlopen("libcuda.so")` with this library once it is loaded by path.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
}
