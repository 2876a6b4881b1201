//! Lowering: turns parsed PTX texts into a module that can run. It places variables, lowers functions to
//! [`crate::program`], and resolves every name.

mod address;
mod arithmetic;
mod atomic;
mod branches;
mod bulk;
mod chains;
mod check;
mod control;
mod emitter;
mod flow;
mod function;
mod initial;
mod layout;
mod link;
mod liveness;
mod matrix;
mod memory;
mod modifiers;
mod operand;
mod phases;
mod qualifiers;
mod reduction;
mod references;
mod repeats;
mod reuse;
mod shared;
mod slots;
mod surface;
mod symbols;
mod texture;
mod transfer;
mod tuple;
mod writes;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use self::emitter::Emitter;
pub use self::link::Text;
use self::link::{Linked, Undefined, Unit, link};
pub use self::reuse::Reuse;
use self::shared::check_static;
use self::symbols::Symbols;
use crate::memory::Memory;
use crate::module::{ComputeCapability, Entry, Module, Param, Storage};
use crate::program::{Function, Program, SharedVariable};
use crate::ptx::error::{LoadError, LoadErrorKind};
use crate::ptx::parser::{parse, threads};
use crate::ptx::tree::{self, Tree};

/// Maximum bytes of a kernel's parameters, as on a device: 32,764 since PTX 8.1 (PTX ISA, "Kernel Function
/// Parameters"), 4,352 before.
const KERNEL_PARAM_BYTES_MAX: u64 = 32_764;
const OLD_KERNEL_PARAM_BYTES_MAX: u64 = 4352;
const LARGE_PARAMS_VERSION: (u32, u32) = (8, 1);

/// Bytes of shared memory reserved for cooperative groups if a text reads `%reserved_smem_offset_*`; cooperative groups
/// use 288 of them.
const RESERVED_SHARED_BYTES: u32 = 512;

/// Maximum depth of a call chain when its stack is computed; a longer chain counts as recursion.
const CHAIN_MAX: u32 = 256;

/// Maximum local memory of a thread, in bytes, for a kernel and the functions that it calls.
const FRAME_BYTES_MAX: u64 = u32::MAX as u64 / 64;

/// Maximum threads of a block, on every device.
const THREADS_MAX: u32 = 1024;

/// Maximum 32-bit registers of a thread, on every device.
const REGISTERS_MAX: u32 = 255;

impl Module {
    /// Parses and lowers `ptx`, and places its variables in `memory`.
    pub fn load(ptx: &str, memory: &Arc<Memory>, target: ComputeCapability) -> Result<Module, LoadError> {
        Module::link(&[Text { name: "", ptx }], memory, target)
    }

    /// Loads like [`Module::load`], but lets registers share slots as `reuse` says.
    pub fn load_reusing(
        ptx: &str,
        memory: &Arc<Memory>,
        target: ComputeCapability,
        reuse: Reuse,
    ) -> Result<Module, LoadError> {
        let lowered = lower_texts(&[Text { name: "", ptx }], memory, target, Undefined::Refused, reuse)?;
        Ok(Module::of(lowered))
    }

    /// Loads several texts, which may use each other's functions and variables.
    pub fn link(texts: &[Text], memory: &Arc<Memory>, target: ComputeCapability) -> Result<Module, LoadError> {
        let lowered = lower_texts(texts, memory, target, Undefined::Refused, Reuse::default())?;
        Ok(Module::of(lowered))
    }

    fn of(lowered: LoweredTexts) -> Module {
        let LoweredTexts { storage, files, reserved_shared, linked, lowered } = lowered;
        let storage = Arc::new(storage);
        let Lowered { accesses, mut functions, shared, .. } = lowered;
        let local_align = functions.iter().map(|function| function.local_align).max().unwrap_or(0);
        functions.iter_mut().for_each(|function| function.local_align = local_align);
        let dynamic_align = functions.iter().map(|function| function.dynamic_align).max().unwrap_or(0);
        let dynamic_align = dynamic_align.max(linked.dynamic_align);
        let program = Arc::new(Program { accesses, functions, files, reserved_shared, shared, dynamic_align });
        let mut entries = HashMap::new();
        for kernel in lowered.kernels {
            let name = program.functions[kernel.function].name.clone();
            let stack = deepest(&program, kernel.function, CHAIN_MAX, &mut HashMap::new());
            let entry = Entry {
                name: name.clone(),
                params_bytes: kernel.params_bytes,
                params: kernel.params,
                shared_bytes: kernel.shared_bytes,
                frame_bytes: stack.bytes.min(FRAME_BYTES_MAX) as u32,
                needs_stack: !stack.is_exact,
                const_bytes: linked.constants.1 as u32,
                registers: kernel.registers.clamp(1, REGISTERS_MAX),
                max_threads: kernel.max_threads,
                required_block: kernel.required_block,
                missing: missing(&program, kernel.function),
                program: Arc::clone(&program),
                function: kernel.function,
                storage: Arc::clone(&storage),
            };
            entries.insert(name, Arc::new(entry));
        }
        let Linked { globals, references, .. } = linked;
        Module { entries, globals, references, _storage: storage }
    }

