//! Functions of the program that the driver calls: each is sent to the program, and its end is waited for.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
};

use gpufleet_remote::{
    codec::Put,
    frame::{FrameKind, frame},
    host_call::{Caller, StreamResult},
    kinds::Kind,
    objects::Objects,
};

/// Sends calls to the program.
#[derive(Debug)]
pub(crate) struct Callbacks {
    frames: SyncSender<Vec<u8>>,
    objects: Arc<Mutex<Objects>>,
    next: AtomicU64,
    /// Who waits for the end of which call; none after the program has gone.
    waiting: Mutex<Option<HashMap<u64, SyncSender<()>>>>,
}

impl Callbacks {
    pub(crate) fn new(frames: SyncSender<Vec<u8>>, objects: Arc<Mutex<Objects>>) -> Self {
        Self { frames, objects, next: AtomicU64::new(1), waiting: Mutex::new(Some(HashMap::new())) }
    }

    /// The program says that a call has ended.
    pub(crate) fn returned(&self, call: u64) {
        let waiting = self.lock().as_mut().and_then(|waiting| waiting.remove(&call));
        if let Some(waiting) = waiting {
            let _ = waiting.send(());
        }
    }

    /// Releases the driver threads that wait for callbacks, because the program has ended.
    pub(crate) fn close(&self) {
        self.lock().take();
    }

    /// Returns the program's number of a stream.
    fn stream(&self, handle: u64) -> u64 {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let number = if Kind::Stream.has_meaning(handle) { Some(handle) } else { objects.number(Kind::Stream, handle) };
        number.unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Option<HashMap<u64, SyncSender<()>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Caller for Callbacks {
    fn call(&self, function: u64, data: u64, result: Option<StreamResult>) {
        let call = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, ended) = sync_channel(1);
        match self.lock().as_mut() {
            Some(waiting) => drop(waiting.insert(call, sender)),
            None => return,
        }
        let sent = self.frames.send(frame(FrameKind::Callback, |body| {
            [call, function, data].iter().for_each(|number| body.u64(*number));
            body.flag(result.is_some());
            if let Some(StreamResult { stream, status }) = result {
                body.u64(self.stream(stream));
                body.i32(status);
            }
        }));
        // Either the program answers, or its end drops the sender.
        if sent.is_ok() {
            let _ = ended.recv();
        }
    }
}
