//! Reads a cubin's headers: whether the file is complete, whether it has variables, and its size when loaded. The driver takes a pointer
//! without a length and trusts the headers, so a wrong header must cause an error here instead of a read beyond the end of the file.

const MAGIC: &[u8] = b"\x7fELF";
/// Class and byte order: 64-bit, little endian, the only kind that today's devices load.
const CLASS_AND_DATA: [u8; 2] = [2, 1];
const MACHINE_CUDA: u16 = 190;
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: u64 = 56;
const SECTION_HEADER_BYTES: u64 = 64;
/// Type of a section that takes no room in the file.
const SHT_NOBITS: u32 = 8;

/// Section flag: writable. [`SHF_ALLOC`] means that the section is in memory.
const SHF_WRITE: u64 = 1;
const SHF_ALLOC: u64 = 2;
/// Name prefixes of sections with variables that outlive a launch.
const VARIABLE_SECTIONS: [&[u8]; 3] = [b".nv.global", b".data", b".bss"];
/// Name prefix of sections of shared memory, which is writable but belongs to one block.
const SHARED_SECTION: &[u8] = b".nv.shared";

/// Checks that everything that the ELF header refers to is inside the file.
pub(crate) fn check(bytes: &[u8]) -> Result<(), &'static str> {
    if bytes.len() < HEADER_BYTES || !bytes.starts_with(MAGIC) || bytes[4..6] != CLASS_AND_DATA {
        return Err("it does not begin with a 64-bit ELF header");
    }
    if u16_at(bytes, 18) != Some(MACHINE_CUDA) {
        return Err("it is an ELF file, but not for a GPU");
    }
    let sections = table(bytes, 40, 58, 60, SECTION_HEADER_BYTES).ok_or("its section table lies outside the file")?;
    for at in sections {
        let kind = u32_at(bytes, at + 4).ok_or("a section header is cut off")?;
        let outside = "a section lies outside the file";
        if kind != SHT_NOBITS {
            within(bytes, u64_at(bytes, at + 24), u64_at(bytes, at + 32)).ok_or(outside)?;
        }
    }
    let segments = table(bytes, 32, 54, 56, PROGRAM_HEADER_BYTES).ok_or("its segment table lies outside the file")?;
    for at in segments {
        within(bytes, u64_at(bytes, at + 8), u64_at(bytes, at + 32)).ok_or("a segment lies outside the file")?;
    }
    Ok(())
}

/// Returns whether the cubin may have variables that outlive a launch; true if unsure.
pub(crate) fn has_variables(bytes: &[u8]) -> bool {
    let Some(sections) = table(bytes, 40, 58, 60, SECTION_HEADER_BYTES) else { return true };
    if sections.is_empty() {
        return true;
    }
    let names = u16_at(bytes, 62).and_then(|index| u64_at(bytes, sections.get(usize::from(index))? + 24));
    sections.iter().any(|section| {
        let (Some(flags), Some(name)) = (u64_at(bytes, section + 8), names.and_then(|at| name(bytes, *section, at)))
        else {
            return true;
        };
        let is_written = flags & SHF_WRITE != 0 && flags & SHF_ALLOC != 0 && !name.starts_with(SHARED_SECTION);
        is_written || VARIABLE_SECTIONS.iter().any(|prefix| name.starts_with(prefix))
    })
}

/// Returns the device memory that the cubin takes when loaded, in bytes: code, constants and variables. If the headers are unreadable, that
/// is the size of the file.
pub(crate) fn loaded_bytes(bytes: &[u8]) -> u64 {
    let Some(sections) = table(bytes, 40, 58, 60, SECTION_HEADER_BYTES) else { return bytes.len() as u64 };
    let names = u16_at(bytes, 62).and_then(|index| u64_at(bytes, sections.get(usize::from(index))? + 24));
    let loaded = sections.iter().filter_map(|section| {
        let (flags, size) = (u64_at(bytes, section + 8)?, u64_at(bytes, section + 32)?);
        let is_shared =
            names.and_then(|at| name(bytes, *section, at)).is_some_and(|name| name.starts_with(SHARED_SECTION));
        (flags & SHF_ALLOC != 0 && !is_shared).then_some(size)
    });
    loaded.fold(0, u64::saturating_add)
}

/// Returns the name of the section whose header is at `section`, together with the rest of the file: enough to compare prefixes.
fn name(bytes: &[u8], section: usize, names: u64) -> Option<&[u8]> {
    let at = names.checked_add(u64::from(u32_at(bytes, section)?))?;
    bytes.get(usize::try_from(at).ok()?..)
}

/// Returns the offsets of the entries of a table. `offset`, `size` and `count` are the positions in the header of the table's offset, entry
/// size and entry count.
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

    /// Returns a cubin whose second section has this name and these flags; the third section contains the names.
    fn with_section(name: &str, flags: u64) -> Vec<u8> {
        let mut elf = vec![0_u8; 64 + 3 * 64];
        elf[..whole().len()].copy_from_slice(&whole());
        elf[60..62].copy_from_slice(&3_u16.to_le_bytes());
        elf[62..64].copy_from_slice(&2_u16.to_le_bytes());
        elf[128..132].copy_from_slice(&1_u32.to_le_bytes());
        elf[136..144].copy_from_slice(&flags.to_le_bytes());
        elf[192 + 24..192 + 32].copy_from_slice(&256_u64.to_le_bytes());
        elf.extend(format!("\0{name}\0").bytes());
        elf
    }

    #[test]
    fn variables_are_seen_by_their_sections() {
        assert!(!has_variables(&with_section(".text.f", 6)));
        assert!(!has_variables(&with_section(".nv.shared.f", 3)));
        assert!(!has_variables(&with_section(".nv.constant0.f", 2)));
        for (name, flags) in [(".nv.global", 3), (".nv.global.init", 3), (".nv.global", 0), (".data", 0), (".other", 3)]
        {
            assert!(has_variables(&with_section(name, flags)), "{name}");
        }
        assert!(has_variables(b"\x7fELF and no more"));
    }

    #[test]
    fn what_is_loaded_counts_and_nothing_else() {
        let sized = |name: &str, flags| {
            let mut elf = with_section(name, flags);
            elf[128 + 32..128 + 40].copy_from_slice(&1000_u64.to_le_bytes());
            loaded_bytes(&elf)
        };
        assert_eq!(sized(".text.f", 6), 1000);
        assert_eq!(sized(".nv.global", 3), 1000);
        assert_eq!(sized(".nv.shared.f", 3), 0, "a block's own");
        assert_eq!(sized(".debug_line", 0), 0, "stays in the file");
        assert_eq!(loaded_bytes(b"\x7fELF and no more"), 16);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_check_panic(mut bytes in prop::collection::vec(any::<u8>(), 64..300)) {
            bytes[..4].copy_from_slice(MAGIC);
            bytes[4..6].copy_from_slice(&CLASS_AND_DATA);
            bytes[18..20].copy_from_slice(&MACHINE_CUDA.to_le_bytes());
            let _ = check(&bytes);
            let _ = has_variables(&bytes);
            let _ = loaded_bytes(&bytes);
        }
    }
}
