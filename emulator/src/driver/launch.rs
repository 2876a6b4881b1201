//! Launches. Before the call returns, the parameters are copied and everything is checked against the device; the
//! kernel then runs in its stream.

use std::sync::{Arc, OnceLock, PoisonError};

use gpufleet_surface::launch::{
    arguments::{Arguments, ParameterBlock},
    limits::{DeviceLimits, KernelLimits},
    shape::Shape,
};

use super::{
    context::Context,
    device::DeviceFault,
    function::Function,
    handle::Handle,
    injection, refusal,
    status::{Answer, Status},
    stream::{object::streams, scope::Scope},
};
use crate::{
    fault::Fault,
    simt::{self, LaunchConfig, RunLimits, RunOptions},
};

/// A launch as the caller requests it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub function: Handle,
    pub shape: Shape,
    pub stream: Handle,
    /// Cooperative launch: all blocks have to be resident at once.
    pub cooperative: bool,
}

/// A kernel with its launch configuration and its parameters, ready to run.
#[derive(Debug)]
pub struct Kernel {
    pub context: Arc<Context>,
    pub function: Arc<Function>,
    pub request: Request,
    pub params: Box<[u8]>,
    /// Pointers to the parameters, for callers that query a graph node.
    pointers: OnceLock<Box<[*const u8]>>,
}

// SAFETY: the pointers point into the kernel's own parameters, which do not change.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// Checks a launch in a context, regardless of the stream.
    ///
    /// # Safety
    /// The arguments point to a readable value for each parameter, of the parameter's size.
    pub unsafe fn new(
        context: &Arc<Context>,
        function: Arc<Function>,
        request: &Request,
        arguments: Arguments,
    ) -> Answer<Self> {
        if function.context != context.handle {
            return Err(Status::InvalidHandle);
        }
        if let Some(report) = function.entry.refusal() {
            return Err(refusal::tell(report));
        }
        let (device, kernel) = limits(context, &function);
        request.shape.check(device, &kernel)?;
        if request.cooperative {
            request.shape.check_residence(device, &kernel)?;
        }
        // SAFETY: passed on to the caller.
        let params = unsafe { gather(&function, arguments) }?.into_boxed_slice();
        Ok(Self { context: Arc::clone(context), function, request: *request, params, pointers: OnceLock::new() })
    }

    /// Returns the launch as a cooperative one or not.
    pub fn with_cooperative(&self, cooperative: bool) -> Answer<Self> {
        let request = Request { cooperative, ..self.request };
        if cooperative {
            let (device, kernel) = limits(&self.context, &self.function);
            request.shape.check_residence(device, &kernel)?;
        }
        let (context, function) = (Arc::clone(&self.context), Arc::clone(&self.function));
        Ok(Self { context, function, request, params: self.params.clone(), pointers: OnceLock::new() })
    }

    /// Returns one pointer per parameter, as a launch takes them; they are valid as long as this kernel.
    pub fn argument_pointers(&self) -> &[*const u8] {
        let place = |offset: u32| std::ptr::from_ref(&self.params[offset as usize]);
        self.pointers.get_or_init(|| self.function.entry.params.iter().map(|param| place(param.offset)).collect())
    }

    /// Runs the kernel to its end.
    pub fn run(&self) -> Result<(), DeviceFault> {
        self.attempt().map_err(|fault| fault.of_kernel(&self.function.entry.name))
    }

    /// Returns the limits of the context, and the number of blocks that the device runs at a time.
    fn run_limits(&self) -> RunLimits<'static> {
        let [stack, _, heap, ..] = *self.context.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let (device, kernel) = limits(&self.context, &self.function);
        let resident = self.request.shape.resident_blocks(device, &kernel).unwrap_or(u64::MAX);
        RunLimits {
            stack_bytes: u32::try_from(stack).unwrap_or(u32::MAX),
            heap_bytes: heap as u64,
            resident_blocks: resident,
            ..RunLimits::default()
        }
    }

    fn attempt(&self) -> Result<(), DeviceFault> {
        let (context, request) = (&self.context, &self.request);
        injection::launch(context, &self.function.entry.name)?;
        let device = context.device;
        let config = LaunchConfig {
            grid: request.shape.grid,
            block: request.shape.block,
            shared_bytes: request.shape.dynamic_shared,
            params: &self.params,
        };
        // A kernel of a graph has no stream of its own.
        let stream = streams().and_then(|streams| streams.get(request.stream)).ok();
        let scope = stream.as_ref().map(|stream| &stream.scope);
        let confinement = scope.and_then(Scope::confinement);
        let print = |text: &[u8]| device.printf.add(text);
        let options = RunOptions {
            threads: device.threads,
            cancel: &context.cancel,
            instructions_max: device.instructions_max,
            print: &print,
            vector: true,
            limits: RunLimits {
                confinement: confinement.as_deref(),
                interrupt: scope.map(|scope| &scope.interrupted),
                ..self.run_limits()
            },
        };
        let launch = if request.cooperative { simt::launch_cooperative } else { simt::launch };
        launch(&self.function.entry, &config, &device.memory, &options).map_err(DeviceFault::from)
    }
}

/// Returns the limits of a context's device, and those of a function on it.
fn limits(context: &Context, function: &Function) -> (&'static DeviceLimits, KernelLimits) {
    let device = &context.device.limits;
    (device, function.limits(device))
}

/// # Safety
/// As for [`Kernel::new`].
unsafe fn gather(function: &Function, arguments: Arguments) -> Answer<Vec<u8>> {
    let entry = &function.entry;
    let block = ParameterBlock { bytes: entry.params_bytes as usize, bytes_max: function.params_bytes_max() };
    let params = entry.params.iter().map(|param| (param.offset as usize, param.bytes as usize));
    // SAFETY: passed on to the caller.
    unsafe { arguments.gather(block, params) }
}

impl From<Fault> for DeviceFault {
    fn from(fault: Fault) -> Self {
        let code = fault.kind.code().cast_signed();
        Self::new(Status::from_code(code).unwrap_or(Status::LaunchFailed), fault.report)
    }
}
