//! One call in the session: what its arguments found, and what it changes if it succeeds.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering};

use gpufleet_surface::{
    image::{CONTAINER_MAGIC, HEADER_BYTES, WRAPPER_MAGIC, container_bytes},
    status::{Answer, Status},
};

use crate::{
    codec::Malformed,
    host_call::{Caller, HostCall},
    jit::HeldJit,
    kinds::Kind,
    objects::{Objects, Removed},
};

/// The start of an object file.
const ELF_MAGIC: [u8; 4] = [0x7F, b'E', b'L', b'F'];

/// An address that no driver gives out.
const INVALID_ADDRESS: u64 = 0x10;

#[derive(Debug)]
pub struct Scope<'a> {
    objects: &'a Mutex<Objects>,
    caller: &'a Arc<dyn Caller>,
    /// The number of the current context, which owns new objects.
    context: u64,
    is_twin: bool,
    /// The objects that are arguments.
    seen: Vec<(Kind, u64)>,
    has_allocated: bool,
    /// The objects that are results.
    made: Vec<(Kind, u64)>,
    gone: Vec<(Kind, u64)>,
    freed: Vec<u64>,
    /// What the call destroys, from its start on.
    removed: Removed,
    /// The addresses that are arguments.
    addresses: Vec<u64>,
    /// Bytes that were charged for a new object.
    charged: u64,
    /// Bytes of new memory.
    pub new_bytes: u64,
    /// Bytes of a row of new memory.
    pub row_bytes: u64,
    /// The driver's handle of the call's stream.
    pub stream: Option<u64>,
    /// Memory that the driver may read after the call.
    pub buffers: Vec<Vec<u8>>,
    /// The driver reads memory of the session, perhaps after the call.
    pub reads_memory: bool,
    /// The driver writes into memory of the session, which must be complete before it is sent.
    pub returns_memory: bool,
    pub host_call: Option<Arc<HostCall>>,
    /// Options of a compilation: their numbers until the values are read, and the values after the call.
    pub jit_keys: Vec<u32>,
    pub jit: Option<HeldJit>,
    jit_count: Option<usize>,
    /// What the attribute is that the call asks for, if it is a handle.
    pub attribute: Option<Kind>,
    /// Elements of the arrays.
    array_length: Option<usize>,
    /// Room in the smallest of the lists for results.
    pub room: usize,
    /// Results in a list.
    pub filled: usize,
    /// The call succeeded.
    pub ok: bool,
}

impl<'a> Scope<'a> {
    /// `is_twin` says that null is the default stream of the calling thread.
    pub fn new(objects: &'a Mutex<Objects>, caller: &'a Arc<dyn Caller>, context: u64, is_twin: bool) -> Self {
        let (seen, made, gone, freed, removed, addresses, buffers, jit_keys) = Default::default();
        let (charged, new_bytes, row_bytes) = (0, 0, 0);
        let (stream, host_call, jit, jit_count, attribute) = (None, None, None, None, None);
        let (reads_memory, returns_memory, filled, ok) = (false, false, 0, false);
        Self {
            objects,
            caller,
            context,
            is_twin,
            seen,
            has_allocated: false,
            made,
            gone,
            freed,
            removed,
            addresses,
            charged,
            new_bytes,
            row_bytes,
            stream,
            buffers,
            reads_memory,
            returns_memory,
            host_call,
            jit_keys,
            jit,
            jit_count,
            attribute,
            array_length: None,
            room: usize::MAX,
            filled,
            ok,
        }
    }

    pub fn objects(&self) -> MutexGuard<'a, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the driver's handle of an argument.
    pub fn driver_handle(&mut self, kind: Kind, number: u64) -> Answer<u64> {
        let handle = if kind.has_meaning(number) { number } else { self.objects().handle(kind, number)? };
        self.seen.push((kind, number));
        if kind == Kind::Stream {
            // `CU_STREAM_PER_THREAD` is the same stream by another number.
            self.stream = Some(if handle == 0 && self.is_twin { 2 } else { handle });
        }
        Ok(handle)
    }

