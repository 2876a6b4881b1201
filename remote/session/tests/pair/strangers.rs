//! What strangers and broken programs send: a session must end, or answer with a code, and never panic.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    sync::{Arc, OnceLock, mpsc::sync_channel},
    thread,
};

use gpufleet_remote::{
    call_header::CallHeader,
    calls::{calls, index},
    codec::Put,
    frame::{FrameKind, HEADER_BYTES, Header, frame},
    greeting::{Hello, TOKEN_BYTES},
};
use gpufleet_session::{
    Counters, Counts, Limits, Native, Session,
    serve::{ServeError, serve},
};

use crate::pair::built;

const TOKEN: [u8; TOKEN_BYTES] = [7; TOKEN_BYTES];
const LIMITS: Limits = Limits { memory: 1 << 20 };

/// An emulator of these tests alone, because they may make its device unusable.
pub fn native() -> Arc<Native> {
    static NATIVE: OnceLock<Arc<Native>> = OnceLock::new();
    Arc::clone(NATIVE.get_or_init(|| {
        let third = tempfile::tempdir().unwrap().keep().join("third.so");
        fs::copy(built("libgpufleet_emulator.so"), &third).unwrap();
        Arc::new(Native::load(&third).unwrap())
    }))
}

/// Serves a connection, of which the test has the other end. Returns what the program did.
fn served() -> (UnixStream, thread::JoinHandle<Result<Counts, ServeError>>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let native = native();
    let serve = move || {
        let counters = Arc::<Counters>::default();
        serve(native, LIMITS, &TOKEN, theirs, Arc::clone(&counters)).map(|()| counters.read())
    };
    (ours, thread::spawn(serve))
}

fn hello(token: [u8; TOKEN_BYTES]) -> Vec<u8> {
    let hello = Hello { token, ..Hello::new(calls()) };
    frame(FrameKind::Hello, |body| hello.put(body))
}

fn read_header(stream: &mut UnixStream) -> Option<Header> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).ok()?;
    let header = Header::parse(&header).unwrap();
    let mut body = vec![0; header.length];
    stream.read_exact(&mut body).ok()?;
    Some(header)
}

#[test]
fn a_wrong_token_is_rejected() {
    let (mut stream, serving) = served();
    stream.write_all(&hello([8; TOKEN_BYTES])).unwrap();
    assert_eq!(read_header(&mut stream).map(|header| header.kind), Some(FrameKind::Reject));
    assert!(matches!(serving.join().unwrap(), Err(ServeError::Stranger)));
}

#[test]
fn what_is_no_greeting_is_not_answered() {
    let long = frame(FrameKind::Hello, |body| body.resize(1 << 20, 0));
    for greeting in [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), long, frame(FrameKind::Call, |_| {})] {
        let (mut stream, serving) = served();
        // The session may have closed before all is written.
        let _ = stream.write_all(&greeting);
        assert!(serving.join().unwrap().is_err());
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty());
    }
}

#[test]
fn a_frame_that_is_no_call_ends_the_session() {
    for wrong in [
        frame(FrameKind::Welcome, |_| {}),
        frame(FrameKind::Call, |body| body.u16(1)),
        frame(FrameKind::Return, |_| {}),
        frame(FrameKind::Call, |body| header(u16::MAX).put(body)),
    ] {
        let (mut stream, serving) = served();
        stream.write_all(&hello(TOKEN)).unwrap();
        assert_eq!(read_header(&mut stream).map(|header| header.kind), Some(FrameKind::Welcome));
        stream.write_all(&wrong).unwrap();
        assert!(matches!(serving.join().unwrap(), Err(ServeError::Malformed)));
    }
}

#[test]
fn a_program_that_ends_leaves_nothing_behind() {
    let (mut stream, serving) = served();
    stream.write_all(&hello(TOKEN)).unwrap();
    assert_eq!(read_header(&mut stream).map(|header| header.kind), Some(FrameKind::Welcome));
    drop(stream);
    assert_eq!(serving.join().unwrap().unwrap(), Counts::default());
}

fn header(call: u16) -> CallHeader {
    CallHeader { call, is_post: false, is_twin: false, context: 0, thread: 1 }
}

/// Each call with arguments that are random bytes, of which many are small: so flags, lengths and numbers are often
/// what they could be. Arguments that make no sense end a session, so each call has one of its own.
#[test]
fn random_arguments_are_answered_or_end_the_session() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut ends = 0;
    for call in (0..20).flat_map(|_| calls()) {
        let (frames, sent) = sync_channel(16);
        let mut session = Session::start(native(), LIMITS, &Hello::new(calls()), frames, Arc::default()).unwrap();
        let mut body = Vec::new();
        header(index(call.symbol)).put(&mut body);
        let length = random.usize(..64);
        body.extend((0..length).map(|_| if random.bool() { random.u8(..3) } else { random.u8(..) }));
        session.take(FrameKind::Call, 1, body).unwrap();
        let kinds = sent.iter().map(|frame| Header::parse(frame.first_chunk().unwrap()).unwrap().kind);
        match kinds.into_iter().find(|kind| matches!(kind, FrameKind::Answer | FrameKind::Bye)) {
            Some(FrameKind::Bye) => ends += 1,
            answer => assert_eq!(answer, Some(FrameKind::Answer), "{}", call.symbol),
        }
    }
    // Neither all of them nor none: the bytes are good enough to reach the driver, and bad enough to be refused.
    let all = 20 * calls().len();
    assert!((all / 20..all).contains(&ends), "{ends} of {all} sessions ended");
}
