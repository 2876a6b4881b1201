//! The linker: places the variables of texts, numbers their functions, and resolves every name of each text.
//!
//! A name that several texts define has one meaning in all of them: the visible definition, or the first weak one. As
//! in a linker, only names are compared, not types or parameters.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use super::references;
use super::shared::{dynamic_align, is_dynamic, place_shared, shared_variable};
use super::symbols::{Symbol, Symbols};
use crate::memory::ALLOCATION_ALIGN;
use crate::module::{Reference, Storage};
use crate::program::{Callee, SharedVariable};
use crate::ptx::error::{LoadError, LoadErrorKind};
use crate::ptx::tree::{Base, Function, Initial, Linkage, Operand, Space, Statement, Tree, Variable};

/// Maximum constant memory of a module in bytes, on every device.
const CONSTANT_BYTES_MAX: u64 = 64 << 10;

/// A PTX text to link.
#[derive(Clone, Copy, Debug)]
pub struct Text<'t> {
    /// Name for messages; empty for a single text.
    pub name: &'t str,
    pub ptx: &'t str,
}

/// What happens with a name that no text defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undefined {
    Refused,
    /// Another text may define it later: the program is only checked and never runs.
    Allowed,
}

/// A parsed text and the meaning of its names.
#[derive(Debug)]
pub(super) struct Unit<'a> {
    pub name: &'a str,
    pub tree: Tree<'a>,
    pub symbols: Symbols<'a>,
}

/// The result of linking, for all texts.
#[derive(Debug, Default)]
pub(super) struct Linked<'a> {
    /// Functions with a body, as index of the text and index in it. Callees are indices into this list.
    pub functions: Vec<(usize, usize)>,
    /// Variables with an address, as index of the text and index in it.
    pub variables: Vec<(usize, usize)>,
    /// Addresses and bytes of variables in device memory.
    pub globals: HashMap<String, (u64, u64)>,
    /// Texture, sampler and surface references.
    pub references: HashMap<String, Reference>,
    pub shared: Vec<SharedVariable>,
    /// End of the shared variables of the module scope.
    pub shared_end: u32,
    /// Alignment of dynamic shared memory in bytes: the largest of the variables in the module scope.
    pub dynamic_align: u32,
    /// Address and bytes of constant memory.
    pub constants: (u64, u64),
    /// Meaning of names in texts that do not define them.
    exported: HashMap<&'a str, Symbol>,
}

/// Links `units`. Variables go to `storage`; shared variables start at `shared_start`.
pub(super) fn link<'a>(
    units: &mut [Unit<'a>],
    storage: &mut Storage,
    shared_start: u32,
    undefined: Undefined,
) -> Result<Linked<'a>, LoadError> {
    let chosen = choose(units)?;
    let mut linked = Linked { shared_end: shared_start, ..Linked::default() };
    for variable in units.iter().flat_map(|unit| &unit.tree.variables) {
        if variable.space == Space::Shared && is_dynamic(variable) {
            linked.dynamic_align = linked.dynamic_align.max(dynamic_align(variable)?);
        }
    }
    linked.constants = place_constants(units, &chosen, storage)?;
    let mut next_constant = linked.constants.0;
    for (index, unit) in units.iter_mut().enumerate() {
        let Unit { tree, symbols, .. } = unit;
        for (place, variable) in tree.variables.iter().enumerate() {
            if chosen.keep_variable(index, variable) {
                let symbol = place_variable(variable, &mut linked, &mut next_constant, storage)?;
                linked.variables.push((index, place));
                linked.define(symbols, variable.name, variable.linkage, symbol);
            }
        }
        for (place, function) in tree.functions.iter().enumerate() {
            let sizes = (words(&function.params), words(&function.results));
            symbols.signatures.insert(function.name, sizes);
            if function.body.is_some() && chosen.keep_function(index, function) {
                let callee = Symbol::Function(Callee::Function(linked.functions.len()));
                linked.functions.push((index, place));
                linked.define(symbols, function.name, exported_linkage(function), callee);
            }
        }
        symbols.explicit_clusters = tree.functions.iter().any(|function| function.explicit_cluster);
        symbols.constants = linked.constants;
    }
    units.iter_mut().try_for_each(|unit| linked.resolve_aliases(unit))?;
    let missing = units.iter_mut().flat_map(|unit| linked.resolve_externals(unit, undefined)).collect::<Vec<_>>();
    match missing.as_slice() {
        [] => Ok(linked),
        [first, rest @ ..] => {
            let message = rest.iter().fold(first.message.clone(), |all, next| all + "\n" + &next.message);
            Err(LoadError { message, ..first.clone() })
        }
    }
}

