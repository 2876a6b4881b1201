//! The grammar of the instruction set: PTX ISA 8.8 for architectures up to sm_90. For every mnemonic it has the types
//! and modifiers, and a function that computes the result. There is one module per chapter of the ISA.

mod absent;
mod address;
mod asynchronous;
mod atomic;
mod bulk;
mod compare;
mod control;
mod convert;
mod float;
mod forms;
mod half;
mod integer;
mod logic;
mod matrix;
mod memory;
mod phases;
mod reduction;
mod surface;
mod synchronization;
mod texture;
mod tiles;
mod turns;
mod warp;

use crate::{case::Case, recipe::Recipe};
use forms::Grammar;

/// Returns everything, in the order of the ISA's chapters.
pub fn recipes() -> Vec<Recipe> {
    let mut grammar = Grammar::default();
    integer::add(&mut grammar);
    float::add(&mut grammar);
    half::add(&mut grammar);
    compare::add(&mut grammar);
    convert::add(&mut grammar);
    logic::add(&mut grammar);
    memory::add(&mut grammar);
    address::add(&mut grammar);
    atomic::add(&mut grammar);
    asynchronous::add(&mut grammar);
    control::add(&mut grammar);
    synchronization::add(&mut grammar);
    warp::add(&mut grammar);
    matrix::add(&mut grammar);
    turns::add(&mut grammar);
    tiles::add(&mut grammar);
    texture::add(&mut grammar);
    surface::add(&mut grammar);
    reduction::add(&mut grammar);
    absent::add(&mut grammar);
    phases::add(&mut grammar);
    bulk::add(&mut grammar);
    grammar.recipes
}

/// Returns the cases of all recipes; they are equal in every run.
pub fn cases() -> Vec<Case> {
    recipes().iter().flat_map(Recipe::cases).collect()
}
