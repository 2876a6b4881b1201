//! Tiles of 8 by 8 elements, of which each lane of a warp has two neighbours. The loops are plain loops over whole
//! tiles, because the compiler vectorises those.

use crate::ops::lanes::LANES;
use crate::program::matrix::Fragment;
use crate::simt::frames::Registers;

/// Rows and columns of a tile.
pub const SIDE: usize = 8;

/// The elements of a tile in the order of the lanes that have them, line by line. The lines are rows, or columns if the
/// layout has [`Columns`](crate::ops::matrix::layout::Pattern::Columns).
pub type Tile<T> = [T; SIDE * SIDE];

/// Returns the tiles of a fragment: their number, and where each starts in the matrix.
#[inline(always)]
pub fn starts(fragment: &Fragment) -> impl Iterator<Item = (usize, usize)> {
    fragment.layout.elements.chunks_exact(2).map(|pair| usize::from(pair[0])).enumerate()
}

/// Returns the bits of a tile's elements. A lane has its two elements in one register or in two.
#[inline(always)]
pub fn from_registers(fragment: &Fragment, registers: &mut Registers, number: usize) -> Tile<u32> {
    let mut tile = [0; SIDE * SIDE];
    if fragment.per == 2 {
        let words = registers.words(fragment.slots[number]);
        for lane in 0..LANES {
            tile[2 * lane] = words[lane] & 0xffff;
            tile[2 * lane + 1] = words[lane] >> 16;
        }
    } else {
        for within in 0..2 {
            let words = registers.words(fragment.slots[2 * number + within]);
            for lane in 0..LANES {
                tile[2 * lane + within] = words[lane];
            }
        }
    }
    tile
}

/// Writes a tile to the registers that [`from_registers`] reads.
#[inline(always)]
pub fn to_registers(fragment: &Fragment, registers: &mut Registers, number: usize, tile: &Tile<u32>) {
    if fragment.per == 2 {
        let words = registers.words(fragment.slots[number]);
        for lane in 0..LANES {
            words[lane] = tile[2 * lane] | tile[2 * lane + 1] << 16;
        }
    } else {
        for within in 0..2 {
            let words = registers.words(fragment.slots[2 * number + within]);
            for lane in 0..LANES {
                words[lane] = tile[2 * lane + within];
            }
        }
    }
}

/// Applies a function to each element.
#[inline(always)]
pub fn each<T: Copy, R: Copy + Default>(tile: &Tile<T>, change: impl Fn(T) -> R) -> Tile<R> {
    let mut changed = [R::default(); SIDE * SIDE];
    for element in 0..SIDE * SIDE {
        changed[element] = change(tile[element]);
    }
    changed
}

/// Transposes a tile.
#[inline(always)]
pub fn turned<T: Copy>(tile: &Tile<T>) -> Tile<T> {
    let mut turned = *tile;
    for line in 0..SIDE {
        for place in 0..SIDE {
            turned[line * SIDE + place] = tile[place * SIDE + line];
        }
    }
    turned
}

/// Writes the lines of a tile to the start of `matrix`, whose lines have `length` elements.
#[inline(always)]
pub fn put<T: Copy>(matrix: &mut [T], length: usize, tile: &Tile<T>) {
    for (line, to) in tile.as_chunks::<SIDE>().0.iter().zip(matrix.chunks_mut(length)) {
        *to.first_chunk_mut().expect("a tile lies in its matrix") = *line;
    }
}

/// Reads a tile as [`put`] writes it.
#[inline(always)]
pub fn take<T: Copy + Default>(matrix: &[T], length: usize) -> Tile<T> {
    let mut tile = [T::default(); SIDE * SIDE];
    for (line, from) in tile.as_chunks_mut::<SIDE>().0.iter_mut().zip(matrix.chunks(length)) {
        *line = *from.first_chunk().expect("a tile lies in its matrix");
    }
    tile
}
