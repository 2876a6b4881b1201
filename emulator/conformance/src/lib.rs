//! Proof by cases that PTX runs as its ISA says, on the emulator and on devices.
//!
//! The [`grammar`] lists every form of every instruction, with its result by an evaluator of its own ([`scalar`]).
//! From that come the cases, in memory: small PTX programs with their inputs and expected outputs ([`case`]). A driver
//! runs them ([`driver`], [`children`]) and [`verdict`] says how far off it is. Committed are only a checksum for each
//! mnemonic ([`checksums`]) and the programs that once failed ([`files`]).

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
