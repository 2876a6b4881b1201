//! Makes Cargo rebuild the crate when a migration or a query's stored description changes, because the macros that embed these files can't
//! declare them as dependencies.

fn main() {
    println!("cargo::rerun-if-changed=../migrations");
    println!("cargo::rerun-if-changed=.sqlx");
    // `cargo xtask sqlx` lets the macros write the descriptions into a new folder on each run.
    println!("cargo::rerun-if-env-changed=SQLX_OFFLINE_DIR");
}
