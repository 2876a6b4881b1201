//! Warp-level matrix instructions: `wmma`, `mma`, `ldmatrix`, `stmatrix` and `movmatrix`. The lanes of a warp hold a
//! matrix together.

use super::memory::Address;
use crate::ops::exact::Rounding;
use crate::ops::matrix::element::Element;
use crate::ops::matrix::layout::{Layout, Major, Shape};
use crate::ops::matrix::product::BitOp;

/// A matrix instruction, which all lanes of a warp run together.
#[derive(Debug)]
pub enum Matrix {
    Load(Box<Transfer>),
    Store(Box<Transfer>),
    Multiply(Box<Multiply>),
    LoadRows(Box<Rows>),
    StoreRows(Box<Rows>),
    /// `movmatrix`: transposes 8 by 8 elements of 16 bits.
    Transpose {
        d: u32,
        a: u32,
    },
}

/// A matrix in the registers of a warp (PTX ISA: fragment).
#[derive(Debug)]
pub struct Fragment {
    pub slots: Box<[u32]>,
    pub element: Element,
    /// Elements in one register; single-bit elements count as one word.
    pub per: usize,
    pub layout: Layout,
}

/// `wmma.load` and `wmma.store`: moves a whole matrix between memory and registers.
#[derive(Debug)]
pub struct Transfer {
    pub fragment: Fragment,
    pub address: Address,
    pub major: Major,
    /// Number of lines (rows or columns that are contiguous in memory), and the elements of the layout in each.
    pub lines: u32,
    pub length: u32,
    /// Slot of the stride: elements from one line to the next. Without one the lines are contiguous.
    pub stride: Option<u32>,
}

#[derive(Debug)]
pub struct Multiply {
    pub shape: Shape,
    /// Number of independent products, whose matrices follow each other in the layouts.
    pub count: usize,
    pub a: Fragment,
    pub b: Fragment,
    pub c: Fragment,
    pub d: Fragment,
    pub arithmetic: Arithmetic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    Floats,
    Doubles(Rounding),
    Integers { saturate: bool },
    Bits(BitOp),
}

/// `ldmatrix` and `stmatrix`: matrices of eight rows of eight 16-bit elements in shared memory. A lane of its own holds
/// the address of each row.
#[derive(Debug)]
pub struct Rows {
    pub address: Address,
    /// Slots of the registers, one for each matrix.
    pub slots: Box<[u32]>,
    pub transposed: bool,
}