    /// Returns the number of a handle in a result.
    pub fn program_handle(&mut self, kind: Kind, handle: u64) -> u64 {
        if kind.has_meaning(handle) {
            return handle;
        }
        let owner = self.owner(kind);
        let charged = std::mem::take(&mut self.charged);
        let number = self.objects().register(kind, handle, owner, charged);
        self.made.push((kind, number));
        number
    }

    /// Says that the call destroys an object.
    pub fn destroys(&mut self, kind: Kind, number: u64) {
        self.gone.push((kind, number));
    }

    /// The driver is called now: what the call destroys is no longer there for others.
    pub fn begin(&mut self) {
        let mut objects = self.objects();
        for (kind, number) in &self.gone {
            objects.take_out(*kind, *number, &mut self.removed);
        }
        self.freed.iter().for_each(|address| objects.take_out_range(*address, &mut self.removed));
    }

    /// Reports whether the program would lose an object if it took the answer for a failure.
    pub fn changes_objects(&self) -> bool {
        !self.made.is_empty() || !self.gone.is_empty() || !self.freed.is_empty() || self.has_allocated
    }

    /// Says that the call frees memory; returns the address that the driver gets. If the memory is not the session's,
    /// that is an address which no driver gives out: null would be nothing to free.
    pub fn frees(&mut self, address: u64) -> u64 {
        if address != 0 && !self.objects().starts_range(address) {
            return INVALID_ADDRESS;
        }
        self.freed.push(address);
        address
    }

    /// Returns the address that the driver gets: null if it is not in memory of the session. So the driver refuses it
    /// whenever it would have used it.
    pub fn driver_address(&mut self, address: u64) -> u64 {
        self.addresses.push(address);
        if self.objects().owns(address) { address } else { 0 }
    }

    /// Takes bytes from the budget, for the object or the memory that the call creates.
    pub fn charge(&mut self, bytes: u64) -> Answer {
        self.new_bytes = bytes;
        self.charged += self.objects().charge(bytes)?;
        Ok(())
    }

    /// Adds the memory that the call created.
    pub fn allocated(&mut self, address: u64) {
        self.has_allocated = true;
        let charged = std::mem::take(&mut self.charged);
        self.objects().add_range(address, self.new_bytes, self.context, charged);
    }

    /// Adds memory that belongs to an argument.
    pub fn found(&mut self, address: u64, bytes: u64) {
        let owner = self.seen.first().map_or(self.context, |(_, number)| *number);
        let mut objects = self.objects();
        if !objects.starts_range(address) {
            objects.add_range(address, bytes, owner, 0);
        }
    }

    /// Refuses an image whose stated length is not its own, because a driver reads that many bytes.
    pub fn check_image(&self, image: &[u8]) -> Answer {
        if image.starts_with(&WRAPPER_MAGIC) {
            return Err(Status::InvalidImage);
        }
        if image.starts_with(&CONTAINER_MAGIC) {
            let header = image.first_chunk::<HEADER_BYTES>().ok_or(Status::InvalidImage)?;
            return if container_bytes(header) == image.len() as u64 { Ok(()) } else { Err(Status::InvalidImage) };
        }
        // A 64-bit object file states the places of its tables; a text ends at its NUL.
        if image.starts_with(&ELF_MAGIC) && !(image.get(4) == Some(&2) && elf_fits(image)) {
            Err(Status::InvalidImage)
        } else {
            Ok(())
        }
    }

    /// Says how many elements an array has, or the arrays of the call. The driver believes the number, so all must agree.
    pub fn array_length(&mut self, length: usize) -> Result<(), Malformed> {
        if *self.array_length.get_or_insert(length) == length { Ok(()) } else { Err(Malformed) }
    }

    /// Says how many options the call has; their number and their list must agree.
    pub fn jit_count(&mut self, count: usize) -> Result<(), Malformed> {
        if *self.jit_count.get_or_insert(count) == count { Ok(()) } else { Err(Malformed) }
    }

