//! NumPy files of format version 1.0.

/// Returns a NumPy file with elements in C order. `<f4` is a little-endian `f32`, and a shape is written `(3,)` or `(2,
/// 3)`.
pub fn npy(descriptor: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{descriptor}', 'fortran_order': False, 'shape': {shape}, }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(elements);
    bytes
}