    /// Checks a text that will be linked with others; names that it does not define are allowed.
    pub fn check(ptx: &str, memory: &Arc<Memory>, target: ComputeCapability) -> Result<(), LoadError> {
        lower_texts(&[Text { name: "", ptx }], memory, target, Undefined::Allowed, Reuse::default()).map(drop)
    }
}

/// Texts after linking and lowering.
struct LoweredTexts<'a> {
    storage: Storage,
    files: Vec<Vec<(u32, String)>>,
    reserved_shared: u32,
    linked: Linked<'a>,
    lowered: Lowered,
}

fn lower_texts<'a>(
    texts: &[Text<'a>],
    memory: &Arc<Memory>,
    device: ComputeCapability,
    undefined: Undefined,
    reuse: Reuse,
) -> Result<LoweredTexts<'a>, LoadError> {
    let mut units = Vec::new();
    let mut reserved_shared = 0;
    for text in texts {
        let tree = parse(text.ptx)?;
        check_target(&tree, device)?;
        let target = tree.target.map_or(0, |target| 10 * target.major + target.minor);
        let symbols = Symbols { checked: memory.checks().any(), target, reuse, ..Symbols::default() };
        units.push(Unit { name: text.name, tree, symbols });
        if text.ptx.contains("%reserved_smem_offset_") {
            reserved_shared = RESERVED_SHARED_BYTES;
        }
    }
    let mut storage = Storage { memory: Arc::clone(memory), addresses: Vec::new(), handles: Vec::new() };
    let linked = link(&mut units, &mut storage, reserved_shared, undefined)?;
    initial::fill(&units, &linked, memory)?;
    let lowered = lower_all(&units, &linked)?;
    let names = |unit: &Unit| unit.tree.files.iter().map(|(number, name)| (*number, (*name).to_owned())).collect();
    let files = units.iter().map(names).collect();
    Ok(LoweredTexts { storage, files, reserved_shared, linked, lowered })
}

fn check_target(tree: &Tree, device: ComputeCapability) -> Result<(), LoadError> {
    let Some(target) = tree.target else {
        return Err(LoadError::new(0, LoadErrorKind::Syntax, "the text has no .target directive"));
    };
    let wanted = ComputeCapability { major: target.major, minor: target.minor };
    if wanted > device || target.exact && wanted != device {
        let message = format!(
            "the text targets sm_{}{}{}, but the device is sm_{}{}",
            wanted.major,
            wanted.minor,
            if target.exact { "a" } else { "" },
            device.major,
            device.minor
        );
        return Err(LoadError::new(target.line, LoadErrorKind::Target, message));
    }
    Ok(())
}

struct Lowered {
    functions: Vec<Function>,
    kernels: Vec<Kernel>,
    accesses: u32,
    shared: Vec<SharedVariable>,
}

struct Kernel {
    function: usize,
    params: Vec<Param>,
    params_bytes: u32,
    shared_bytes: u32,
    registers: u32,
    max_threads: u32,
    required_block: Option<[u32; 3]>,
}