    /// Returns the function of the program that the call mentions.
    pub fn host_call(&mut self) -> &Arc<HostCall> {
        self.host_call.get_or_insert_with(|| HostCall::new(self.caller))
    }

    /// The driver calls the function only once.
    pub fn calls_back_once(&mut self) {
        if let Some(call) = &self.host_call {
            call.is_once.store(true, Ordering::Release);
        }
    }

    /// Returns the first argument of a kind.
    pub fn argument(&self, kind: Kind) -> Option<u64> {
        self.seen.iter().find(|(seen, _)| *seen == kind).map(|(_, number)| *number)
    }

    /// Returns the new object of a kind.
    pub fn made(&self, kind: Kind) -> Option<u64> {
        self.made.iter().find(|(made, _)| *made == kind).map(|(_, number)| *number)
    }

    /// The call mapped physical memory.
    pub fn remember_mapping(&self) {
        if let (Some(address), Some(physical)) = (self.addresses.first(), self.argument(Kind::PhysicalMemory)) {
            self.objects().mapped(*address, physical);
        }
    }

    /// The call ended mappings.
    pub fn forget_mappings(&self) {
        if let Some(address) = self.addresses.first() {
            self.objects().unmapped(*address, self.new_bytes);
        }
    }

    /// The call returned the device's primary context.
    pub fn remember_primary(&self) {
        if let Some(context) = self.made(Kind::Context) {
            self.objects().set_primary(context);
        }
    }

    /// The device's primary context, and all that it owned, was destroyed.
    pub fn forget_primary(&self) {
        self.objects().remove_primary();
    }

    /// Ends the call: forgets what it destroyed, and gives back what it did not use of the budget.
    pub fn finish(self) {
        let mut objects = self.objects();
        objects.give_back(self.charged);
        if self.ok {
            objects.forget(self.removed);
        } else {
            objects.put_back(self.removed);
        }
    }

    /// Returns the object that destroys a new object with itself: the one from which the call got it, or the context.
    fn owner(&self, kind: Kind) -> u64 {
        let argument = |wanted: &[Kind]| {
            self.seen.iter().find(|(kind, number)| wanted.contains(kind) && *number != 0).map(|(_, number)| *number)
        };
        let owner = match kind {
            Kind::GraphNode => argument(&[Kind::Graph]).or_else(|| {
                let node = argument(&[Kind::GraphNode])?;
                Some(self.objects().owner(node))
            }),
            Kind::Graph => argument(&[Kind::GraphNode]),
            Kind::Function => argument(&[Kind::Module, Kind::Kernel]),
            Kind::Kernel => argument(&[Kind::Library]),
            Kind::TextureReference | Kind::SurfaceReference => argument(&[Kind::Module]),
            Kind::Module => argument(&[Kind::Library]).or(Some(self.context)),
            Kind::Array => argument(&[Kind::MipmappedArray]).or(Some(self.context)),
            Kind::Context
            | Kind::GraphExec
            | Kind::UserObject
            | Kind::Library
            | Kind::PhysicalMemory
            | Kind::Pool
            | Kind::GreenContext => None,
            _ => Some(self.context),
        };
        owner.unwrap_or(0)
    }
}

/// Reports whether the tables that the header of an object file names lie in the file.
fn elf_fits(image: &[u8]) -> bool {
    let u64_at = |at: usize| image.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    let u16_at = |at: usize| image.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map(u16::from_le_bytes);
    // Of a 64-bit header: the place of a table, the size of its elements and their number.
    let fits = |place: usize, size: usize, count: usize| {
        let bytes = u64::from(u16_at(size)?) * u64::from(u16_at(count)?);
        Some(u64_at(place)?.checked_add(bytes)? <= image.len() as u64)
    };
    fits(32, 54, 56) == Some(true) && fits(40, 58, 60) == Some(true)
}
