//! The connection to the session. Any thread writes calls; one thread reads answers and hands each to the thread that
//! waits for it.

use std::{
    collections::HashMap,
    io::{self, ErrorKind, Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use gpufleet_remote::{
    call_header::CallHeader,
    calls::{self, THREAD_ENDED, calls},
    codec::{Malformed, Put, Reader},
    frame::{CALL_BYTES_MAX, FrameKind, HEADER_BYTES, Header, PIECE_BYTES, WINDOW_BYTES, finish, frame, start},
    greeting::{Hello, Welcome},
};
use gpufleet_surface::status::{Answer, Status};

use crate::{
    boundary, callbacks, messages,
    session::{link, link_if_open},
    threads,
};

/// The variable that makes every call wait for its answer.
const SYNCHRONOUS: &str = "GPUFLEET_SESSION_SYNC";

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum LinkError {
    Connection(io::Error),
    /// The other side is no session of this version, or has closed the connection because the run has as many processes as sessions.
    Refused,
}

impl std::fmt::Display for LinkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connection(error) => write!(f, "can't be reached: {error}"),
            Self::Refused => write!(f, "refused this process"),
        }
    }
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => Self::Refused,
            _ => Self::Connection(error),
        }
    }
}

pub(crate) struct Link {
    output: Mutex<Output>,
    waiting: Mutex<Waiting>,
    window: Window,
    /// Each call is waited for, so that one that fails is known at once.
    is_synchronous: bool,
}

struct Output {
    stream: UnixStream,
    /// The number of the last call.
    sequence: u64,
}

/// Backpressure for posts.
#[derive(Default)]
struct Window {
    bytes: Mutex<WindowBytes>,
    changed: Condvar,
}

#[derive(Default)]
struct WindowBytes {
    sent: u64,
    acknowledged: u64,
    is_over: bool,
}

impl Window {
    /// Waits until the window has room, then counts the bytes of a post.
    fn enter(&self, bytes: usize) -> Answer {
        let fits = |window: &WindowBytes| window.is_over || window.sent - window.acknowledged <= WINDOW_BYTES;
        let window = lock(&self.bytes);
        let mut window =
            self.changed.wait_while(window, |window| !fits(window)).unwrap_or_else(PoisonError::into_inner);
        window.sent += bytes as u64;
        if window.is_over { Err(Status::DeviceUnavailable) } else { Ok(()) }
    }

    /// The session has made posts with this many bytes in all.
    fn acknowledge(&self, bytes: u64) {
        let mut window = lock(&self.bytes);
        // A faulty session must not make the difference negative.
        window.acknowledged = bytes.min(window.sent);
        self.changed.notify_all();
    }

    fn close(&self) {
        lock(&self.bytes).is_over = true;
        self.changed.notify_all();
    }
}

/// The threads that wait for answers, by the sequence numbers of their calls.
#[derive(Default)]
struct Waiting {
    slots: HashMap<u64, Arc<Slot>>,
    /// The connection has ended: no answer will come.
    is_over: bool,
}

/// The answer to a call; `None` inside if the connection ended first.
#[derive(Default)]
struct Slot {
    answer: Mutex<Option<Option<Vec<u8>>>>,
    filled: Condvar,
}

impl Slot {
    fn fill(&self, answer: Option<Vec<u8>>) {
        *lock(&self.answer) = Some(answer);
        self.filled.notify_one();
    }

