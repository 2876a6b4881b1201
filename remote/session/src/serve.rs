//! Talks to one program over a stream of bytes.

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{Arc, mpsc::sync_channel},
    thread,
    time::Duration,
};

use gpufleet_remote::{
    call_header::CallHeader,
    calls::THREAD_ENDED,
    codec::Reader,
    frame::{FrameKind, HEADER_BYTES, Header, frame},
    greeting::{Hello, TOKEN_BYTES, TOKEN_END},
};

use crate::{
    counters::Counters,
    native::{Native, NativeError},
    session::{Limits, Session},
};

/// How long a program may take for its greeting.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum bytes of a greeting.
const GREETING_BYTES_MAX: usize = 64 << 10;

/// Maximum frames that wait to be read by the program. A program that does not read has its calls wait.
const FRAMES_MAX: usize = 16;

/// Closes the connection when it is dropped, although other threads may still have it.
struct HangUp(UnixStream);

impl Drop for HangUp {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Why a session did not start, or ended before its program had.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("the program's connection failed: {0}")]
    Connection(#[from] io::Error),
    #[error("what connected is no program of this lease")]
    Stranger,
    #[error("the program sent something that is not a call")]
    Malformed,
    #[error(transparent)]
    Native(#[from] NativeError),
}

/// Serves a program until it closes its connection. `counters` tell what it has done.
pub fn serve(
    native: Arc<Native>,
    limits: Limits,
    token: &[u8; TOKEN_BYTES],
    mut stream: UnixStream,
    counters: Arc<Counters>,
) -> Result<(), ServeError> {
    stream.set_read_timeout(Some(GREETING_TIMEOUT))?;
    let hello = greeting(&mut stream, token)?;
    stream.set_read_timeout(None)?;
    let (frames, written) = sync_channel::<Vec<u8>>(FRAMES_MAX);
    // However this ends, the program learns it.
    let _hang_up = HangUp(stream.try_clone()?);
    let mut output = stream.try_clone()?;
    let mut session = Session::start(native, limits, &hello, frames, counters)?;
    thread::Builder::new().name("session-writer".into()).spawn(move || {
        for frame in written {
            let is_last = frame.get(4) == Some(&(FrameKind::Bye as u8));
            if output.write_all(&frame).is_err() || is_last {
                break;
            }
        }
        // The reader learns it too.
        let _ = output.shutdown(Shutdown::Both);
    })?;
    let thread_ended = index_of(&hello, THREAD_ENDED);
    while let Some((header, body)) = read_frame(&mut stream)? {
        if header.kind == FrameKind::Bye {
            break;
        }
        let ended = CallHeader::take(&mut Reader::new(&body))
            .ok()
            .filter(|call| header.kind == FrameKind::Call && Some(call.call) == thread_ended);
        session.take(header.kind, header.sequence, body).map_err(|_| ServeError::Malformed)?;
        if let Some(CallHeader { thread, .. }) = ended {
            session.thread_ended(thread);
        }
    }
    Ok(())
}

/// Returns the program's number of a call.
fn index_of(hello: &Hello, symbol: &str) -> Option<u16> {
    hello.calls.iter().position(|named| named.symbol == symbol).and_then(|place| u16::try_from(place).ok())
}

/// Reads the greeting. Nothing after the token is read from a stranger.
fn greeting(stream: &mut UnixStream, token: &[u8; TOKEN_BYTES]) -> Result<Hello, ServeError> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header)?;
    let header = Header::parse(&header).map_err(|_| ServeError::Stranger)?;
    if header.kind != FrameKind::Hello || !(TOKEN_END..=GREETING_BYTES_MAX).contains(&header.length) {
        return Err(ServeError::Stranger);
    }
    let mut body = vec![0; TOKEN_END];
    stream.read_exact(&mut body)?;
    let given = body.first_chunk().and_then(|start| Hello::token(start).ok()).ok_or(ServeError::Stranger)?;
    if !is_same(&given, token) {
        let _ = stream.write_all(&frame(FrameKind::Reject, |_| {}));
        return Err(ServeError::Stranger);
    }
    body.resize(header.length, 0);
    stream.read_exact(&mut body[TOKEN_END..])?;
    Hello::parse(&body).map_err(|_| ServeError::Malformed)
}

/// Compares tokens in a time that does not depend on the bytes.
pub fn is_same(left: &[u8; TOKEN_BYTES], right: &[u8; TOKEN_BYTES]) -> bool {
    let difference = left.iter().zip(right).fold(0, |difference, (left, right)| difference | (left ^ right));
    std::hint::black_box(difference) == 0
}

/// Reads a frame; none if the program has closed the connection.
fn read_frame(stream: &mut UnixStream) -> Result<Option<(Header, Vec<u8>)>, ServeError> {
    let mut header = [0; HEADER_BYTES];
    match stream.read_exact(&mut header) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let header = Header::parse(&header).map_err(|_| ServeError::Malformed)?;
    let mut body = Vec::new();
    // The room grows with what arrives.
    stream.take(header.length as u64).read_to_end(&mut body)?;
    if body.len() < header.length { Ok(None) } else { Ok(Some((header, body))) }
}
