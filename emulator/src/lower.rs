//! From a parsed PTX text to a module that can run: places variables, lowers functions, resolves every name.

mod address;
mod arithmetic;
mod atomic;
mod branches;
mod chains;
mod check;
mod control;
mod emitter;
mod function;
mod layout;
mod matrix;
mod memory;
mod modifiers;
mod operand;
mod phases;
mod qualifiers;
mod repeats;
mod shared;
mod symbols;
mod transfer;
mod tuple;
mod writes;

use std::collections::HashMap;
use std::sync::Arc;

use self::emitter::Emitter;
use self::shared::{place_shared, shared_variable};
use self::symbols::{Symbol, Symbols};
use crate::memory::Memory;
use crate::module::{ComputeCapability, Entry, Module, Param, Storage};
use crate::program::memory::{FUNCTION_STRIDE, FUNCTION_WINDOW};
use crate::program::{Callee, Function, Program, SharedVariable};
use crate::ptx::error::{LoadError, LoadErrorKind};
use crate::ptx::parser::{parse, threads};
use crate::ptx::tree::{self, Initial, Space, Tree, Variable};
use crate::ptx::types::Type;

/// Parameters of a kernel at most, as on a device.
const KERNEL_PARAM_BYTES_MAX: u64 = 32_764;

/// Shared memory that cooperative groups find reserved for them, where a text asks where it is; they need 288 bytes.
const RESERVED_SHARED_BYTES: u32 = 512;

/// Local memory for the frames of functions that call one another in circles or through pointers, whose depth can't
/// be told beforehand.
const RECURSION_BYTES: u32 = 64 << 10;

/// Functions in a chain of calls that are looked at one below the other; a longer chain counts as a circle.
const CHAIN_MAX: u32 = 256;

/// Threads in a block at most, as on every device.
const THREADS_MAX: u32 = 1024;

/// Registers of a thread at most, as on every device.
const REGISTERS_MAX: u32 = 255;

impl Module {
    /// Parses and lowers `ptx`, and places its variables in `memory`.
    pub fn load(ptx: &str, memory: &Arc<Memory>, target: ComputeCapability) -> Result<Module, LoadError> {
        let tree = parse(ptx)?;
        check_target(&tree, target)?;
        let mut storage = Storage { memory: Arc::clone(memory), addresses: Vec::new() };
        let reserved_shared = if ptx.contains("%reserved_smem_offset_") { RESERVED_SHARED_BYTES } else { 0 };
        let mut shared_end = reserved_shared;
        let (symbols, globals) = declare(&tree, memory, &mut storage, &mut shared_end)?;
        fill(&tree, &symbols, memory)?;
        let lowered = lower_all(&tree, &symbols, shared_end)?;
        let storage = Arc::new(storage);
        let files = tree.files.iter().map(|(number, name)| (*number, (*name).to_owned())).collect();
        let Lowered { accesses, functions, shared, .. } = lowered;
        let program = Arc::new(Program { accesses, functions, files, reserved_shared, shared });
        let mut entries = HashMap::new();
        for kernel in lowered.kernels {
            let name = program.functions[kernel.function].name.clone();
            let entry = Entry {
                name: name.clone(),
                params_bytes: kernel.params_bytes,
                params: kernel.params,
                shared_bytes: kernel.shared_bytes,
                local_bytes: local_bytes(&program, kernel.function, RECURSION_BYTES),
                frame_bytes: local_bytes(&program, kernel.function, 0),
                const_bytes: symbols.constants.1 as u32,
                registers: kernel.registers.clamp(1, REGISTERS_MAX),
                max_threads: kernel.max_threads,
                required_block: kernel.required_block,
                program: Arc::clone(&program),
                function: kernel.function,
                _storage: Arc::clone(&storage),
            };
            entries.insert(name, Arc::new(entry));
        }
        Ok(Module { entries, globals, _storage: storage })
    }
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

type Globals = HashMap<String, (u64, u64)>;

/// Gives every name of the top level a meaning.
fn declare<'a>(
    tree: &Tree<'a>,
    memory: &Memory,
    storage: &mut Storage,
    shared_end: &mut u32,
) -> Result<(Symbols<'a>, Globals), LoadError> {
    let checked = memory.checks().any();
    let target = tree.target.map_or(0, |target| 10 * target.major + target.minor);
    let (mut symbols, mut globals) = (Symbols { checked, target, ..Symbols::default() }, Globals::new());
    let constant_bytes = place_constants(tree, memory, storage, &mut symbols)?;
    let mut next_constant = constant_bytes;
    for variable in &tree.variables {
        let bytes = variable.count.saturating_mul(variable.ty.bytes().into());
        let symbol = match variable.space {
            Space::Shared if variable.is_extern || variable.count == 0 => Symbol::DynamicShared,
            Space::Shared => {
                let offset = place_shared(shared_end, variable)?;
                symbols.shared.push(shared_variable(variable, offset));
                Symbol::Shared { offset }
            }
            _ if variable.is_extern => {
                let message = format!("unresolved external variable `{}`", variable.name);
                return Err(LoadError::new(variable.line, LoadErrorKind::Unresolved, message));
            }
            Space::Const => {
                next_constant = next_constant.next_multiple_of(variable.align.into());
                let address = next_constant;
                next_constant += bytes;
                Symbol::Global { address }
            }
            _ => Symbol::Global { address: place(memory, storage, bytes, variable.line)? },
        };
        if let Symbol::Global { address } = symbol {
            globals.insert(variable.name.to_owned(), (address, bytes));
        }
        if symbols.names.insert(variable.name, symbol).is_some() {
            return Err(LoadError::syntax(variable.line, format!("`{}` is defined twice", variable.name)));
        }
    }
    symbols.explicit_clusters = tree.functions.iter().any(|function| function.explicit_cluster);
    declare_functions(tree, &mut symbols)?;
    Ok((symbols, globals))
}

