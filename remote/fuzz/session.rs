//! The libFuzzer target: any bytes are refused or answered by both ends of a session, without a panic.
//!
//! The first byte of an input chooses what reads the rest: the decoder of frames, that of greetings and welcomes, or a live session over
//! the driver that `FUZZ_DRIVER` names. For a session, the rest is a list of calls, each with its number, its class, the length of
//! its arguments and these.
#![no_main]

use std::{
    env,
    sync::{
        Arc, OnceLock,
        mpsc::{Receiver, sync_channel},
    },
};

use gpufleet_remote::{
    call_header::CallHeader,
    calls::{THREAD_ENDED, calls, index},
    frame::{FrameKind, HEADER_BYTES, Header},
    greeting::{Hello, Welcome},
};
use gpufleet_session::{Limits, Native, Session, counters::Counters};
use libfuzzer_sys::fuzz_target;

/// Device memory of a session in bytes.
const LIMITS: Limits = Limits { memory: 1 << 20 };
/// Maximum calls of an input. More would only repeat what few do.
const CALLS_MAX: u64 = 16;
/// Frames that a session may send before it would wait for a reader.
const FRAMES_MAX: usize = 1 << 10;

fuzz_target!(|data: &[u8]| {
    let Some((choice, rest)) = data.split_first() else { return };
    match choice % 4 {
        0 => frames(rest),
        1 => greetings(rest),
        _ => session(rest),
    }
});

fn frames(data: &[u8]) {
    for bytes in data.windows(HEADER_BYTES).filter_map(<[u8]>::first_chunk) {
        let _ = Header::parse(bytes);
    }
}

fn greetings(data: &[u8]) {
    let _ = Hello::parse(data);
    let _ = Welcome::parse(data);
}

/// Makes the calls, and waits for the answers of those that have one. A panic in a thread of the session ends this process.
fn session(data: &[u8]) {
    let (frames, sent) = sync_channel(FRAMES_MAX);
    let Ok(mut session) = Session::start(native(), LIMITS, &Hello::new(calls()), frames, Arc::<Counters>::default())
    else {
        return;
    };
    let (mut rest, mut sequence) = (data, 0);
    while let Some(([low, high, class, length], after)) = rest.split_first_chunk()
        && sequence < CALLS_MAX
    {
        let arguments = &after[..usize::from(*length).min(after.len())];
        rest = &after[arguments.len()..];
        sequence += 1;
        let call = u16::from_le_bytes([*low, *high]) % calls().len() as u16;
        let (is_post, is_twin) = (class & 1 != 0, class & 2 != 0);
        let header = CallHeader { call, is_post, is_twin, context: u32::from(class >> 4), thread: 1 };
        if session.take(FrameKind::Call, sequence, body(header, arguments)).is_err() {
            return;
        }
        if !is_post && !is_answered(&sent) {
            return;
        }
    }
    // Waits for the posts.
    let header = CallHeader { call: index(THREAD_ENDED), is_post: false, is_twin: false, context: 0, thread: 1 };
    if session.take(FrameKind::Call, sequence + 1, body(header, &[])).is_ok() {
        is_answered(&sent);
    }
}

fn body(header: CallHeader, arguments: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    header.put(&mut body);
    body.extend(arguments);
    body
}

/// Waits for an answer. Returns false if there will be none, because the session has ended or wants the program to run a function.
fn is_answered(sent: &Receiver<Vec<u8>>) -> bool {
    let kind =
        |frame: Vec<u8>| frame.first_chunk().and_then(|header| Header::parse(header).ok()).map(|header| header.kind);
    let ends = [FrameKind::Answer, FrameKind::Bye, FrameKind::Callback];
    sent.iter().filter_map(kind).find(|kind| ends.contains(kind)) == Some(FrameKind::Answer)
}

fn native() -> Arc<Native> {
    static NATIVE: OnceLock<Arc<Native>> = OnceLock::new();
    let load = || {
        std::panic::set_hook(Box::new(|info| {
            eprintln!("{info}");
            std::process::abort();
        }));
        let driver = env::var_os("FUZZ_DRIVER").expect("FUZZ_DRIVER names the driver's library");
        Arc::new(Native::load(driver.as_ref()).expect("the driver loads"))
    };
    Arc::clone(NATIVE.get_or_init(load))
}
