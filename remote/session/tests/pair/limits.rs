//! What a program may not have: more memory than its lease, and what belongs to others.

use std::sync::{
    Arc,
    mpsc::{Receiver, sync_channel},
};

use gpufleet_remote::{
    call_header::CallHeader,
    calls::{calls, index},
    codec::{Put, Reader},
    frame::{FrameKind, HEADER_BYTES, Header},
    greeting::Hello,
    value::Value,
};
use gpufleet_session::{Counters, Limits, Session};
use gpufleet_surface::structs::{
    copy::{End, Volume},
    graph::AllocateParams,
};

use crate::strangers::native;

const LEASE: u64 = 1 << 20;
/// `CU_MEMORYTYPE_HOST` and `CU_MEMORYTYPE_UNIFIED`.
const HOST: u32 = 1;
const UNIFIED: u32 = 4;
const INVALID_VALUE: i32 = 1;
const OUT_OF_MEMORY: i32 = 2;
const CONTEXT_IS_DESTROYED: i32 = 709;
const INVALID_HANDLE: i32 = 400;

/// A program that sends its calls itself.
struct Program {
    session: Session,
    answers: Receiver<Vec<u8>>,
    counters: Arc<Counters>,
    context: u32,
}

impl Program {
    fn start() -> Self {
        let (frames, answers) = sync_channel(16);
        let counters = Arc::<Counters>::default();
        let (hello, limits) = (Hello::new(calls()), Limits { memory: LEASE });
        let session = Session::start(native(), limits, &hello, frames, Arc::clone(&counters)).unwrap();
        let mut program = Self { session, answers, counters, context: 0 };
        let (code, results) = program.ask("cuDevicePrimaryCtxRetain", |to| {
            to.flag(true);
            to.i32(0);
        });
        assert_eq!(code, 0);
        program.context = Reader::new(&results).u64().unwrap() as u32;
        program
    }

    /// Makes a call; the code and the results.
    fn ask(&mut self, symbol: &str, arguments: impl FnOnce(&mut Vec<u8>)) -> (i32, Vec<u8>) {
        let (kind, answer) = self.send(symbol, arguments);
        assert_eq!(kind, FrameKind::Answer);
        let mut reader = Reader::new(&answer[HEADER_BYTES..]);
        let (_, code, is_deferred) = (reader.u64().unwrap(), reader.i32().unwrap(), reader.flag().unwrap());
        assert!(!is_deferred);
        (code, reader.take(reader.remaining()).unwrap().to_vec())
    }

    /// Makes a call that returns a number; the number.
    fn make(&mut self, symbol: &str, arguments: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let (code, results) = self.ask(symbol, arguments);
        assert_eq!(code, 0, "{symbol}");
        Reader::new(&results).u64().unwrap()
    }

    /// Sends a call; the frame that answers it.
    fn send(&mut self, symbol: &str, arguments: impl FnOnce(&mut Vec<u8>)) -> (FrameKind, Vec<u8>) {
        let mut body = Vec::new();
        let (call, context) = (index(symbol), self.context);
        CallHeader { call, is_post: false, is_twin: false, context, thread: 1 }.put(&mut body);
        arguments(&mut body);
        self.session.take(FrameKind::Call, 1, body).unwrap();
        let kinds = self.answers.iter().map(|frame| (Header::parse(frame.first_chunk().unwrap()).unwrap().kind, frame));
        kinds.into_iter().find(|(kind, _)| matches!(kind, FrameKind::Answer | FrameKind::Bye)).unwrap()
    }

    fn graph(&mut self) -> u64 {
        self.make("cuGraphCreate", |to| {
            to.flag(true);
            to.u32(0);
        })
    }

    fn empty_node(&mut self, graph: u64) -> u64 {
        self.make("cuGraphAddEmptyNode", |to| {
            to.flag(true);
            to.u64(graph);
            to.flag(false);
            to.u64(0);
        })
    }

    fn alloc(&mut self, bytes: u64) -> Result<u64, i32> {
        match self.ask("cuMemAlloc_v2", |to| {
            to.flag(true);
            to.u64(bytes);
        }) {
            (0, results) => Ok(Reader::new(&results).u64().unwrap()),
            (code, _) => Err(code),
        }
    }

    fn free(&mut self, address: u64) -> i32 {
        self.ask("cuMemFree_v2", |to| to.u64(address)).0
    }

    /// Reads four bytes.
    fn read(&mut self, address: u64) -> i32 {
        let read = self.ask("cuMemcpyDtoH_v2", |to| {
            to.flag(true);
            to.u64(4);
            to.u64(address);
            to.u64(4);
        });
        read.0
    }
}

#[test]
fn a_byte_over_the_lease_is_out_of_memory_at_once() {
    let mut program = Program::start();
    let half = program.alloc(LEASE / 2).unwrap();
    let rest = program.alloc(LEASE / 2).unwrap();
    assert_eq!(program.alloc(1), Err(OUT_OF_MEMORY));
    assert_eq!(program.free(rest), 0);
    assert_eq!(program.alloc(LEASE / 2 + 1), Err(OUT_OF_MEMORY));
    assert!(program.alloc(LEASE / 2).is_ok());
    assert_eq!(program.free(half), 0);
    assert_eq!(program.counters.read().memory_bytes, LEASE / 2);
}

#[test]
fn a_session_tells_of_its_lease_and_not_of_the_device() {
    let mut program = Program::start();
    program.alloc(1000).unwrap();
    let (code, results) = program.ask("cuMemGetInfo_v2", |to| {
        to.flag(true);
        to.flag(true);
    });
    let mut reader = Reader::new(&results);
    assert_eq!((code, reader.u64(), reader.u64()), (0, Ok(LEASE - 1024), Ok(LEASE)));
}

