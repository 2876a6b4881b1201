//! Tracks which programs an executor holds. Only the supervisor decides this, so both sides always agree.

use std::{collections::HashMap, sync::LazyLock};

use gpufleet_schema::Program;
use lru::LruCache;

use super::{cubin, ptx};
use crate::{compiler::Compiled, ipc::message::Image};

/// Maximum number of programs on one device. Each module takes device memory, and a fleet usually has fewer kernels.
const PROGRAMS_MAX: usize = 128;
/// Maximum size of the code of all programs, in bytes. The executor keeps it in host memory; a typical program has some tens of kilobytes.
const CODE_BYTES_MAX: usize = 256 << 20;

/// The driver function that `printf` in CUDA C calls, as named in PTX and in the symbols of a cubin.
const PRINT_FUNCTION: &str = "vprintf";

/// Identifies a program by a hash of its kind and code. The architecture is not part of it, because an executor has only one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProgramKey(blake3::Hash);

/// The keys of the catalog's kernels, whose PTX never changes.
static CATALOG_KEYS: LazyLock<HashMap<&str, ProgramKey>> = LazyLock::new(|| {
    gpufleet_kernels::catalog().iter().map(|kernel| (kernel.name.as_str(), Code::Ptx(kernel.ptx()).key())).collect()
});

impl ProgramKey {
    /// Returns the key of a program, given its code.
    pub(crate) fn of(program: &Program<'_>, code: Code<'_>) -> Self {
        let known = if let Program::Catalog(name) = program { CATALOG_KEYS.get(&**name).copied() } else { None };
        known.unwrap_or_else(|| code.key())
    }
}

/// The code of a program, sent if the executor does not have it yet.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Code<'a> {
    Ptx(&'a str),
    Cubin(&'a [u8]),
    Both { cubin: &'a [u8], ptx: &'a str },
}

/// The programs that one executor holds. The least recently used are evicted first.
#[derive(Debug)]
pub(crate) struct KnownPrograms {
    known: LruCache<ProgramKey, Known>,
    code_bytes: usize,
    next_id: u32,
}

#[derive(Debug)]
struct Known {
    id: u32,
    bytes: usize,
    /// Number of jobs in flight that use it. A program in use is not evicted.
    jobs: u32,
}

/// A program in use by a job, and the messages that the executor must get before the job.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProgramLease {
    pub id: u32,
    pub is_new: bool,
    pub forget: Vec<u32>,
}

impl<'a> Code<'a> {
    /// Returns the compiled cubin with its PTX, or the PTX alone if there is no cubin.
    pub(crate) fn of(compiled: &'a Compiled) -> Self {
        match &compiled.cubin {
            Some(cubin) => Self::Both { cubin, ptx: &compiled.ptx },
            None => Self::Ptx(&compiled.ptx),
        }
    }

    pub(crate) fn key(self) -> ProgramKey {
        let mut hasher = blake3::Hasher::new();
        match self {
            Self::Ptx(text) => hasher.update(b"ptx\0").update(text.as_bytes()),
            Self::Cubin(bytes) => hasher.update(b"cubin\0").update(bytes),
            // One compiler makes both from one source, so an equal cubin means equal PTX.
            Self::Both { cubin, .. } => hasher.update(b"both\0").update(cubin),
        };
        ProgramKey(hasher.finalize())
    }

    pub(crate) fn image(self) -> Image {
        match self {
            Self::Ptx(text) => Image::Ptx(text.to_owned()),
            Self::Cubin(bytes) => Image::Cubin(bytes.to_vec()),
            Self::Both { cubin, ptx } => Image::Both { cubin: cubin.to_vec(), ptx: ptx.to_owned() },
        }
    }

    /// Returns the device memory of the program's module, in bytes. PTX declares the size of its variables; its instructions are estimated
    /// to be as long as the text. If there is a cubin, its size counts, because the cubin is loaded.
    pub(crate) fn device_bytes(self) -> u64 {
        match self {
            Self::Ptx(text) => ptx::declarations(text).variable_bytes.saturating_add(text.len() as u64),
            Self::Cubin(bytes) | Self::Both { cubin: bytes, .. } => cubin::loaded_bytes(bytes),
        }
    }

    /// Returns whether the program's kernels can print. Every `printf` calls the device function `vprintf`, which the program has to name;
    /// one that names it for another reason counts too. For a compiled source the PTX decides, because the cubin makes the same calls.
    pub(crate) fn prints(self) -> bool {
        match self {
            Self::Ptx(text) | Self::Both { ptx: text, .. } => text.contains(PRINT_FUNCTION),
            Self::Cubin(bytes) => bytes.windows(PRINT_FUNCTION.len()).any(|name| name == PRINT_FUNCTION.as_bytes()),
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Ptx(text) => text.len(),
            Self::Cubin(bytes) => bytes.len(),
            Self::Both { cubin, ptx } => cubin.len() + ptx.len(),
        }
    }
}

impl Image {
    pub(crate) fn code(&self) -> Code<'_> {
        match self {
            Self::Ptx(text) => Code::Ptx(text),
            Self::Cubin(bytes) => Code::Cubin(bytes),
            Self::Both { cubin, ptx } => Code::Both { cubin, ptx },
        }
    }
}