fn lower_all(units: &[Unit], linked: &Linked) -> Result<Lowered, LoadError> {
    let bodies: Vec<_> = linked.functions.iter().map(|(unit, at)| (*unit, &units[*unit].tree.functions[*at])).collect();
    let mut shared_start = linked.shared_end;
    let mut lowered =
        Lowered { functions: Vec::new(), kernels: Vec::new(), accesses: 0, shared: linked.shared.clone() };
    lowered.functions.resize_with(bodies.len(), Function::default);
    // Functions first: their shared memory comes before that of any kernel.
    let (kernels, functions) = (0..bodies.len()).partition::<Vec<_>, _>(|index| bodies[*index].1.is_entry);
    for index in functions.into_iter().chain(kernels) {
        let (unit, function) = bodies[index];
        let version = units[unit].tree.version;
        let (params, params_bytes) =
            if function.is_entry { kernel_params(function, version)? } else { (Vec::new(), 0) };
        let offsets: Vec<u32> = params.iter().map(|param: &Param| param.offset).collect();
        let emitter = Emitter::new(&units[unit].symbols, shared_start, &mut lowered.accesses);
        let (code, shared_bytes, registers) = emitter.lower(function, &offsets)?;
        lowered.functions[index] = Function { text: unit, ..code };
        if !function.is_entry {
            shared_start = shared_bytes;
            lowered.shared.append(&mut lowered.functions[index].shared);
            continue;
        }
        let limit = function.required.map(threads);
        let limit = limit.or(function.max_threads).unwrap_or(THREADS_MAX.into()).min(THREADS_MAX.into());
        lowered.kernels.push(Kernel {
            function: index,
            params,
            params_bytes,
            shared_bytes,
            registers: function.registers_max.map_or(registers, |limit| registers.min(limit)),
            max_threads: limit as u32,
            required_block: function.required,
        });
    }
    for kernel in &lowered.kernels {
        let function = bodies[kernel.function].1;
        check_static(function.name, function.line, static_shared(&lowered, kernel.function))?;
    }
    Ok(lowered)
}

/// Returns the bytes of static shared variables that a kernel and the functions that it calls by name use. A device
/// allocates only these for the kernel.
fn static_shared(lowered: &Lowered, kernel: usize) -> u64 {
    let reached = reached(&lowered.functions, kernel);
    let used = |offset: &u32| reached.iter().any(|index| lowered.functions[*index].shared_used.contains(offset));
    let variables = lowered.shared.iter().chain(&lowered.functions[kernel].shared);
    variables.filter(|variable| used(&variable.offset)).map(|variable| u64::from(variable.bytes)).sum()
}

/// Returns a function and all functions that it calls by name, directly or through others.
fn reached(functions: &[Function], function: usize) -> Vec<usize> {
    let (mut seen, mut reached, mut at) = (HashSet::from([function]), vec![function], 0);
    while let Some(function) = reached.get(at).map(|index| &functions[*index]) {
        reached.extend(function.calls.functions.iter().copied().filter(|callee| seen.insert(*callee)));
        at += 1;
    }
    reached
}

fn kernel_params(function: &tree::Function, version: (u32, u32)) -> Result<(Vec<Param>, u32), LoadError> {
    let is_old = version < LARGE_PARAMS_VERSION;
    let most = if is_old { OLD_KERNEL_PARAM_BYTES_MAX } else { KERNEL_PARAM_BYTES_MAX };
    let (mut params, mut end) = (Vec::new(), 0u64);
    for variable in &function.params {
        let bytes = variable.count.saturating_mul(variable.ty.bytes().into());
        let offset = end.next_multiple_of(variable.align.into());
        end = offset.saturating_add(bytes);
        if end > most {
            let message = format!("the kernel has too many parameters: they take {end} bytes, and {most} is the limit");
            return Err(LoadError::syntax(variable.line, message));
        }
        params.push(Param { offset: offset as u32, bytes: bytes as u32, align: variable.align });
    }
    Ok((params, end as u32))
}

/// Returns the first unsupported instruction in a function and the functions that it calls by name. Functions called
/// through pointers are not searched: there the instruction is a fault when it runs.
fn missing(program: &Program, function: usize) -> Option<LoadError> {
    let reached = reached(&program.functions, function);
    reached.into_iter().find_map(|index| program.functions[index].missing.clone())
}

/// Local memory of a call chain.
#[derive(Clone, Copy)]
struct Stack {
    bytes: u64,
    /// True if `bytes` is all that a thread can need: no function is recursive or calls through a pointer.
    is_exact: bool,
}

/// Returns the local memory of the deepest call chain from `index` down; recursion and calls through pointers are not
/// included.
fn deepest(program: &Program, index: usize, left: u32, known: &mut HashMap<usize, Stack>) -> Stack {
    match known.get(&index) {
        Some(stack) => return *stack,
        // If the function is reached again before its own depth is known, it is recursive.
        None => known.insert(index, Stack { bytes: 0, is_exact: false }),
    };
    let function = &program.functions[index];
    let mut below = Stack { bytes: 0, is_exact: !function.calls.indirect && left > 0 };
    for callee in function.calls.functions.iter().filter(|_| left > 0) {
        let stack = deepest(program, *callee, left - 1, known);
        below = Stack { bytes: below.bytes.max(stack.bytes), is_exact: below.is_exact && stack.is_exact };
    }
    let stack = Stack { bytes: below.bytes + function.frame_locals(), ..below };
    known.insert(index, stack);
    stack
}