/// One allocation for all constants; gives its start.
fn place_constants(
    tree: &Tree,
    memory: &Memory,
    storage: &mut Storage,
    symbols: &mut Symbols,
) -> Result<u64, LoadError> {
    let (mut end, mut line) = (0u64, 0);
    for variable in tree.variables.iter().filter(|variable| variable.space == Space::Const && !variable.is_extern) {
        let bytes = variable.count.saturating_mul(variable.ty.bytes().into());
        end = end.next_multiple_of(variable.align.into()).saturating_add(bytes);
        line = variable.line;
    }
    if end == 0 {
        return Ok(0);
    }
    let start = place(memory, storage, end, line)?;
    symbols.constants = (start, end);
    Ok(start)
}

fn place(memory: &Memory, storage: &mut Storage, bytes: u64, line: u32) -> Result<u64, LoadError> {
    let address = memory
        .alloc(bytes)
        .map_err(|error| LoadError::new(line, LoadErrorKind::OutOfMemory, format!("failed to {error}")))?;
    storage.addresses.push(address);
    // What a variable's declaration does not say is zero.
    memory.note_written(address, bytes);
    Ok(address)
}

/// Words of a function's parameters or results.
fn words(list: &[Variable]) -> usize {
    list.iter().map(|v| v.count.saturating_mul(v.ty.bytes().into()).div_ceil(4) as usize).sum()
}

fn declare_functions<'a>(tree: &Tree<'a>, symbols: &mut Symbols<'a>) -> Result<(), LoadError> {
    let mut index = 0;
    for function in &tree.functions {
        if function.body.is_some() {
            symbols.names.insert(function.name, Symbol::Function(Callee::Function(index)));
            symbols.signatures.insert(function.name, (words(&function.params), words(&function.results)));
            index += 1;
        }
    }
    for (alias, name) in &tree.aliases {
        let function = symbols.names.get(name).filter(|symbol| matches!(symbol, Symbol::Function(_))).cloned();
        let Some(function) = function else {
            let message = format!("unresolved function `{name}` of the alias `{alias}`");
            return Err(LoadError::new(0, LoadErrorKind::Unresolved, message));
        };
        symbols.names.insert(alias, function);
        if let Some(signature) = symbols.signatures.get(name).copied() {
            symbols.signatures.insert(alias, signature);
        }
    }
    for function in &tree.functions {
        if symbols.names.contains_key(function.name) {
            continue;
        }
        let callee = match function.name {
            "vprintf" => Callee::Print,
            "__assertfail" => Callee::AssertFail,
            "malloc" => Callee::Allocate,
            "free" => Callee::Free,
            name => {
                let message = format!("unresolved external function `{name}`");
                return Err(LoadError::new(function.line, LoadErrorKind::Unresolved, message));
            }
        };
        symbols.names.insert(function.name, Symbol::Function(callee));
    }
    Ok(())
}

/// Writes the initial values of variables; fresh memory is zero.
fn fill(tree: &Tree, symbols: &Symbols, memory: &Memory) -> Result<(), LoadError> {
    for variable in &tree.variables {
        let Some(Symbol::Global { address }) = symbols.get(variable.name) else { continue };
        let size = variable.ty.bytes() as usize;
        let mut bytes = Vec::with_capacity(variable.initial.len() * size);
        for initial in &variable.initial {
            let bits = initial_bits(initial, variable, symbols)?;
            bytes.extend_from_slice(&bits.to_le_bytes()[..size]);
        }
        // SAFETY: the bytes are a live vector of that length.
        unsafe { memory.copy_in(address, bytes.as_ptr(), bytes.len() as u64) }
            .map_err(|error| LoadError::syntax(variable.line, format!("failed to {error}")))?;
    }
    Ok(())
}