#[test]
fn memory_of_another_session_is_refused() {
    let (mut one, mut other) = (Program::start(), Program::start());
    let address = one.alloc(4).unwrap();
    assert_eq!(one.read(address), 0);
    assert_eq!(other.read(address), INVALID_VALUE);
    assert_eq!(other.free(address), INVALID_VALUE);
    assert_eq!(one.free(address), 0);
    assert_eq!(one.read(address), INVALID_VALUE);
}

/// A copy of four bytes from an address, of which the driver may decide whose it is.
fn copy_from(device: u64, x: usize) -> Volume {
    let end = Volume::zero().from;
    let from = End { kind: UNIFIED, device, x, ..end };
    Volume { from, to: End { kind: HOST, ..end }, width: 4, height: 1, depth: 1 }
}

#[test]
fn memory_of_the_session_process_is_refused() {
    let mut program = Program::start();
    let own = program.alloc(64).unwrap();
    let secret = [7_u8; 4];
    let target = secret.as_ptr().expose_provenance() as u64;
    let offset = target.wrapping_sub(own) as usize;
    for volume in [copy_from(target, 0), copy_from(own, offset), copy_from(own, 61)] {
        let (code, results) = program.ask("cuMemcpy3D_v2", |to| {
            to.flag(true);
            volume.put(to);
        });
        assert_eq!((code, results.len()), (INVALID_VALUE, 0));
        let graph = program.graph();
        let volume = Volume { to: volume.from, ..volume };
        let (code, _) = program.ask("cuGraphAddMemcpyNode", |to| {
            to.flag(true);
            to.u64(graph);
            to.flag(false);
            to.u64(0);
            to.flag(true);
            volume.put(to);
            to.u64(0);
        });
        assert_eq!(code, INVALID_VALUE);
    }
    let (code, results) = program.ask("cuMemcpy3D_v2", |to| {
        to.flag(true);
        copy_from(own, 60).put(to);
    });
    assert_eq!((code, results.len()), (0, 4));
}

#[test]
fn a_node_that_is_refused_does_not_make_its_address_the_sessions() {
    let mut program = Program::start();
    let graph = program.graph();
    let (code, _) = program.ask("cuGraphAddMemAllocNode", |to| {
        to.flag(true);
        to.u64(graph);
        to.flag(false);
        to.u64(0);
        to.flag(true);
        // Memory of another kind than a device's is refused.
        AllocateParams { address: 0x1234_0000, bytes: 4096, ..AllocateParams::zero() }.put(to);
    });
    assert_eq!(code, INVALID_VALUE);
    assert_eq!(program.read(0x1234_0000), INVALID_VALUE);
    assert_eq!(program.counters.read().memory_bytes, 0);
}

#[test]
fn a_host_node_without_a_function_is_refused() {
    let mut program = Program::start();
    let graph = program.graph();
    let (code, _) = program.ask("cuGraphAddHostNode", |to| {
        to.flag(true);
        to.u64(graph);
        to.flag(false);
        to.u64(0);
        to.flag(true);
        to.u64(0);
        to.u64(0x4141_4141);
    });
    assert_eq!(code, INVALID_VALUE);
}

#[test]
fn a_count_that_is_not_that_of_the_array_ends_the_session() {
    let mut program = Program::start();
    let graph = program.graph();
    let node = program.empty_node(graph);
    let (kind, _) = program.send("cuGraphAddEmptyNode", |to| {
        to.flag(true);
        to.u64(graph);
        to.flag(true);
        to.u64(1);
        to.u64(node);
        to.u64(1_000_000);
    });
    assert_eq!(kind, FrameKind::Bye);
}

#[test]
fn results_never_exceed_the_smallest_room() {
    let mut program = Program::start();
    let graph = program.graph();
    let nodes = [program.empty_node(graph), program.empty_node(graph)];
    let (code, _) = program.ask("cuGraphAddDependencies", |to| {
        to.u64(graph);
        for node in nodes {
            to.flag(true);
            to.u64(1);
            to.u64(node);
        }
        to.u64(1);
    });
    assert_eq!(code, 0);
    let (code, results) = program.ask("cuGraphGetEdges", |to| {
        to.u64(graph);
        for room in [0, 65_536] {
            to.flag(true);
            to.u64(room);
        }
        to.flag(true);
        to.u64(65_536);
    });
    // No element of either list.
    let mut reader = Reader::new(&results);
    assert_eq!((code, reader.u64(), reader.u64()), (0, Ok(0), Ok(0)));
}

#[test]
fn handles_that_are_stale_guessed_or_of_another_session_are_refused() {
    let (mut one, mut other) = (Program::start(), Program::start());
    let (code, results) = one.ask("cuStreamCreate", |to| {
        to.flag(true);
        to.u32(0);
    });
    let stream = Reader::new(&results).u64().unwrap();
    assert_eq!(code, 0);
    let query = |program: &mut Program, stream: u64| program.ask("cuStreamQuery", |to| to.u64(stream)).0;
    assert_eq!(query(&mut one, stream), 0);
    // The other session has given out fewer numbers.
    assert_eq!(query(&mut other, stream), INVALID_HANDLE);
    assert_eq!(query(&mut one, 0xDEAD_BEEF), INVALID_HANDLE);
    assert_eq!(one.ask("cuStreamDestroy_v2", |to| to.u64(stream)).0, 0);
    assert_eq!(query(&mut one, stream), INVALID_HANDLE);
    // A stream is no context.
    one.context = stream as u32;
    assert_eq!(query(&mut one, 0), CONTEXT_IS_DESTROYED);
}
