//! PTX text as a tree: what was written, with the line of everything, and nothing about what it means.

pub mod error;
pub mod lexer;
pub mod parser;
pub mod tree;
pub mod types;