    fn wait(&self) -> Option<Vec<u8>> {
        let answer = lock(&self.answer);
        let mut answer =
            self.filled.wait_while(answer, |answer| answer.is_none()).unwrap_or_else(PoisonError::into_inner);
        answer.take().flatten()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Connects, exchanges greetings, and starts to read.
    pub(crate) fn open(path: &Path) -> Result<(Arc<Self>, Welcome), LinkError> {
        let mut stream = UnixStream::connect(path)?;
        write(&stream, &frame(FrameKind::Hello, |body| Hello::new(calls()).put(body)))?;
        let (header, body) = read_frame(&mut stream)?.ok_or(LinkError::Refused)?;
        if header.kind != FrameKind::Welcome {
            return Err(LinkError::Refused);
        }
        let welcome = Welcome::parse(&body).map_err(|_| LinkError::Refused)?;
        let input = stream.try_clone()?;
        let output = Mutex::new(Output { stream, sequence: 0 });
        let is_synchronous = std::env::var_os(SYNCHRONOUS).is_some_and(|value| value == "1");
        let link = Arc::new(Self { output, waiting: Mutex::default(), window: Window::default(), is_synchronous });
        let reader = thread::Builder::new().name("gpufleet-session".into());
        without_signals(|| {
            let link = Arc::clone(&link);
            reader.spawn(move || link.read(input))
        })?;
        Ok((link, welcome))
    }

    /// Sends a call, and returns the slot of its answer if one will come.
    fn send(&self, mut call: Vec<u8>, is_answered: bool) -> Answer<Option<Arc<Slot>>> {
        let arguments = call.len() - HEADER_BYTES - CallHeader::BYTES;
        let slot = is_answered.then(Arc::<Slot>::default);
        let mut output = lock(&self.output);
        let lost = |_| Status::DeviceUnavailable;
        if arguments > PIECE_BYTES {
            let tail = call.split_off(HEADER_BYTES + CallHeader::BYTES);
            for piece in tail.chunks(PIECE_BYTES) {
                write(&output.stream, &frame(FrameKind::Piece, |body| body.extend_from_slice(piece))).map_err(lost)?;
            }
        }
        output.sequence += 1;
        let sequence = output.sequence;
        if let Some(slot) = &slot {
            let mut waiting = lock(&self.waiting);
            if waiting.is_over {
                return Err(Status::DeviceUnavailable);
            }
            waiting.slots.insert(sequence, Arc::clone(slot));
        }
        finish(&mut call, sequence);
        write(&output.stream, &call).map_err(lost)?;
        Ok(slot)
    }

    /// Says that a function of the program has returned.
    pub(crate) fn returned(&self, call: u64) {
        // A failed write means that the session has ended, and its callback with it.
        let _ = write(&lock(&self.output).stream, &frame(FrameKind::Return, |body| body.u64(call)));
    }

    fn answered(&self, answer: Vec<u8>) {
        let Ok(sequence) = Reader::new(&answer).u64() else { return };
        let slot = lock(&self.waiting).slots.remove(&sequence);
        if let Some(slot) = slot {
            slot.fill(Some(answer));
        }
    }

    /// Reads until the connection ends.
    fn read(&self, mut stream: UnixStream) {
        while let Ok(Some((header, body))) = read_frame(&mut stream) {
            match header.kind {
                FrameKind::Answer => self.answered(body),
                FrameKind::Ack => {
                    let Ok(bytes) = Reader::new(&body).u64() else { break };
                    self.window.acknowledge(bytes);
                }
                FrameKind::Callback => callbacks::take(&body),
                FrameKind::Printed => {
                    let mut stdout = io::stdout().lock();
                    // The program's own writes show errors.
                    let _ = stdout.write_all(&body).and_then(|()| stdout.flush());
                }
                _ => break,
            }
        }
        self.close();
    }

    /// No answer will come any more.
    fn close(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.is_over = true;
        waiting.slots.drain().for_each(|(_, slot)| slot.fill(None));
        self.window.close();
    }
}

/// Makes a call and waits for its answer. `receive` gets the results; the flag says whether the call succeeded.
pub(crate) fn ask(
    call: u16,
    send: impl FnOnce(&mut Vec<u8>) -> Answer,
    receive: impl FnOnce(bool, &mut Reader<'_>) -> Result<(), Malformed>,
) -> Answer {
    let slot = link()?.send(message(call, false, send)?, true)?;
    let Some(answer) = slot.and_then(|slot| slot.wait()) else {
        messages::once("the session has ended; its device is not available any more");
        return Err(Status::DeviceUnavailable);
    };
    let answer = open(&answer, receive);
    answer.unwrap_or(Err(Status::Unknown))
}

/// Makes a call and does not wait for it. If it fails, the next answer says so.
pub(crate) fn post(
    call: u16,
    send: impl FnOnce(&mut Vec<u8>) -> Answer,
    receive: impl FnOnce(bool, &mut Reader<'_>) -> Result<(), Malformed>,
) -> Answer {
    let link = link()?;
    if link.is_synchronous {
        return ask(call, send, receive);
    }
    let message = message(call, true, send)?;
    link.window.enter(message.len() - HEADER_BYTES)?;
    link.send(message, false).map(drop)
}

/// Reads an answer.
fn open(
    answer: &[u8],
    receive: impl FnOnce(bool, &mut Reader<'_>) -> Result<(), Malformed>,
) -> Result<Answer, Malformed> {
    let mut reader = Reader::new(answer);
    let (_sequence, code) = (reader.u64()?, reader.i32()?);
    let deferred = if reader.flag()? { Some((reader.u64()?, reader.u16()?, reader.i32()?)) } else { None };
    // A call that was refused by the session itself has no results.
    if reader.remaining() > 0 {
        receive(code == 0, &mut reader)?;
        reader.end()?;
    }
    if let Some((_, call, code)) = deferred {
        let symbol = calls::calls().get(usize::from(call)).map_or("a call", |call| call.symbol);
        messages::once(&format!("{symbol} failed earlier with the code {code}; this call reports it"));
        return Ok(status(code));
    }
    Ok(status(code))
}

fn status(code: i32) -> Answer {
    match code {
        0 => Ok(()),
        code => Err(Status::from_code(code).unwrap_or(Status::Unknown)),
    }
}

fn message(call: u16, is_post: bool, send: impl FnOnce(&mut Vec<u8>) -> Answer) -> Answer<Vec<u8>> {
    let mut message = start(FrameKind::Call);
    let context = threads::context().unwrap_or(0) as u32;
    CallHeader { call, is_post, is_twin: boundary::is_twin(), context, thread: threads::number() }.put(&mut message);
    send(&mut message)?;
    if message.len() > CALL_BYTES_MAX { Err(Status::OutOfMemory) } else { Ok(message) }
}

/// Says that a thread of the program has ended.
pub(crate) fn thread_ended(thread: u32) {
    let Some(link) = link_if_open() else { return };
    let mut message = start(FrameKind::Call);
    let call = calls::index(THREAD_ENDED);
    CallHeader { call, is_post: true, is_twin: false, context: 0, thread }.put(&mut message);
    // If the session has gone, so have its threads.
    let _ = link.send(message, false);
}

/// Writes all bytes. A closed connection is an error; SIGPIPE would end the program.
fn write(stream: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the bytes are readable, and the stream is open.
        let sent = unsafe { libc::send(stream.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        match usize::try_from(sent) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// Reads a frame; none if the connection has ended.
fn read_frame(stream: &mut UnixStream) -> io::Result<Option<(Header, Vec<u8>)>> {
    let mut header = [0; HEADER_BYTES];
    if let Err(error) = stream.read_exact(&mut header) {
        return if error.kind() == io::ErrorKind::UnexpectedEof { Ok(None) } else { Err(error) };
    }
    let Ok(header) = Header::parse(&header) else { return Ok(None) };
    let mut body = vec![0; header.length];
    stream.read_exact(&mut body)?;
    Ok(Some((header, body)))
}

/// Starts a thread that gets no signals, because the program's handlers expect to run on its own threads.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are initialised by the calls that get them, and the mask is put back.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let started = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        started
    }
}
