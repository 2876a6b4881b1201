//! Instructions on matrices that a whole warp holds.

use super::memory::Address;
use crate::ops::exact::Rounding;
use crate::ops::matrix::element::Element;
use crate::ops::matrix::layout::{Layout, Major, Shape};
use crate::ops::matrix::product::BitOp;

/// An instruction that all lanes of a warp run together.
#[derive(Debug)]
pub enum Matrix {
    Load(Box<Transfer>),
    Store(Box<Transfer>),
    Multiply(Box<Multiply>),
    LoadRows(Box<Rows>),
    StoreRows(Box<Rows>),
    /// Of 8 by 8 elements of 16 bits.
    Transpose {
        d: u32,
        a: u32,
    },
}

/// A matrix in the registers of a warp.
#[derive(Debug)]
pub struct Fragment {
    pub slots: Box<[u32]>,
    pub element: Element,
    /// Elements in a register; single bits count as one word.
    pub per: usize,
    pub layout: Layout,
}

/// A whole matrix between memory and registers.
#[derive(Debug)]
pub struct Transfer {
    pub fragment: Fragment,
    pub address: Address,
    pub major: Major,
    /// Lines of neighbours in memory: how many there are and how many elements, of the layout's, each has.
    pub lines: u32,
    pub length: u32,
    /// Slot of the elements from one line to the next; without one the lines follow each other.
    pub stride: Option<u32>,
}

#[derive(Debug)]
pub struct Multiply {
    pub shape: Shape,
    /// Independent products, whose matrices follow each other in the layouts.
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

/// Matrices of eight rows of eight 16-bit elements in shared memory: each row has its address, in a lane of its own.
#[derive(Debug)]
pub struct Rows {
    pub address: Address,
    /// One register for each matrix.
    pub slots: Box<[u32]>,
    pub transposed: bool,
}
