//! Builds the program again when a file of the web application was added or removed, which the compiler does not see.

fn main() {
    println!("cargo::rerun-if-changed=web/dist");
}