fn initial_bits(initial: &Initial, variable: &Variable, symbols: &Symbols) -> Result<u64, LoadError> {
    Ok(match (initial, variable.ty) {
        (Initial::Integer(value), Type::F32) => u64::from((*value as i64 as f32).to_bits()),
        (Initial::Integer(value), Type::F64) => (*value as i64 as f64).to_bits(),
        (Initial::Integer(value), _) => *value,
        (Initial::Single(bits), Type::F64) => f64::from(f32::from_bits(*bits)).to_bits(),
        (Initial::Single(bits), _) => u64::from(*bits),
        (Initial::Double(value), Type::F32) => u64::from((*value as f32).to_bits()),
        (Initial::Double(value), _) => value.to_bits(),
        (Initial::Symbol { name, offset }, _) => {
            if variable.ty.bits() != 64 {
                return Err(LoadError::syntax(variable.line, "an address needs 64 bits"));
            }
            initial_address(name, variable, symbols)?.wrapping_add_signed(*offset)
        }
        (Initial::Byte { shift, name, offset }, _) => {
            let start = name.map_or(Ok(0), |name| initial_address(name, variable, symbols))?;
            start.wrapping_add_signed(*offset) >> shift & 0xff
        }
    })
}

/// The address of a variable or a function that an initial value names.
fn initial_address(name: &str, variable: &Variable, symbols: &Symbols) -> Result<u64, LoadError> {
    match symbols.get(name) {
        Some(Symbol::Global { address }) => Ok(address),
        Some(Symbol::Function(Callee::Function(index))) => Ok(FUNCTION_WINDOW + index as u64 * FUNCTION_STRIDE),
        _ => {
            let message = format!("unresolved name `{name}` in an initial value");
            Err(LoadError::new(variable.line, LoadErrorKind::Unresolved, message))
        }
    }
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

fn lower_all<'a>(tree: &Tree<'a>, symbols: &Symbols<'a>, mut shared_start: u32) -> Result<Lowered, LoadError> {
    let bodies: Vec<_> = tree.functions.iter().filter(|function| function.body.is_some()).collect();
    let mut lowered =
        Lowered { functions: Vec::new(), kernels: Vec::new(), accesses: 0, shared: symbols.shared.clone() };
    lowered.functions.resize_with(bodies.len(), Function::default);
    // Functions first: the shared memory that they declare comes before that of any kernel.
    let order =
        (0..bodies.len()).filter(|i| !bodies[*i].is_entry).chain((0..bodies.len()).filter(|i| bodies[*i].is_entry));
    for index in order {
        let function = bodies[index];
        let (params, params_bytes) = if function.is_entry { kernel_params(function)? } else { (Vec::new(), 0) };
        let offsets: Vec<u32> = params.iter().map(|param: &Param| param.offset).collect();
        let emitter = Emitter::new(symbols, shared_start, &mut lowered.accesses);
        let (code, shared_bytes, registers) = emitter.lower(function, &offsets)?;
        lowered.functions[index] = code;
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
            registers,
            max_threads: limit as u32,
            required_block: function.required,
        });
    }
    Ok(lowered)
}

fn kernel_params(function: &tree::Function) -> Result<(Vec<Param>, u32), LoadError> {
    let (mut params, mut end) = (Vec::new(), 0u64);
    for variable in &function.params {
        let bytes = variable.count.saturating_mul(variable.ty.bytes().into());
        let offset = end.next_multiple_of(variable.align.into());
        end = offset.saturating_add(bytes);
        if end > KERNEL_PARAM_BYTES_MAX {
            return Err(LoadError::syntax(variable.line, "the kernel has too many parameters"));
        }
        params.push(Param { offset: offset as u32, bytes: bytes as u32, align: variable.align });
    }
    Ok((params, end as u32))
}

/// Local memory that a thread needs for `function` and the deepest chain of calls below it, where that can't be told with
/// so much for it.
fn local_bytes(program: &Program, function: usize, recursion_bytes: u32) -> u32 {
    let depth = deepest(program, function, CHAIN_MAX, &mut HashMap::new());
    let fallback = program.functions[function].frame_locals() + u64::from(recursion_bytes);
    depth.unwrap_or(fallback).min(u64::from(u32::MAX / 64)) as u32
}

/// Local memory of the deepest chain of calls from `index` down; `None` where it can't be told.
fn deepest(program: &Program, index: usize, left: u32, known: &mut HashMap<usize, Option<u64>>) -> Option<u64> {
    match known.get(&index) {
        Some(depth) => return *depth,
        // Reached again before its own depth is known, the function calls itself.
        None => known.insert(index, None),
    };
    let function = &program.functions[index];
    let mut below = if function.calls.indirect || left == 0 { None } else { Some(0) };
    for callee in &function.calls.functions {
        let Some(known_so_far) = below else { break };
        below = deepest(program, *callee, left - 1, known).map(|depth| depth.max(known_so_far));
    }
    let depth = below.map(|below| below + function.frame_locals());
    known.insert(index, depth);
    depth
}
