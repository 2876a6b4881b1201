//! The SONAME lets glibc answer a later `dlopen("libcuda.so")` with this library once it is loaded by path. Its threads wait
//! for work in its code: so that stays where it is when a program closes the library.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
