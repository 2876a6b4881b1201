//! Layouts of `mma` fragments, from the PTX ISA's section on each shape: row and column of element `i` in lane `l`.
//! They are written out shape by shape, because the general rule is what is tested.

pub type Place = fn(usize, usize) -> (usize, usize);

/// Returns the group of a lane and its place in the group.
const fn g(l: usize) -> usize {
    l >> 2
}

const fn t(l: usize) -> usize {
    l % 4
}

pub struct Fragments {
    pub shape: (usize, usize, usize),
    pub a: Place,
    pub b: Place,
    pub c: Place,
}

const C8: Place = |l, i| (g(l), t(l) * 2 + i);
const C16: Place = |l, i| (if i < 2 { g(l) } else { g(l) + 8 }, t(l) * 2 + (i & 1));

/// f64.
pub const M8N8K4: Fragments =
    Fragments { shape: (8, 8, 4), a: |l, _| (l >> 2, l % 4), b: |l, _| (l % 4, l >> 2), c: C8 };

/// tf32 and f64.
pub const M16N8K4: Fragments = Fragments {
    shape: (16, 8, 4),
    a: |l, i| (if i == 0 { g(l) } else { g(l) + 8 }, t(l)),
    b: |l, _| (t(l), g(l)),
    c: C16,
};

/// f16 and bf16.
pub const M16N8K8_HALF: Fragments = Fragments {
    shape: (16, 8, 8),
    a: |l, i| (if i < 2 { g(l) } else { g(l) + 8 }, t(l) * 2 + (i & 1)),
    b: |l, i| (t(l) * 2 + i, g(l)),
    c: C16,
};

/// tf32 and f64.
pub const M16N8K8_WORD: Fragments = Fragments {
    shape: (16, 8, 8),
    a: |l, i| (if i == 0 || i == 2 { g(l) } else { g(l) + 8 }, if i < 2 { t(l) } else { t(l) + 4 }),
    b: |l, i| (if i == 0 { t(l) } else { t(l) + 4 }, g(l)),
    c: C16,
};

/// f16 and bf16.
pub const M16N8K16_HALF: Fragments = Fragments {
    shape: (16, 8, 16),
    a: |l, i| {
        let row = if i < 2 || (4..6).contains(&i) { g(l) } else { g(l) + 8 };
        (row, if i < 4 { t(l) * 2 + (i & 1) } else { t(l) * 2 + (i & 1) + 8 })
    },
    b: |l, i| (if i < 2 { t(l) * 2 + (i & 1) } else { t(l) * 2 + (i & 1) + 8 }, g(l)),
    c: C16,
};

pub const M16N8K16_DOUBLE: Fragments = Fragments {
    shape: (16, 8, 16),
    a: |l, i| {
        let column = if i % 2 == 0 { i * 2 + t(l) } else { i * 2 - 2 + t(l) };
        (if i % 2 == 0 { g(l) } else { g(l) + 8 }, column)
    },
    b: |l, i| (t(l) + i * 4, g(l)),
    c: C16,
};

/// u8 and s8.
pub const M8N8K16: Fragments =
    Fragments { shape: (8, 8, 16), a: |l, i| (g(l), t(l) * 4 + i), b: |l, i| (t(l) * 4 + i, g(l)), c: C8 };

/// u8 and s8, e4m3 and e5m2.
pub const M16N8K16_BYTE: Fragments = Fragments {
    shape: (16, 8, 16),
    a: |l, i| (if i < 4 { g(l) } else { g(l) + 8 }, t(l) * 4 + (i & 3)),
    b: |l, i| (t(l) * 4 + i, g(l)),
    c: C16,
};

/// u8 and s8, e4m3 and e5m2.
pub const M16N8K32_BYTE: Fragments = Fragments {
    shape: (16, 8, 32),
    a: |l, i| {
        let row = if i < 4 || (8..12).contains(&i) { g(l) } else { g(l) + 8 };
        (row, if i < 8 { t(l) * 4 + (i & 3) } else { t(l) * 4 + (i & 3) + 16 })
    },
    b: |l, i| (if i < 4 { t(l) * 4 + (i & 3) } else { t(l) * 4 + (i & 3) + 16 }, g(l)),
    c: C16,
};

