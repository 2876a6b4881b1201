//! Layouts of matrices: which lane and register of a warp holds which element.
//!
//! The PTX ISA defines the layouts of `mma` (sections "Matrix Fragments for mma"). Each group of four lanes has a row
//! of A and a column of B. One register after the other covers blocks of eight rows, or of the columns that four lanes
//! hold. For `wmma` the ISA leaves the layout open; here it is that of `mma`, one tile after the other if the shape has
//! several.
//!
//! Every layout is a sum: the index of an element in the matrix is an offset of its lane plus an offset of its number
//! in the lane.

use crate::ops::lanes::LANES;

/// Rows of a block, one for each of the eight groups of four lanes.
const BAND: u32 = 8;

/// Shape of a product: A is m by k, B is k by n, C and D are m by n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub m: u32,
    pub n: u32,
    pub k: u32,
}

impl Shape {
    /// Parses a modifier such as `m16n8k16`.
    pub fn parse(name: &str) -> Option<Shape> {
        let (m, rest) = name.strip_prefix('m')?.split_once('n')?;
        let (n, k) = rest.split_once('k')?;
        Some(Shape { m: m.parse().ok()?, n: n.parse().ok()?, k: k.parse().ok()? })
    }

    pub fn is(self, m: u32, n: u32, k: u32) -> bool {
        self == Shape { m, n, k }
    }

    /// Returns rows and columns of a matrix.
    pub fn extent(self, role: Role) -> (u32, u32) {
        match role {
            Role::A => (self.m, self.k),
            Role::B => (self.k, self.n),
            Role::C => (self.m, self.n),
        }
    }
}

/// Role of a matrix in a product; the result D has the role of C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    A,
    B,
    C,
}

/// Storage order in memory: row-major or column-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Major {
    Row,
    Column,
}

impl Major {
    pub fn parse(name: &str) -> Option<Major> {
        match name {
            "row" => Some(Major::Row),
            "col" => Some(Major::Column),
            _ => None,
        }
    }
}

/// Describes layouts of tiles of 8 by 8 elements in which each lane holds pairs of neighbours: its first and second
/// element, and so on. Faster code exists for these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Four lanes hold a row of a tile; the matrix has this many columns.
    Rows(usize),
    /// Four lanes hold a column of a tile; the matrix has this many columns.
    Columns(usize),
    None,
}

/// Maps lanes and their elements to indices into a row-major matrix; the index is the sum of both offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub lanes: [u16; LANES],
    /// Offsets of the elements of a lane, from the low bits of its first register on.
    pub elements: Box<[u16]>,
    pub pattern: Pattern,
}

impl Layout {
    /// Returns the layout of `mma`, with `per` elements in a register.
    pub fn tiled(role: Role, shape: Shape, per: u32) -> Layout {
        let (rows, columns) = shape.extent(role);
        let index = |row: u32, column: u32| (row * columns + column) as u16;
        let lane = |lane: u32| match role {
            Role::A => index(lane / 4, lane % 4 * per),
            Role::B => index(lane % 4 * per, lane / 4),
            Role::C => index(lane / 4, lane % 4 * 2),
        };
        // Two bands of rows alternate; with them, the elements of four lanes across make a tile.
        let bands = if rows == BAND { 1 } else { 2 };
        let across = shape.k / (4 * per).min(shape.k);
        let element = |number: u32| match role {
            Role::A => {
                let (register, within) = (number / per, number % per);
                let (band, tile) = (register % bands, register / bands);
                index(tile / across * 2 * BAND + band * BAND, tile % across * 4 * per + within)
            }
            Role::B => {
                let (register, within) = (number / per, number % per);
                index(register % across * 4 * per + within, register / across * BAND)
            }
            Role::C => {
                let (pair, within) = (number / 2, number % 2);
                let (band, tile) = (pair % bands, pair / bands);
                let wide = columns / BAND;
                index(tile / wide * 2 * BAND + band * BAND, tile % wide * BAND + within)
            }
        };
        let count = rows * columns / LANES as u32;
        let pattern = match role {
            Role::A if per == 2 => Pattern::Rows(columns as usize),
            Role::B if per == 2 => Pattern::Columns(columns as usize),
            Role::C => Pattern::Rows(columns as usize),
            Role::A | Role::B => Pattern::None,
        };
        let lanes = std::array::from_fn(|number| lane(number as u32));
        Layout { lanes, elements: (0..count).map(element).collect(), pattern }
    }

    /// Repeats the elements until there are `count`, because the ISA gives some `wmma` fragments more registers than
    /// they need.
    pub fn repeated(mut self, count: usize) -> Layout {
        self.elements = self.elements.iter().copied().cycle().take(count).collect();
        self
    }

    /// Removes the repetitions again, for `count` matrices that follow each other.
    pub fn distinct(&mut self, role: Role, shape: Shape, count: usize) {
        let (rows, columns) = shape.extent(role);
        self.elements = self.elements[..(rows * columns) as usize * count / LANES].into();
    }

    /// Returns the layout of `mma.m8n8k4` on f16: four products, each held by a group of four lanes below 16 and one
    /// above. Their matrices follow each other.
    pub fn quads(role: Role, major: Major, accumulates_halves: bool) -> Layout {
        let (rows, columns) = Shape { m: 8, n: 8, k: 4 }.extent(role);
        let index = |row: u32, column: u32| (row * columns + column) as u16;
        let lane = |lane: u32| match (role, major) {
            (Role::A, Major::Row) => (lane % 4 + upper(lane), 0),
            (Role::A, Major::Column) => (upper(lane), lane % 4),
            (Role::B, Major::Row) => (lane % 4, upper(lane)),
            (Role::B, Major::Column) => (0, lane % 4 + upper(lane)),
            (Role::C, _) if accumulates_halves => (lane % 4 + upper(lane), 0),
            (Role::C, _) => ((lane & 1) + upper(lane), lane & 2),
        };
        let element = |number: u32| match (role, major) {
            (Role::A, Major::Row) | (Role::B, Major::Row) => index(0, number),
            (Role::A, Major::Column) | (Role::B, Major::Column) => index(number, 0),
            (Role::C, _) if accumulates_halves => index(0, number),
            (Role::C, _) => index(number & 2, (number & 4) + (number & 1)),
        };
        let lanes = std::array::from_fn(|number| {
            let number = number as u32;
            let (row, column) = lane(number);
            (number % 16 / 4 * rows * columns) as u16 + index(row, column)
        });
        // Eight lanes hold each matrix.
        Layout { lanes, elements: (0..rows * columns / 8).map(element).collect(), pattern: Pattern::None }
    }
}

/// Returns the offset of the lane's half of the warp: the second half holds the second four rows or columns.
fn upper(lane: u32) -> u32 {
    if lane < 16 { 0 } else { 4 }
}
