//! Linker options. The SONAME lets glibc answer a later `dlopen("libcuda.so")` with this library once it is loaded by
//! path. `nodelete` keeps the library mapped when a program closes it, because its threads wait for work in its code.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
