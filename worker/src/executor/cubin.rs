//! Whether a cubin is whole. The driver takes a pointer and no length, and believes what the header says; so the header is checked here,
//! where a lie costs an error and not a read beyond the end.

const MAGIC: &[u8] = b"\x7fELF";
/// 64-bit, little endian: the only kind that today's devices load.
const CLASS_AND_DATA: [u8; 2] = [2, 1];
const MACHINE_CUDA: u16 = 190;
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: u64 = 56;
const SECTION_HEADER_BYTES: u64 = 64;
/// A section that takes no room in the file.
const SHT_NOBITS: u32 = 8;

/// Checks that everything that the ELF header names lies inside.
pub(crate) fn check(bytes: &[u8]) -> Result<(), &'static str> {
    if bytes.len() < HEADER_BYTES || !bytes.starts_with(MAGIC) || bytes[4..6] != CLASS_AND_DATA {
        return Err("it does not begin with a 64-bit ELF header");
    }
    if u16_at(bytes, 18) != Some(MACHINE_CUDA) {
        return Err("it is an ELF file for another machine than a GPU");
    }
    let sections = table(bytes, 40, 58, 60, SECTION_HEADER_BYTES).ok_or("its section table lies outside")?;
    for at in sections {
        let kind = u32_at(bytes, at + 4).ok_or("a section header is cut off")?;
        let outside = "a section lies outside";
        if kind != SHT_NOBITS {
            within(bytes, u64_at(bytes, at + 24), u64_at(bytes, at + 32)).ok_or(outside)?;
        }
    }
    let segments = table(bytes, 32, 54, 56, PROGRAM_HEADER_BYTES).ok_or("its segment table lies outside")?;
    for at in segments {
        within(bytes, u64_at(bytes, at + 8), u64_at(bytes, at + 32)).ok_or("a segment lies outside")?;
    }
    Ok(())
}

/// Offsets of the entries of a table whose offset, entry size and count stand at these places of the header.
fn table(bytes: &[u8], offset: usize, size: usize, count: usize, entry_bytes: u64) -> Option<Vec<usize>> {
    let (start, size, count) =
        (u64_at(bytes, offset)?, u64::from(u16_at(bytes, size)?), u64::from(u16_at(bytes, count)?));
    if count == 0 {
        return Some(Vec::new());
    }
    if size != entry_bytes {
        return None;
    }
    within(bytes, Some(start), Some(size * count))?;
    Some((0..count).map(|index| (start + index * size) as usize).collect())
}

fn within(bytes: &[u8], start: Option<u64>, length: Option<u64>) -> Option<()> {
    (start?.checked_add(length?)? <= bytes.len() as u64).then_some(())
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole() -> Vec<u8> {
        let mut elf = vec![0_u8; 192];
        elf[..4].copy_from_slice(MAGIC);
        elf[4..6].copy_from_slice(&CLASS_AND_DATA);
        elf[18..20].copy_from_slice(&MACHINE_CUDA.to_le_bytes());
        elf[40..48].copy_from_slice(&64_u64.to_le_bytes());
        elf[58..60].copy_from_slice(&64_u16.to_le_bytes());
        elf[60..62].copy_from_slice(&2_u16.to_le_bytes());
        elf[64 + 64 + 32..64 + 64 + 40].copy_from_slice(&192_u64.to_le_bytes());
        elf
    }

    #[test]
    fn a_cubin_is_taken_whole_or_not_at_all() {
        let elf = whole();
        assert_eq!(check(&elf), Ok(()));
        for length in 0..elf.len() {
            assert!(check(&elf[..length]).is_err(), "cut to {length}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_check_panic(mut bytes in prop::collection::vec(any::<u8>(), 64..300)) {
            bytes[..4].copy_from_slice(MAGIC);
            bytes[4..6].copy_from_slice(&CLASS_AND_DATA);
            bytes[18..20].copy_from_slice(&MACHINE_CUDA.to_le_bytes());
            let _ = check(&bytes);
        }
    }
}