/// u4 and s4.
pub const M8N8K32: Fragments =
    Fragments { shape: (8, 8, 32), a: |l, i| (g(l), t(l) * 8 + i), b: |l, i| (t(l) * 8 + i, g(l)), c: C8 };

pub const M16N8K32_NIBBLE: Fragments = Fragments {
    shape: (16, 8, 32),
    a: |l, i| (if i < 8 { g(l) } else { g(l) + 8 }, t(l) * 8 + (i & 7)),
    b: |l, i| (t(l) * 8 + (i & 7), g(l)),
    c: C16,
};

pub const M16N8K64: Fragments = Fragments {
    shape: (16, 8, 64),
    a: |l, i| {
        let row = if i < 8 || (16..24).contains(&i) { g(l) } else { g(l) + 8 };
        (row, if i < 16 { t(l) * 8 + (i & 7) } else { t(l) * 8 + (i & 7) + 32 })
    },
    b: |l, i| (if i < 8 { t(l) * 8 + (i & 7) } else { t(l) * 8 + (i & 7) + 32 }, g(l)),
    c: C16,
};

/// Single bits.
pub const M8N8K128: Fragments =
    Fragments { shape: (8, 8, 128), a: |l, i| (g(l), t(l) * 32 + i), b: |l, i| (t(l) * 32 + i, g(l)), c: C8 };

pub const M16N8K128: Fragments = Fragments {
    shape: (16, 8, 128),
    a: |l, i| (if i < 32 { g(l) } else { g(l) + 8 }, t(l) * 32 + (i & 31)),
    b: |l, i| (t(l) * 32 + i, g(l)),
    c: C16,
};

pub const M16N8K256: Fragments = Fragments {
    shape: (16, 8, 256),
    a: |l, i| {
        let row = if i < 32 || (64..96).contains(&i) { g(l) } else { g(l) + 8 };
        (row, if i < 64 { t(l) * 32 + (i & 31) } else { t(l) * 32 + (i & 31) + 128 })
    },
    b: |l, i| (if i < 32 { t(l) * 32 + (i & 31) } else { t(l) * 32 + (i & 31) + 128 }, g(l)),
    c: C16,
};

/// Distributes a matrix to the words of 32 lanes: all lanes of the first register, then of the second, and so on. A
/// 64-bit element takes two words.
pub fn spread(matrix: &[u64], columns: usize, bits: u32, place: Place) -> Vec<u32> {
    let count = matrix.len() / 32;
    let mut words = vec![0; (count * 32 * bits as usize).div_ceil(32).next_multiple_of(32)];
    for lane in 0..32 {
        for i in 0..count {
            let (row, column) = place(lane, i);
            let value = matrix[row * columns + column];
            if bits == 64 {
                words[2 * (i * 32 + lane)] = value as u32;
                words[2 * (i * 32 + lane) + 1] = (value >> 32) as u32;
            } else {
                let bit = i * bits as usize;
                words[bit / 32 * 32 + lane] |= (value as u32) << (bit % 32);
            }
        }
    }
    words
}

/// Collects a matrix of `rows` rows from such words.
pub fn collect(words: &[u32], rows: usize, columns: usize, bits: u32, place: Place) -> Vec<u64> {
    let count = rows * columns / 32;
    let mut matrix = vec![u64::MAX; rows * columns];
    for lane in 0..32 {
        for i in 0..count {
            let (row, column) = place(lane, i);
            let at = i * 32 + lane;
            let bit = i * bits as usize;
            matrix[row * columns + column] = if bits == 64 {
                u64::from(words[2 * at]) | u64::from(words[2 * at + 1]) << 32
            } else {
                u64::from(words[bit / 32 * 32 + lane] >> (bit % 32)) & ((1 << bits) - 1)
            };
        }
    }
    matrix
}