impl Default for KnownPrograms {
    fn default() -> Self {
        Self { known: LruCache::unbounded(), code_bytes: 0, next_id: 0 }
    }
}

impl KnownPrograms {
    /// Marks the program as in use until [`KnownPrograms::release`]. Evictions precede the new program. Programs in use are not evicted, so
    /// they may exceed the bounds, but never by much.
    pub(crate) fn acquire(&mut self, key: ProgramKey, code: Code<'_>) -> ProgramLease {
        if let Some(known) = self.known.get_mut(&key) {
            known.jobs += 1;
            return ProgramLease { id: known.id, is_new: false, forget: Vec::new() };
        }
        let bytes = code.bytes();
        let mut forget = Vec::new();
        while self.known.len() >= PROGRAMS_MAX || self.code_bytes + bytes > CODE_BYTES_MAX {
            let Some(oldest) = self.forget_oldest() else { break };
            forget.push(oldest);
        }
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        self.code_bytes += bytes;
        self.known.put(key, Known { id, bytes, jobs: 1 });
        ProgramLease { id, is_new: true, forget }
    }

    pub(crate) fn release(&mut self, key: ProgramKey) {
        if let Some(known) = self.known.peek_mut(&key) {
            known.jobs = known.jobs.saturating_sub(1);
        }
    }

    /// Removes a new program that could not be sent.
    pub(crate) fn withdraw(&mut self, key: ProgramKey) {
        self.remove(key);
    }

    fn forget_oldest(&mut self) -> Option<u32> {
        let (oldest, _) = self.known.iter().rev().find(|(_, known)| known.jobs == 0)?;
        self.remove(*oldest)
    }

    fn remove(&mut self, key: ProgramKey) -> Option<u32> {
        let known = self.known.pop(&key)?;
        self.code_bytes -= known.bytes;
        Some(known.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acquire(programs: &mut KnownPrograms, number: usize) -> ProgramLease {
        let text = number.to_string();
        let code = Code::Ptx(&text);
        programs.acquire(code.key(), code)
    }

    fn release(programs: &mut KnownPrograms, number: usize) {
        programs.release(Code::Ptx(&number.to_string()).key());
    }

    #[test]
    fn the_same_code_is_sent_once() {
        let mut programs = KnownPrograms::default();
        assert_eq!(acquire(&mut programs, 1), ProgramLease { id: 0, is_new: true, forget: vec![] });
        assert_eq!(acquire(&mut programs, 1), ProgramLease { id: 0, is_new: false, forget: vec![] });
        assert_eq!(acquire(&mut programs, 2), ProgramLease { id: 1, is_new: true, forget: vec![] });
    }

    #[test]
    fn a_full_table_forgets_the_oldest_idle_program_and_never_one_in_use() {
        let mut programs = KnownPrograms::default();
        for number in 0..PROGRAMS_MAX {
            acquire(&mut programs, number);
            if number != 0 {
                release(&mut programs, number);
            }
        }
        assert_eq!(acquire(&mut programs, 1000).forget, [1], "program 0 still runs");
        assert!(acquire(&mut programs, 1).is_new);
    }

    #[test]
    fn large_programs_are_bounded_by_their_bytes() {
        let mut programs = KnownPrograms::default();
        let quarter = "x".repeat(CODE_BYTES_MAX / 4);
        let large = Code::Ptx(&quarter);
        let keys: Vec<ProgramKey> = (0..4).map(|number| Code::Ptx(&number.to_string()).key()).collect();
        for (id, key) in (0..).zip(&keys) {
            assert_eq!(programs.acquire(*key, large), ProgramLease { id, is_new: true, forget: vec![] });
        }
        keys[..3].iter().for_each(|key| programs.release(*key));
        let half = "y".repeat(CODE_BYTES_MAX / 2);
        assert_eq!(programs.acquire(Code::Ptx("another").key(), Code::Ptx(&half)).forget, [0, 1]);
    }

    #[test]
    fn a_program_that_names_the_function_may_print() {
        let prints = "{ call.uni (retval0), vprintf, (param0, param1); }";
        assert!(Code::Ptx(prints).prints() && Code::Cubin(b"\x7fELF\0vprintf\0").prints());
        assert!(Code::Both { cubin: b"code", ptx: prints }.prints());
        assert!(!Code::Ptx(".entry print()").prints() && !Code::Cubin(b"\x7fELF\0printf\0").prints());
        for kernel in gpufleet_kernels::catalog().iter() {
            assert!(!Code::Ptx(kernel.ptx()).prints(), "{}", kernel.name);
        }
    }

    #[test]
    fn a_catalog_kernel_has_the_key_of_its_code() {
        for kernel in gpufleet_kernels::catalog().iter() {
            let code = Code::Ptx(kernel.ptx());
            assert_eq!(ProgramKey::of(&Program::Catalog(kernel.name.as_str().into()), code), code.key());
        }
        let ptx = Code::Ptx("saxpy");
        assert_eq!(ProgramKey::of(&Program::Ptx("saxpy".into()), ptx), ptx.key());
    }

    #[test]
    fn a_compiled_program_is_known_by_its_kind_too() {
        let both = Code::Both { cubin: b"code", ptx: "text" };
        assert_ne!(both.key(), Code::Cubin(b"code").key());
        assert_ne!(both.key(), Code::Ptx("text").key());
    }
}