/// For each name that texts share, the text whose definition counts.
#[derive(Debug, Default)]
struct Chosen<'a>(HashMap<&'a str, (usize, Linkage, u64)>);

fn choose<'a>(units: &[Unit<'a>]) -> Result<Chosen<'a>, LoadError> {
    let mut chosen = Chosen::default();
    for (index, unit) in units.iter().enumerate() {
        let mut own = HashSet::new();
        let variables = unit.tree.variables.iter().filter(|variable| variable.linkage != Linkage::Extern);
        let functions = unit.tree.functions.iter().filter(|function| function.body.is_some());
        let variables = variables.map(|v| (v.name, v.line, v.linkage, v.count.saturating_mul(v.ty.bytes().into())));
        let functions = functions.map(|function| (function.name, function.line, exported_linkage(function), 0));
        for (name, line, linkage, bytes) in variables.chain(functions) {
            if !own.insert(name) {
                return Err(LoadError::syntax(line, format!("`{name}` is defined twice")));
            }
            if linkage != Linkage::Internal {
                chosen.add(units, index, name, linkage, bytes)?;
            }
        }
    }
    Ok(chosen)
}

/// Returns the linkage of a function. Kernels are always visible, because they are looked up by name.
fn exported_linkage(function: &Function) -> Linkage {
    match function.linkage {
        Linkage::Internal | Linkage::Extern if function.is_entry => Linkage::Visible,
        linkage => linkage,
    }
}

/// Returns the strength of a linkage; of two definitions the stronger one counts.
fn strength(linkage: Linkage) -> u32 {
    match linkage {
        Linkage::Weak => 0,
        Linkage::Common => 1,
        Linkage::Internal | Linkage::Visible | Linkage::Extern => 2,
    }
}

