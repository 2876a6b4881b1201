//! The second name of this library, for a program that has loaded it by path.
//!
//! Programs load the driver as `libcuda.so.1` or as `libcuda.so`. glibc returns a library that is loaded already if the
//! name is its SONAME, which is `libcuda.so`, or a name by which a search has found its file before. glibc searches the
//! RPATH of the library that calls `dlopen`, so the search for the other name must start here.

/// Searches for `libcuda.so.1` beside this library. If it is a link to this library, later `dlopen("libcuda.so.1")` calls
/// of the whole program return this library too. Returns 0 if the name was found.
#[unsafe(no_mangle)]
pub extern "C" fn gpufleet_session_names() -> i32 {
    // SAFETY: the name ends with a null byte, and a library that is loaded already runs no code.
    let found = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    // The comparison also keeps this from being a tail call, in which glibc would see the address of the caller.
    i32::from(found.is_null())
}
