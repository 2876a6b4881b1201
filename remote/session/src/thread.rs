//! A thread that makes the calls of one thread of the program, in their order.

use std::sync::{Arc, PoisonError, atomic::Ordering, mpsc::Receiver};

use gpufleet_remote::{
    argument::Fault,
    call_header::CallHeader,
    codec::{Put, Reader},
    frame::{BODY_BYTES_MAX, FrameKind, HEADER_BYTES, finish, frame, start},
    kinds::Kind,
    own::{FunctionFacts, Parameter},
    scope::Scope,
};
use gpufleet_surface::{
    launch::limits::KernelLimits,
    status::{Answer, Status},
};

use crate::{
    busy::{self, Place},
    facts::DEVICE,
    functions::DriverCall,
    session::{Deferred, Known, Shared},
};

/// Maximum parameters of a kernel: each has at least one of at most 32,764 bytes.
const PARAMETERS_MAX: usize = 32_764;

/// Posts are acknowledged each time that this many bytes have been made.
const ACK_BYTES: u64 = 256 << 10;

/// Calls that may end contexts, with everything that belongs to them.
const ENDS_CONTEXTS: [&str; 3] = ["cuCtxDestroy_v2", "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset_v2"];
/// `CU_STREAM_PER_THREAD`.
const PER_THREAD_STREAM: u64 = 2;

/// A call that was received.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) sequence: u64,
    pub(crate) header: CallHeader,
    /// How many posts come before it.
    pub(crate) after: u64,
    pub(crate) body: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct CallingThread {
    shared: Arc<Shared>,
    /// The number of the current context; unknown after calls that change it.
    context: Option<u32>,
    /// The answer may tell of the failure of an earlier post.
    carries_failure: bool,
}

/// The result of a call: the code, and the results behind it in the frame.
struct Made {
    code: i32,
    results: Vec<u8>,
}

/// Ends the session if a thread ends before its program's thread: after a message that makes no sense, or a panic.
struct Ending {
    shared: Arc<Shared>,
    is_orderly: bool,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.shared.threads.fetch_sub(1, Ordering::Relaxed);
        if !self.is_orderly {
            self.shared.order.close();
            let _ = self.shared.frames.send(frame(FrameKind::Bye, |_| {}));
        }
    }
}