impl<'a> Chosen<'a> {
    fn add(
        &mut self,
        units: &[Unit<'a>],
        unit: usize,
        name: &'a str,
        linkage: Linkage,
        bytes: u64,
    ) -> Result<(), LoadError> {
        let Some((first, known, known_bytes)) = self.0.get(name).copied() else {
            self.0.insert(name, (unit, linkage, bytes));
            return Ok(());
        };
        let takes_over = match strength(linkage).cmp(&strength(known)) {
            Ordering::Less => false,
            Ordering::Greater => true,
            Ordering::Equal if linkage == Linkage::Weak => false,
            Ordering::Equal if linkage == Linkage::Common => bytes > known_bytes,
            Ordering::Equal => {
                let [here, there] = [unit, first].map(|index| units[index].name);
                let message = format!("Multiple definition of '{name}' in '{here}', first defined in '{there}'");
                return Err(LoadError::new(0, LoadErrorKind::DefinedTwice, message));
            }
        };
        if takes_over {
            self.0.insert(name, (unit, linkage, bytes));
        }
        Ok(())
    }

    fn is_of(&self, unit: usize, name: &str, linkage: Linkage) -> bool {
        linkage == Linkage::Internal || self.0.get(name).is_some_and(|(chosen, ..)| *chosen == unit)
    }

    fn keep_variable(&self, unit: usize, variable: &Variable) -> bool {
        variable.linkage != Linkage::Extern && self.is_of(unit, variable.name, variable.linkage)
    }

    fn keep_function(&self, unit: usize, function: &Function) -> bool {
        self.is_of(unit, function.name, exported_linkage(function))
    }
}

/// Allocates memory for all constants; returns its address and bytes.
fn place_constants(units: &[Unit], chosen: &Chosen, storage: &mut Storage) -> Result<(u64, u64), LoadError> {
    let (mut end, mut align, mut line) = (0u64, 1, 0);
    for (index, unit) in units.iter().enumerate() {
        let constants = unit.tree.variables.iter().filter(|variable| variable.space == Space::Const);
        for variable in constants.filter(|variable| chosen.keep_variable(index, variable)) {
            end = end.next_multiple_of(variable.align.into()).saturating_add(variable_bytes(variable));
            align = align.max(u64::from(variable.align));
            line = variable.line;
        }
    }
    if end > CONSTANT_BYTES_MAX {
        let message = format!("the constants take {end} bytes, and {CONSTANT_BYTES_MAX} (64 KiB) is the limit");
        return Err(LoadError::syntax(line, message));
    }
    if end == 0 { Ok((0, 0)) } else { Ok((place(storage, end, align, line)?, end)) }
}

fn place_variable(
    variable: &Variable,
    linked: &mut Linked,
    next_constant: &mut u64,
    storage: &mut Storage,
) -> Result<Symbol, LoadError> {
    if let Some(opaque) = &variable.opaque {
        let reference = references::place(variable, opaque, storage)?;
        linked.references.insert(variable.name.to_owned(), reference);
        return Ok(Symbol::Opaque { handle: reference.handle });
    }
    let bytes = variable_bytes(variable);
    let address = match variable.space {
        Space::Shared if variable.count == 0 => return Ok(Symbol::DynamicShared),
        Space::Shared => {
            let offset = place_shared(&mut linked.shared_end, variable)?;
            linked.shared.push(shared_variable(variable, offset));
            return Ok(Symbol::Shared { offset });
        }
        Space::Const => {
            let address = next_constant.next_multiple_of(variable.align.into());
            *next_constant = address + bytes;
            address
        }
        _ => place(storage, bytes, variable.align.into(), variable.line)?,
    };
    // `cuModuleGetGlobal` also finds internal variables; an exported variable of that name takes precedence.
    match variable.linkage {
        Linkage::Internal => drop(linked.globals.entry(variable.name.to_owned()).or_insert((address, bytes))),
        _ => drop(linked.globals.insert(variable.name.to_owned(), (address, bytes))),
    }
    Ok(Symbol::Global { address })
}

/// Allocates memory for a variable. If its alignment exceeds that of allocations, it allocates more and rounds up.
fn place(storage: &mut Storage, bytes: u64, align: u64, line: u32) -> Result<u64, LoadError> {
    let memory = &storage.memory;
    let start = memory
        .alloc(bytes.saturating_add(align.saturating_sub(ALLOCATION_ALIGN)))
        .map_err(|error| LoadError::new(line, LoadErrorKind::OutOfMemory, error.to_string()))?;
    let address = start.next_multiple_of(align.max(1));
    // The parts of a variable without an initial value are zero.
    memory.note_written(address, bytes);
    storage.addresses.push(start);
    Ok(address)
}

fn variable_bytes(variable: &Variable) -> u64 {
    variable.count.saturating_mul(variable.ty.bytes().into())
}

/// Returns the number of words of a function's parameters or results.
fn words(list: &[Variable]) -> usize {
    list.iter().map(|variable| variable_bytes(variable).div_ceil(4) as usize).sum()
}

impl<'a> Linked<'a> {
    fn define(&mut self, symbols: &mut Symbols<'a>, name: &'a str, linkage: Linkage, symbol: Symbol) {
        if linkage != Linkage::Internal {
            self.exported.insert(name, symbol.clone());
        }
        symbols.names.insert(name, symbol);
    }

