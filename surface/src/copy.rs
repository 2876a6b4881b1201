//! The arithmetic of copies: bytes in planes of rows. The pitch is the bytes from one row to the next, and the slice
//! those from one plane to the next.

/// Returns the bytes from the start to this place.
pub fn offset([x, y, z]: [usize; 3], pitch: usize, slice: usize) -> Option<usize> {
    let (rows, planes) = (y.checked_mul(pitch)?, z.checked_mul(slice)?);
    rows.checked_add(planes)?.checked_add(x)
}

/// Returns the bytes from the first byte of the first row to the last byte of the last row; `None` if rows or planes
/// overlap.
pub fn extent([width, height, depth]: [usize; 3], pitch: usize, slice: usize) -> Option<usize> {
    if height > 1 && pitch < width {
        return None;
    }
    let plane = pitch.checked_mul(height.saturating_sub(1))?.checked_add(width)?;
    if depth > 1 && slice < plane {
        return None;
    }
    slice.checked_mul(depth.saturating_sub(1))?.checked_add(plane)
}

#[cfg(test)]
mod tests {
    use super::{extent, offset};

    #[test]
    fn rows_and_planes_may_be_padded_but_not_overlap() {
        assert_eq!(extent([3, 2, 2], 4, 8), Some(8 + 4 + 3));
        assert_eq!(extent([3, 2, 1], 2, 0), None);
        assert_eq!(extent([3, 2, 2], 4, 6), None);
        assert_eq!(extent([3, 1, 1], 0, 0), Some(3));
        assert_eq!(offset([1, 2, 3], 10, 100), Some(321));
        assert_eq!(offset([1, 2, 0], usize::MAX, 0), None);
    }
}
