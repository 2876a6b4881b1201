//! Which programs an executor holds. The supervisor decides, and the executor obeys: there is nothing to fall out of step.

use std::collections::HashMap;

use crate::ipc::message::Image;

/// Loaded modules on one device. Each costs device memory; a fleet's daily set of kernels is smaller than this.
const PROGRAMS_MAX: usize = 128;

/// What identifies a program: a hash of its kind and its code. The device, and with it the architecture, is the executor's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key(blake3::Hash);

/// Code that is sent if the executor does not have it yet.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Code<'a> {
    Ptx(&'a str),
    Cubin(&'a [u8]),
}

/// The programs that one executor was told, the least recently used ones forgotten first.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    known: HashMap<Key, Known>,
    next_id: u32,
    clock: u64,
}

#[derive(Debug)]
struct Known {
    id: u32,
    used: u64,
    /// Jobs in flight that name it. It is not forgotten before they have ended.
    jobs: u32,
}

/// What has to be said before a job may name its program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub id: u32,
    pub is_new: bool,
    pub forget: Option<u32>,
}

impl Code<'_> {
    pub(crate) fn key(self) -> Key {
        let mut hasher = blake3::Hasher::new();
        match self {
            Self::Ptx(text) => hasher.update(b"ptx\0").update(text.as_bytes()),
            Self::Cubin(bytes) => hasher.update(b"cubin\0").update(bytes),
        };
        Key(hasher.finalize())
    }

    pub(crate) fn image(self) -> Image {
        match self {
            Self::Ptx(text) => Image::Ptx(text.to_owned()),
            Self::Cubin(bytes) => Image::Cubin(bytes.to_vec()),
        }
    }
}

impl Programs {
    /// A job names this program until [`Programs::release`].
    pub(crate) fn claim(&mut self, key: Key) -> Claim {
        self.clock += 1;
        if let Some(known) = self.known.get_mut(&key) {
            known.used = self.clock;
            known.jobs += 1;
            return Claim { id: known.id, is_new: false, forget: None };
        }
        let forget = if self.known.len() >= PROGRAMS_MAX { self.forget_oldest() } else { None };
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        self.known.insert(key, Known { id, used: self.clock, jobs: 1 });
        Claim { id, is_new: true, forget }
    }

    pub(crate) fn release(&mut self, key: Key) {
        if let Some(known) = self.known.get_mut(&key) {
            known.jobs = known.jobs.saturating_sub(1);
        }
    }

    /// Takes back the claim of a new program that could not be sent.
    pub(crate) fn withdraw(&mut self, key: Key) {
        self.known.remove(&key);
    }

    fn forget_oldest(&mut self) -> Option<u32> {
        let idle = self.known.iter().filter(|(_, known)| known.jobs == 0);
        let oldest = *idle.min_by_key(|(_, known)| known.used)?.0;
        self.known.remove(&oldest).map(|known| known.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        Code::Ptx(&number.to_string()).key()
    }

    #[test]
    fn the_same_code_is_sent_once() {
        let mut programs = Programs::default();
        assert_eq!(programs.claim(key(1)), Claim { id: 0, is_new: true, forget: None });
        assert_eq!(programs.claim(key(1)), Claim { id: 0, is_new: false, forget: None });
        assert_eq!(programs.claim(key(2)), Claim { id: 1, is_new: true, forget: None });
    }

    #[test]
    fn a_full_table_forgets_the_oldest_idle_program_and_never_one_in_use() {
        let mut programs = Programs::default();
        for number in 0..PROGRAMS_MAX {
            programs.claim(key(number));
            if number != 0 {
                programs.release(key(number));
            }
        }
        assert_eq!(programs.claim(key(1000)).forget, Some(1), "program 0 still runs");
        assert!(programs.claim(key(1)).is_new);
    }
}
