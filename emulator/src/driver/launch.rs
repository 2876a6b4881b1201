//! Launches. Before the call returns, the parameters are copied and everything is checked against the device; the
//! kernel then runs in its stream.

use std::sync::{Arc, OnceLock, PoisonError};

use super::{
    context::Context,
    device::{Device, DeviceFault},
    function::Function,
    handle::Handle,
    injection, occupancy, refusal,
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
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub dynamic_shared: u32,
    pub stream: Handle,
    /// Cooperative launch: all blocks have to be resident at once.
    pub cooperative: bool,
}

/// Source of the arguments.
#[derive(Debug, Clone, Copy)]
pub enum Arguments {
    /// One pointer per parameter.
    Pointers(*const *const u8),
    /// A buffer with all parameters, laid out as the kernel reads them.
    Packed { pointer: *const u8, bytes: usize },
    /// No arguments, for a kernel without parameters.
    None,
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
        check_shape(request, &function, context.device)?;
        if request.cooperative {
            check_residence(request, &function, context.device)?;
        }
        // SAFETY: passed on to the caller.
        let params = unsafe { gather(&function, arguments) }?.into_boxed_slice();
        Ok(Self { context: Arc::clone(context), function, request: *request, params, pointers: OnceLock::new() })
    }

    /// Returns the launch as a cooperative one or not.
    pub fn with_cooperative(&self, cooperative: bool) -> Answer<Self> {
        let request = Request { cooperative, ..self.request };
        if cooperative {
            check_residence(&request, &self.function, self.context.device)?;
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
    fn limits(&self) -> RunLimits<'static> {
        let [stack, _, heap, ..] = *self.context.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let resident = resident_blocks(&self.request, &self.function, self.context.device).unwrap_or(u64::MAX);
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
            grid: request.grid,
            block: request.block,
            shared_bytes: request.dynamic_shared,
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
                ..self.limits()
            },
        };
        let launch = if request.cooperative { simt::launch_cooperative } else { simt::launch };
        launch(&self.function.entry, &config, &device.memory, &options).map_err(DeviceFault::from)
    }
}

fn check_shape(request: &Request, function: &Function, device: &Device) -> Answer {
    let limits = &device.limits;
    let within = |sizes: [u32; 3], most: [u32; 3]| sizes.iter().zip(most).all(|(size, most)| (1..=most).contains(size));
    if !within(request.grid, limits.grid_max) || !within(request.block, limits.block_max) {
        return Err(Status::InvalidValue);
    }
    // Each dimension is at most 1024, so the product fits.
    let threads = request.block.iter().product::<u32>();
    if threads > function.block_threads_max(device) {
        return Err(Status::InvalidValue);
    }
    if function.entry.required_block.is_some_and(|required| required != request.block) {
        return Err(Status::InvalidValue);
    }
    if request.dynamic_shared > function.dynamic_shared_max() {
        return Err(Status::InvalidValue);
    }
    Ok(())
}

/// Checks that all blocks can be resident on the device at once.
fn check_residence(request: &Request, function: &Function, device: &Device) -> Answer {
    let most = resident_blocks(request, function, device)?;
    let blocks = request.grid.iter().map(|size| u64::from(*size)).product::<u64>();
    if blocks <= most { Ok(()) } else { Err(Status::CooperativeLaunchTooLarge) }
}

/// Returns the number of blocks that can be resident at once.
fn resident_blocks(request: &Request, function: &Function, device: &Device) -> Answer<u64> {
    let threads = request.block.iter().product::<u32>().cast_signed();
    let shared = request.dynamic_shared as usize;
    let resident = occupancy::blocks_per_multiprocessor(device, function, threads, shared)?;
    Ok(u64::from(resident) * u64::from(device.multiprocessors()))
}

/// # Safety
/// As for [`Kernel::new`].
unsafe fn gather(function: &Function, arguments: Arguments) -> Answer<Vec<u8>> {
    let entry = &function.entry;
    let mut block = vec![0u8; entry.params_bytes as usize];
    match arguments {
        Arguments::None if entry.params.is_empty() => {}
        Arguments::None => return Err(Status::InvalidValue),
        Arguments::Packed { pointer, bytes } => {
            // A structure of the caller may end with padding.
            if !(block.len()..=function.params_bytes_max()).contains(&bytes) || pointer.is_null() && bytes > 0 {
                return Err(Status::InvalidValue);
            }
            // SAFETY: the caller vouches for `bytes` readable bytes, which are at least those of the block.
            unsafe { std::ptr::copy_nonoverlapping(pointer, block.as_mut_ptr(), block.len()) };
        }
        Arguments::Pointers(pointers) => {
            for (index, param) in entry.params.iter().enumerate() {
                // SAFETY: the caller vouches for one pointer for each parameter.
                let value = unsafe { pointers.add(index).read() };
                if value.is_null() {
                    return Err(Status::InvalidValue);
                }
                let place = &mut block[param.offset as usize..][..param.bytes as usize];
                // SAFETY: the caller vouches for a readable value of the parameter's size.
                unsafe { std::ptr::copy_nonoverlapping(value, place.as_mut_ptr(), place.len()) };
            }
        }
    }
    Ok(block)
}

impl From<Fault> for DeviceFault {
    fn from(fault: Fault) -> Self {
        let code = fault.kind.code().cast_signed();
        Self::new(Status::from_code(code).unwrap_or(Status::LaunchFailed), fault.report)
    }
}
