//! One program's session: its objects, its threads, and the calls that they make.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Sender, SyncSender, channel},
    },
    thread,
};

use gpufleet_remote::{
    call_header::CallHeader,
    calls::{FUNCTION, LINK_LOGS, OWN, OWNED, THREAD_ENDED},
    codec::{Malformed, Reader},
    frame::{CALL_BYTES_MAX, FrameKind, frame},
    greeting::{Facts, Hello, Named, Welcome},
    host_call::Caller,
    jit::HeldJit,
    objects::Objects,
};

use crate::{
    busy::Busy,
    callbacks::Callbacks,
    counters::Counters,
    facts::facts,
    functions::{DriverCall, functions, known},
    native::{Native, NativeError},
    order::Order,
    thread::{CallingThread, Work},
};

/// Maximum threads of a program that call the driver at the same time.
const THREADS_MAX: usize = 1024;
/// Maximum bytes of calls that were received and not made.
const WAITING_BYTES_MAX: usize = CALL_BYTES_MAX + (64 << 20);

/// What a program may have.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Device memory in bytes.
    pub memory: u64,
}

/// A call that a program may make.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Known {
    Driver(DriverCall),
    Function,
    Owned,
    LinkLogs,
    ThreadEnded,
}

/// The first post that failed. The program hears of it with its next answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deferred {
    pub(crate) sequence: u64,
    pub(crate) call: u16,
    pub(crate) code: i32,
}

/// What the threads of a session share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) native: Arc<Native>,
    pub(crate) objects: Arc<Mutex<Objects>>,
    pub(crate) caller: Arc<dyn Caller>,
    pub(crate) order: Order,
    pub(crate) frames: SyncSender<Vec<u8>>,
    /// By the program's numbers.
    pub(crate) calls: Vec<Option<Known>>,
    pub(crate) deferred: Mutex<Option<Deferred>>,
    /// The options of linkings, whose buffers the driver writes until the end of each.
    pub(crate) linkings: Mutex<HashMap<u64, HeldJit>>,
    pub(crate) waiting_bytes: AtomicUsize,
    /// Bytes of posts that were made.
    pub(crate) posted_bytes: AtomicU64,
    pub(crate) counters: Arc<Counters>,
    pub(crate) busy: Arc<Busy>,
    /// Threads that have not ended.
    pub(crate) threads: AtomicUsize,
}

/// A session that has welcomed its program.
#[derive(Debug)]
pub struct Session {
    shared: Arc<Shared>,
    callbacks: Arc<Callbacks>,
    threads: HashMap<u32, Sender<Work>>,
    /// Posts that were received.
    posts: u64,
    /// The pieces of a call that is too long for one frame.
    pieces: Vec<u8>,
}

impl Session {
    /// Makes a session for a program with this greeting. `frames` takes what is to be sent, first the welcome.
    pub fn start(
        native: Arc<Native>,
        limits: Limits,
        hello: &Hello,
        frames: SyncSender<Vec<u8>>,
        counters: Arc<Counters>,
    ) -> Result<Self, NativeError> {
        let facts: Facts = facts(&native, limits.memory)?;
        let driver = functions(&native);
        let calls: Vec<_> = hello.calls.iter().map(|named| find(named, &driver)).collect();
        let welcome = Welcome { facts, available: calls.iter().map(Option::is_some).collect() };
        // A closed channel means that the program has gone, which its reader notices.
        let _ = frames.send(frame(FrameKind::Welcome, |body| welcome.put(body)));
        let objects = Arc::new(Mutex::new(Objects::new(limits.memory)));
        let callbacks = Arc::new(Callbacks::new(frames.clone(), Arc::clone(&objects)));
        let busy = Arc::new(Busy::new(Arc::clone(&native), Arc::clone(&counters)));
        let shared = Shared {
            native,
            objects,
            caller: Arc::clone(&callbacks) as Arc<dyn Caller>,
            order: Order::default(),
            frames,
            calls,
            deferred: Mutex::default(),
            linkings: Mutex::default(),
            waiting_bytes: AtomicUsize::new(0),
            posted_bytes: AtomicU64::new(0),
            counters,
            busy,
            threads: AtomicUsize::new(0),
        };
        Ok(Self { shared: Arc::new(shared), callbacks, threads: HashMap::new(), posts: 0, pieces: Vec::new() })
    }

    /// Takes a frame of the program.
    pub fn take(&mut self, kind: FrameKind, sequence: u64, body: Vec<u8>) -> Result<(), Malformed> {
        match kind {
            FrameKind::Call => self.call(sequence, body),
            FrameKind::Piece => {
                if self.pieces.len() + body.len() > CALL_BYTES_MAX {
                    return Err(Malformed);
                }
                self.pieces.extend(body);
                Ok(())
            }
            FrameKind::Return => {
                let mut reader = Reader::new(&body);
                self.callbacks.returned(reader.u64()?);
                reader.end()
            }
            _ => Err(Malformed),
        }
    }

    fn call(&mut self, sequence: u64, mut body: Vec<u8>) -> Result<(), Malformed> {
        let mut reader = Reader::new(&body);
        let header = CallHeader::take(&mut reader)?;
        if !self.pieces.is_empty() {
            // The pieces are the arguments, and the call's own frame has none.
            reader.end()?;
            body.append(&mut self.pieces);
        }
        if usize::from(header.call) >= self.shared.calls.len() {
            return Err(Malformed);
        }
        let waiting = self.shared.waiting_bytes.fetch_add(body.len(), Ordering::Relaxed) + body.len();
        if waiting > WAITING_BYTES_MAX {
            return Err(Malformed);
        }
        let CallHeader { thread, is_post, .. } = header;
        let work = Work { sequence, header, after: self.posts, body };
        if is_post {
            self.posts += 1;
        }
        self.thread(thread)?.send(work).map_err(|_| Malformed)
    }

    /// Returns the thread that makes the calls of a thread of the program.
    fn thread(&mut self, number: u32) -> Result<&Sender<Work>, Malformed> {
        if !self.threads.contains_key(&number) {
            // One whose program's thread has ended may still be in a call.
            if self.shared.threads.fetch_add(1, Ordering::Relaxed) >= THREADS_MAX {
                return Err(Malformed);
            }
            let (sender, work) = channel();
            let calling = CallingThread::new(Arc::clone(&self.shared));
            let spawned = thread::Builder::new().name(format!("program-{number}")).spawn(move || calling.run(work));
            spawned.map_err(|_| Malformed)?;
            self.threads.insert(number, sender);
        }
        Ok(&self.threads[&number])
    }

    /// Ends a thread, once it has made the calls that it has.
    pub(crate) fn thread_ended(&mut self, number: u32) {
        self.threads.remove(&number);
    }
}

impl Drop for Session {
    /// Releases the driver threads that wait for callbacks, and ends the thread that measures.
    fn drop(&mut self) {
        self.callbacks.close();
        self.shared.busy.close();
    }
}

fn find(named: &Named, driver: &HashMap<&'static str, DriverCall>) -> Option<Known> {
    let call = known(&named.symbol, named.signature)?;
    if !OWN.contains(&call.symbol) {
        return driver.get(call.symbol).copied().map(Known::Driver);
    }
    Some(match call.symbol {
        FUNCTION => Known::Function,
        OWNED => Known::Owned,
        LINK_LOGS => Known::LinkLogs,
        THREAD_ENDED => Known::ThreadEnded,
        _ => return None,
    })
}
