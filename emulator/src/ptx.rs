//! PTX as a syntax tree: the text as written, with a line for each part. It does not interpret anything;
//! [`crate::lower`] does.

pub mod error;
pub mod lexer;
pub mod parser;
pub mod tree;
pub mod types;
