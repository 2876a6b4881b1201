//! What a program may not have: more memory than its lease, and what belongs to others.

use std::sync::mpsc::{Receiver, channel};

use gpufleet_remote::{
    call_header::CallHeader,
    calls::{calls, index},
    codec::{Put, Reader},
    frame::{FrameKind, HEADER_BYTES, Header},
    greeting::Hello,
};
use gpufleet_session::{Limits, Session};

use crate::strangers::native;

const LEASE: u64 = 1 << 20;
const INVALID_VALUE: i32 = 1;
const OUT_OF_MEMORY: i32 = 2;
const CONTEXT_IS_DESTROYED: i32 = 709;
const INVALID_HANDLE: i32 = 400;

/// A program that sends its calls itself.
struct Program {
    session: Session,
    answers: Receiver<Vec<u8>>,
    context: u32,
}

impl Program {
    fn start() -> Self {
        let (frames, answers) = channel();
        let session = Session::start(native(), Limits { memory: LEASE }, &Hello::new(calls()), frames).unwrap();
        let mut program = Self { session, answers, context: 0 };
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
        let mut body = Vec::new();
        let (call, context) = (index(symbol), self.context);
        CallHeader { call, is_post: false, is_twin: false, context, thread: 1 }.put(&mut body);
        arguments(&mut body);
        self.session.take(FrameKind::Call, 1, body).unwrap();
        let is_answer =
            |frame: &Vec<u8>| Header::parse(frame.first_chunk().unwrap()).unwrap().kind == FrameKind::Answer;
        let answer = self.answers.iter().find(is_answer).unwrap();
        let mut reader = Reader::new(&answer[HEADER_BYTES..]);
        let (_, code, is_deferred) = (reader.u64().unwrap(), reader.i32().unwrap(), reader.flag().unwrap());
        assert!(!is_deferred);
        (code, reader.take(reader.remaining()).unwrap().to_vec())
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
    assert_eq!(program.session.memory_used(), LEASE / 2);
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
