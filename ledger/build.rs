//! Rebuilds when a migration or a query's stored description changes: the macros that embed them can't say so themselves.

fn main() {
    println!("cargo::rerun-if-changed=../migrations");
    println!("cargo::rerun-if-changed=.sqlx");
    // `cargo xtask sqlx` has the macros write the descriptions into another folder each time.
    println!("cargo::rerun-if-env-changed=SQLX_OFFLINE_DIR");
}