    fn resolve_aliases(&mut self, unit: &mut Unit<'a>) -> Result<(), LoadError> {
        for (alias, name) in &unit.tree.aliases {
            let known = unit.symbols.get(name).or_else(|| self.exported.get(name).cloned());
            let Some(function) = known.filter(|symbol| matches!(symbol, Symbol::Function(_))) else {
                let message = format!("unresolved function `{name}` of the alias `{alias}`");
                return Err(LoadError::new(0, LoadErrorKind::Unresolved, message));
            };
            self.exported.entry(alias).or_insert_with(|| function.clone());
            unit.symbols.names.insert(alias, function);
            if let Some(signature) = unit.symbols.signatures.get(name).copied() {
                unit.symbols.signatures.insert(alias, signature);
            }
        }
        Ok(())
    }

    /// Resolves the names that a text does not define. Returns an error for each name that is used but missing.
    fn resolve_externals(&self, unit: &mut Unit<'a>, undefined: Undefined) -> Vec<LoadError> {
        let Unit { name: unit_name, tree, symbols } = unit;
        let mut missing = Vec::new();
        for variable in &tree.variables {
            if symbols.names.contains_key(variable.name) {
                continue;
            }
            let symbol = match self.exported.get(variable.name) {
                Some(symbol) => symbol.clone(),
                None if variable.space == Space::Shared => Symbol::DynamicShared,
                None if undefined == Undefined::Allowed && variable.opaque.is_some() => Symbol::Opaque { handle: 0 },
                None if undefined == Undefined::Allowed => Symbol::Global { address: 0 },
                None => {
                    missing.push((variable.name, variable.line, "variable"));
                    continue;
                }
            };
            symbols.names.insert(variable.name, symbol);
        }
        for function in &tree.functions {
            if symbols.names.contains_key(function.name) {
                continue;
            }
            let symbol = match (self.exported.get(function.name), built_in(function.name)) {
                (Some(symbol), _) => symbol.clone(),
                (None, Some(callee)) => Symbol::Function(callee),
                // Any function will do, because none is called.
                (None, None) if undefined == Undefined::Allowed => Symbol::Function(Callee::Function(0)),
                (None, None) => {
                    missing.push((function.name, function.line, "function"));
                    continue;
                }
            };
            symbols.names.insert(function.name, symbol);
        }
        if missing.is_empty() {
            return Vec::new();
        }
        let used = used_names(tree);
        missing.retain(|(name, ..)| used.contains(name));
        let error = |(name, line, kind): (&str, u32, &str)| match *unit_name {
            "" => LoadError::new(line, LoadErrorKind::Unresolved, format!("unresolved external {kind} `{name}`")),
            unit => {
                let message = format!("Undefined reference to '{name}' in '{unit}'");
                LoadError::new(0, LoadErrorKind::Undefined, message)
            }
        };
        missing.into_iter().map(error).collect()
    }
}

/// Returns the built-in function of this name (`vprintf`, `malloc` and so on).
fn built_in(name: &str) -> Option<Callee> {
    match name {
        "vprintf" => Some(Callee::Print),
        "__assertfail" => Some(Callee::AssertFail),
        "malloc" => Some(Callee::Allocate),
        "free" => Some(Callee::Free),
        _ => None,
    }
}

/// Returns the names that the code and the initial values of a text use.
fn used_names<'a>(tree: &Tree<'a>) -> HashSet<&'a str> {
    let mut used = HashSet::new();
    for initial in tree.variables.iter().flat_map(|variable| &variable.initial) {
        match initial {
            Initial::Symbol { name, .. } | Initial::Byte { name: Some(name), .. } => drop(used.insert(*name)),
            _ => {}
        }
    }
    for statement in tree.functions.iter().filter_map(|function| function.body.as_deref()).flatten() {
        if let Statement::Instruction(instruction) = statement {
            instruction.operands.iter().for_each(|operand| note_names(operand, &mut used));
        }
    }
    used
}

fn note_names<'a>(operand: &Operand<'a>, used: &mut HashSet<&'a str>) {
    match operand {
        Operand::Name(name) | Operand::Offset(name, _) | Operand::Address(Base::Name(name), _) => {
            used.insert(name);
        }
        Operand::Vector(list) | Operand::List(list) => list.iter().for_each(|operand| note_names(operand, used)),
        _ => {}
    }
}