impl CallingThread {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        // The driver starts without a current context on each thread.
        Self { shared, context: Some(0), carries_failure: false }
    }

    /// Makes calls until no more can come.
    pub(crate) fn run(mut self, work: Receiver<Work>) {
        let mut ending = Ending { shared: Arc::clone(&self.shared), is_orderly: false };
        for Work { sequence, header, after, body } in work {
            if !self.shared.order.wait_for(after) {
                return;
            }
            self.shared.waiting_bytes.fetch_sub(body.len(), Ordering::Relaxed);
            self.shared.counters.begun();
            let made = self.make(header, &body[CallHeader::BYTES..]);
            // A message that makes no sense ends the session: what waits behind it is not made.
            let Ok(made) = made else { return };
            self.shared.counters.made(header.is_post, made.code);
            self.print();
            if header.is_post {
                self.defer(sequence, header.call, made.code);
                self.posted(body.len());
                self.shared.order.made();
            } else {
                let _ = self.shared.frames.send(self.answer(sequence, made));
            }
        }
        ending.is_orderly = true;
    }

    /// Counts the bytes of a post, and acknowledges them in steps.
    fn posted(&self, bytes: usize) {
        let before = self.shared.posted_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let after = before + bytes as u64;
        if before / ACK_BYTES != after / ACK_BYTES {
            let _ = self.shared.frames.send(frame(FrameKind::Ack, |body| body.u64(after)));
        }
    }

    fn make(&mut self, header: CallHeader, arguments: &[u8]) -> Result<Made, Fault> {
        let mut results = Vec::new();
        let mut from = Reader::new(arguments);
        self.carries_failure = false;
        let made = self.set_context(header.context).map_err(Fault::from).and_then(|()| {
            let shared = Arc::clone(&self.shared);
            match shared.calls[usize::from(header.call)] {
                None => Err(Status::NotFound.into()),
                Some(Known::Driver(call)) => self.driver_call(&call, header, &mut from, &mut results),
                Some(Known::Function) => self.function(&mut from, &mut results),
                Some(Known::Owned) => self.owned(&mut from, &mut results),
                Some(Known::LinkLogs) => self.link_logs(&mut from, &mut results),
                Some(Known::ThreadEnded) => Ok(0),
            }
        });
        match made {
            Ok(code) => Ok(Made { code, results }),
            Err(Fault::Refused(status)) => Ok(Made { code: status.code(), results: Vec::new() }),
            Err(Fault::Malformed) => Err(Fault::Malformed),
        }
    }

    /// Makes a context current, if it is not.
    fn set_context(&mut self, number: u32) -> Answer {
        if self.context == Some(number) {
            return Ok(());
        }
        let objects = self.shared.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = match u64::from(number) {
            0 => 0,
            number => match objects.handle(Kind::Context, number) {
                Err(_) if objects.was_given_out(number) => return Err(Status::ContextIsDestroyed),
                handle => handle?,
            },
        };
        drop(objects);
        match (self.shared.native.calls.set_context)(handle) {
            0 => {
                self.context = Some(number);
                Ok(())
            }
            // The program knows it, so it was there.
            _ => Err(Status::ContextIsDestroyed),
        }
    }

    fn driver_call(
        &mut self,
        call: &DriverCall,
        header: CallHeader,
        from: &mut Reader<'_>,
        results: &mut Vec<u8>,
    ) -> Result<i32, Fault> {
        let shared = Arc::clone(&self.shared);
        let mut scope = Scope::new(&shared.objects, &shared.caller, header.context.into(), header.is_twin);
        let code = self.call_driver(call, header, from, &mut scope, results);
        if let (Some(stream), true) = (scope.stream, scope.ok && !scope.buffers.is_empty()) {
            shared.native.keep(stream, std::mem::take(&mut scope.buffers));
        }
        self.mind(call.symbol, &mut scope);
        self.carries_failure = !scope.changes_objects();
        scope.finish();
        let used = shared.objects.lock().unwrap_or_else(PoisonError::into_inner).budget().used;
        shared.counters.memory(used);
        code
    }

    /// Calls the driver, and measures the time in which the device works.
    fn call_driver(
        &self,
        call: &DriverCall,
        header: CallHeader,
        from: &mut Reader<'_>,
        scope: &mut Scope<'_>,
        results: &mut Vec<u8>,
    ) -> Result<i32, Fault> {
        let Shared { native, busy, .. } = &*self.shared;
        let mut run = |scope: &mut Scope<'_>| call.call(native, header.is_twin, from, scope, results);
        if ENDS_CONTEXTS.contains(&call.symbol) {
            native.settle();
            return busy.ending_contexts(|| run(scope));
        }
        let code = if busy::is_work(call.symbol) {
            busy.during(|| {
                let code = run(scope);
                if let (Some(stream), true) = (scope.stream, scope.ok) {
                    let thread = if stream == PER_THREAD_STREAM { header.thread } else { 0 };
                    native.relaxed(|| busy.mark(Place { context: header.context, stream, thread }));
                }
                code
            })
        } else {
            run(scope)
        };
        if busy::is_wait(call.symbol) || scope.returns_memory {
            native.relaxed(|| busy.look());
        }
        code
    }

    /// Does what some calls need beside the call itself.
    fn mind(&mut self, symbol: &str, scope: &mut Scope<'_>) {
        let calls = &self.shared.native.calls;
        let mut linkings = self.shared.linkings.lock().unwrap_or_else(PoisonError::into_inner);
        match symbol {
            // The program keeps its own stack of contexts.
            "cuCtxCreate_v2" if scope.ok => {
                let mut created = 0;
                (calls.pop_context)(&raw mut created);
                self.context = None;
            }
            "cuCtxDestroy_v2" => self.context = None,
            "cuDevicePrimaryCtxRelease_v2" | "cuDevicePrimaryCtxReset_v2" if scope.ok => {
                let (mut flags, mut is_active) = (0, 0);
                (calls.primary_state)(DEVICE, &raw mut flags, &raw mut is_active);
                if is_active == 0 {
                    scope.forget_primary();
                }
            }
            "cuMemMap" if scope.ok => scope.remember_mapping(),
            "cuMemUnmap" if scope.ok => scope.forget_mappings(),
            "cuDevicePrimaryCtxRetain" if scope.ok => scope.remember_primary(),
            "cuLinkCreate_v2" if scope.ok => {
                if let (Some(link), Some(jit)) = (scope.made(Kind::Link), scope.jit.take()) {
                    linkings.insert(link, jit);
                }
            }
            "cuLinkDestroy" if scope.ok => {
                if let Some(link) = scope.argument(Kind::Link) {
                    linkings.remove(&link);
                }
            }
            _ => {}
        }
    }

    /// Answers what a launch needs to know of a function.
    fn function(&self, from: &mut Reader<'_>, results: &mut Vec<u8>) -> Result<i32, Fault> {
        let number = from.u64()?;
        from.end()?;
        let objects = self.shared.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let function = objects.handle(Kind::Function, number)?;
        let is_kernel = objects.handle(Kind::Kernel, number).is_ok();
        drop(objects);
        let calls = &self.shared.native.calls;
        let parameter_of = if is_kernel { calls.kernel_parameter } else { calls.function_parameter };
        let mut parameters = Vec::new();
        while parameters.len() < PARAMETERS_MAX {
            let (mut offset, mut bytes) = (0, 0);
            match parameter_of(function, parameters.len(), &raw mut offset, &raw mut bytes) {
                0 => parameters.push(Parameter { offset, bytes }),
                // So a driver says that there are no more.
                1 => break,
                code => return Ok(code),
            }
        }
        // By the numbers of `CU_FUNC_ATTRIBUTE_*`.
        let attribute = |number| {
            let mut value = 0_i32;
            let code = if is_kernel {
                (calls.kernel_attribute)(&raw mut value, number, function, DEVICE)
            } else {
                (calls.function_attribute)(&raw mut value, number, function)
            };
            // No attribute of a function is negative.
            if code == 0 { Ok(value.cast_unsigned()) } else { Err(code) }
        };
        let limits = || {
            Ok(KernelLimits {
                block_threads_max: attribute(0)?,
                required_block: None,
                registers: attribute(4)?,
                shared_bytes: attribute(1)?,
                dynamic_shared_max: attribute(8)?,
            })
        };
        match limits() {
            Ok(limits) => {
                FunctionFacts { parameters, limits }.put(results);
                Ok(0)
            }
            Err(code) => Ok(code),
        }
    }

    fn owned(&self, from: &mut Reader<'_>, results: &mut Vec<u8>) -> Result<i32, Fault> {
        let address = from.u64()?;
        from.end()?;
        results.flag(self.shared.objects.lock().unwrap_or_else(PoisonError::into_inner).owns(address));
        Ok(0)
    }

    fn link_logs(&self, from: &mut Reader<'_>, results: &mut Vec<u8>) -> Result<i32, Fault> {
        let link = from.u64()?;
        from.end()?;
        let linkings = self.shared.linkings.lock().unwrap_or_else(PoisonError::into_inner);
        linkings.get(&link).ok_or(Status::InvalidHandle)?.reply(results);
        Ok(0)
    }

    /// Sends what kernels have printed, before the answer by which the program knows that they have ended.
    fn print(&self) {
        let printed = self.shared.native.printed();
        for text in printed.chunks(BODY_BYTES_MAX) {
            let _ = self.shared.frames.send(frame(FrameKind::Printed, |body| body.extend_from_slice(text)));
        }
    }

    /// Keeps the first failure of a post.
    fn defer(&self, sequence: u64, call: u16, code: i32) {
        if code != 0 {
            let mut deferred = self.shared.deferred.lock().unwrap_or_else(PoisonError::into_inner);
            deferred.get_or_insert(Deferred { sequence, call, code });
        }
    }

    fn answer(&self, sequence: u64, Made { mut code, mut results }: Made) -> Vec<u8> {
        let mut deferred = self.shared.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        let deferred = if self.carries_failure { deferred.take() } else { None };
        if results.len() > BODY_BYTES_MAX - 64 {
            code = Status::NotSupported.code();
            results.clear();
        }
        let mut answer = start(FrameKind::Answer);
        debug_assert_eq!(answer.len(), HEADER_BYTES);
        answer.u64(sequence);
        answer.i32(code);
        answer.flag(deferred.is_some());
        if let Some(Deferred { sequence, call, code }) = deferred {
            answer.u64(sequence);
            answer.u16(call);
            answer.i32(code);
        }
        answer.extend(results);
        finish(&mut answer, 0);
        answer
    }
}
