//! Rebuilds when a migration or a query's stored description changes: the macros that embed them can't say so themselves.

fn main() {
    println!("cargo::rerun-if-changed=../migrations");
    println!("cargo::rerun-if-changed=.sqlx");
}
