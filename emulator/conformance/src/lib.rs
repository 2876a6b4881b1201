//! Conformance cases, which prove that the emulator and devices run PTX as its ISA specifies.
//!
//! The [`grammar`] lists every form of every instruction, with its result by an independent evaluator ([`scalar`]). It
//! produces the cases in memory: small PTX programs with inputs and expected outputs ([`case`]). A driver runs them
//! ([`driver`], [`children`]), and [`verdict`] compares the results. Only a checksum per mnemonic ([`checksums`]) and
//! the programs that once failed ([`files`]) are committed.

pub mod assembler;
pub mod case;
pub mod checksums;
pub mod children;
pub mod compare;
pub mod driver;
pub mod files;
pub mod grammar;
pub mod inputs;
pub mod kind;
pub mod random;
pub mod recipe;
pub mod report;
pub mod scalar;
pub mod texture;
pub mod verdict;
