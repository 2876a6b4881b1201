//! Lowers one function, statement by statement: parameters, scopes, registers, variables, labels and instructions.

use super::emitter::{Emitter, Lowered, Scope};
use super::layout::PLANE_BYTES;
use super::modifiers::Modifiers;
use super::reuse::share_slots;
use super::shared::{dynamic_align, is_dynamic, place_shared, shared_variable};
use super::slots::Overfull;
use super::symbols::Symbol;
use super::writes::Writes;
use crate::ops::lanes::FULL;
use crate::program::{Function, Logic, Op};
use crate::ptx::error::{LoadError, LoadErrorKind};
use crate::ptx::tree::{self, Operand, Space, Statement, Variable};

/// Maximum bytes of a warp's registers in a frame: 8,192 registers of 64 bits, about 30 times those of a device.
const FRAME_BYTES_MAX: u32 = 8192 * 256;

/// Maximum bytes of a warp's registers before they share slots: two million 32-bit registers. This bounds the memory
/// that lowering takes.
const NAMED_BYTES_MAX: u32 = 128 * FRAME_BYTES_MAX;

/// Maximum local memory of a frame in bytes, as on a device.
const LOCAL_BYTES_MAX: u64 = 512 << 10;

/// Maximum alignment of a local variable in bytes; each frame is rounded up to its alignment.
const LOCAL_ALIGN_MAX: u32 = 4 << 10;

/// Maximum number of ranges like `%r<9>` in one scope, because every name has to be compared with each. Compilers
/// declare one per type.
const RANGES_MAX: usize = 256;

/// Maximum bytes of a device function's parameters; more are an error in PTX too.
const PARAM_BYTES_MAX: u64 = 4 << 10;

impl<'a> Emitter<'a, '_> {
    /// Lowers `function`. If it is a kernel, `offsets` are those of its parameters. Returns the code, the end of its
    /// shared memory, and the number of its registers.
    pub fn lower(mut self, function: &tree::Function<'a>, offsets: &[u32]) -> Lowered<(Function, u32, u32)> {
        self.function.name = function.name.to_owned();
        self.is_entry = function.is_entry;
        self.scopes.push(Scope::default());
        self.line = function.line;
        self.declare_params(function, offsets)?;
        let body = function.body.as_deref().unwrap_or_default();
        self.collect_labels(body)?;
        self.writes = Writes::of(body);
        let mut scopes = 0;
        for statement in body {
            match statement {
                Statement::Open => {
                    scopes += 1;
                    self.scopes.push(Scope { number: scopes, ..Scope::default() });
                }
                Statement::Close => {
                    self.scopes.pop();
                }
                _ => self.statement(statement)?,
            }
            if self.layout.bytes > NAMED_BYTES_MAX {
                let named = self.layout.bytes / PLANE_BYTES;
                let message =
                    format!("the function names too many registers: {named} of 32 bits; split it into several");
                return Err(LoadError::syntax(self.line, message));
            }
        }
        self.guard = (self.layout.constant_mask(FULL), 0);
        self.text = "ret";
        self.push(Op::Return);
        self.fuse_chains();
        self.resolve_labels();
        self.place_registers()?;
        let always = self.layout.constant_mask(FULL);
        super::repeats::find(&mut self.function, always);
        super::branches::find(&mut self.function, always);
        let mut texts: Vec<_> = self.texts.iter().collect();
        texts.sort_by_key(|(_, index)| **index);
        self.function.texts = texts.into_iter().map(|(text, _)| (*text).to_owned()).collect();
        Ok((self.function, self.shared_end, self.layout.registers))
    }

    /// Gives the function its frame; registers share slots if that pays off.
    fn place_registers(&mut self) -> Lowered<()> {
        let always = self.layout.constant_mask(FULL);
        self.function.frame_bytes = self.layout.bytes;
        self.function.constants = std::mem::take(&mut self.layout.constants);
        let specials = self.specials.iter().map(|(special, slot)| (*slot, *special));
        (self.function.uniforms, self.function.specials) = specials.partition(|(_, special)| special.is_uniform());
        self.function.locals = self.local_addresses.iter().map(|(offset, slot)| (*slot, *offset)).collect();
        if self.symbols.reuse.applies(self.layout.bytes) {
            return share_slots(&mut self.function, &self.layout.numbers(), always, FRAME_BYTES_MAX)
                .map_err(|overfull| too_many_registers(&self.function, overfull));
        }
        // Lanes never move between frames of a kernel, so its planes are not needed.
        if !self.is_entry {
            self.function.planes = std::mem::take(&mut self.layout.planes);
        }
        match self.layout.bytes {
            0..=FRAME_BYTES_MAX => Ok(()),
            bytes => Err(too_many_registers(&self.function, Overfull { at: 0, words: bytes / PLANE_BYTES })),
        }
    }

    fn declare_params(&mut self, function: &tree::Function<'a>, offsets: &[u32]) -> Lowered<()> {
        if function.is_entry {
            for (param, offset) in function.params.iter().zip(offsets) {
                self.declare(param.name, Symbol::KernelParam { offset: *offset });
            }
            return Ok(());
        }
        for (list, is_result) in [(&function.results, true), (&function.params, false)] {
            for variable in list {
                let words = self.param_words(variable)?;
                let target = if is_result { &mut self.function.results } else { &mut self.function.params };
                target.extend(&words);
                self.declare(variable.name, Symbol::ParamWords(words));
            }
        }
        Ok(())
    }

    /// Returns one word plane for each four bytes of a function's parameter.
    fn param_words(&mut self, variable: &Variable<'a>) -> Lowered<Vec<u32>> {
        let bytes = variable.count.saturating_mul(variable.ty.bytes().into());
        if bytes > PARAM_BYTES_MAX {
            return Err(LoadError::syntax(variable.line, "the parameter is too large"));
        }
        Ok((0..bytes.div_ceil(4)).map(|_| self.layout.word()).collect())
    }

    fn collect_labels(&mut self, body: &[Statement<'a>]) -> Lowered<()> {
        let (mut open, mut count) = (vec![0], 0);
        for statement in body {
            match statement {
                Statement::Open => {
                    count += 1;
                    open.push(count);
                }
                Statement::Close => {
                    open.pop();
                }
                Statement::Label(name) => {
                    let scope = open.last().copied().unwrap_or_default();
                    let next = self.labels.len();
                    if self.labels.insert((scope, name), next).is_some() {
                        return Err(LoadError::syntax(self.line, format!("label `{name}` is defined twice")));
                    }
                }
                Statement::Targets(name, labels) => {
                    self.targets.insert(name, labels.clone());
                }
                _ => {}
            }
        }
        self.positions = vec![0; self.labels.len()];
        Ok(())
    }

    fn resolve_labels(&mut self) {
        for (index, instruction) in self.function.code.iter_mut().enumerate() {
            match &mut instruction.op {
                Op::Jump(target) => {
                    *target = self.positions[*target as usize];
                    self.function.has_loop |= *target as usize <= index;
                }
                Op::JumpTable { targets, .. } => {
                    for target in targets {
                        *target = self.positions[*target as usize];
                    }
                }
                _ => {}
            }
        }
    }

    fn statement(&mut self, statement: &Statement<'a>) -> Lowered<()> {
        match statement {
            Statement::Label(name) => {
                let label = self.label(name)? as usize;
                self.positions[label] = self.function.code.len() as u32;
            }
            Statement::Registers(registers) => self.registers(registers)?,
            Statement::Variable(variable) => self.variable(variable)?,
            Statement::Instruction(instruction) => self.instruction(instruction)?,
            Statement::Location(location) => {
                self.function.lines.push(self.function.code.len() as u32, *location);
            }
            Statement::Targets(..) | Statement::Prototype | Statement::Open | Statement::Close => {}
        }
        Ok(())
    }

    fn registers(&mut self, registers: &tree::Registers<'a>) -> Lowered<()> {
        self.line = registers.line;
        for (name, count) in &registers.names {
            match count {
                Some(count) => {
                    let scope = self.scopes.last_mut().expect("the function's own scope stays open");
                    if scope.ranges.len() == RANGES_MAX {
                        return Err(LoadError::syntax(
                            self.line,
                            format!("more than {RANGES_MAX} ranges of registers"),
                        ));
                    }
                    scope.ranges.push((name, *count, (registers.ty, registers.shape)));
                }
                None => {
                    let symbol = self.new_register(registers.ty, registers.shape);
                    self.declare(name, symbol);
                }
            }
        }
        Ok(())
    }

    fn variable(&mut self, variable: &Variable<'a>) -> Lowered<()> {
        self.line = variable.line;
        let bytes = variable.count.saturating_mul(variable.ty.bytes().into());
        let symbol = match variable.space {
            Space::Param => Symbol::ParamWords(self.param_words(variable)?),
            Space::Local => {
                let offset = u64::from(self.function.local_bytes).next_multiple_of(variable.align.into());
                if bytes > LOCAL_BYTES_MAX || offset + bytes > LOCAL_BYTES_MAX || variable.align > LOCAL_ALIGN_MAX {
                    return Err(LoadError::syntax(variable.line, "too much local memory"));
                }
                self.function.local_bytes = (offset + bytes) as u32;
                self.function.local_align = self.function.local_align.max(variable.align);
                Symbol::Local { offset: offset as u32 }
            }
            Space::Shared if is_dynamic(variable) => {
                self.function.dynamic_align = self.function.dynamic_align.max(dynamic_align(variable)?);
                Symbol::DynamicShared
            }
            Space::Shared => {
                let offset = place_shared(&mut self.shared_end, variable)?;
                self.function.shared.push(shared_variable(variable, offset));
                Symbol::Shared { offset }
            }
            Space::Global | Space::Const => {
                let message = "global and constant variables inside a function are not supported";
                return Err(LoadError::new(variable.line, LoadErrorKind::UnsupportedDirective, message));
            }
        };
        self.declare(variable.name, symbol);
        Ok(())
    }

    fn instruction(&mut self, instruction: &tree::Instruction<'a>) -> Lowered<()> {
        self.line = instruction.line;
        self.text = instruction.text;
        self.guard = match instruction.guard {
            None => (self.layout.constant_mask(FULL), 0),
            Some((name, negated)) => (self.predicate_named(name)?, if negated { FULL } else { 0 }),
        };
        self.check_target(instruction)?;
        self.keep_guard(instruction);
        let mut modifiers = Modifiers::of(instruction);
        let at = self.function.code.len();
        self.dispatch(instruction.mnemonic, &mut modifiers, &instruction.operands)?;
        if instruction.guard.is_none() && self.function.code.len() == at + 1 {
            self.chains.note(instruction, at as u32);
        }
        Ok(())
    }

    /// Lets accesses take indices. With checks on, the code stays as written.
    fn fuse_chains(&mut self) {
        if self.symbols.checked {
            return;
        }
        let mut unneeded = self.chains.fuse(&mut self.function, &self.positions, &mut self.layout, &self.writes);
        unneeded.sort_unstable();
        let moved = |pc: u32| pc - unneeded.partition_point(|place| *place < pc) as u32;
        let mut place = 0;
        self.function.code.retain(|_| {
            place += 1;
            unneeded.binary_search(&(place - 1)).is_err()
        });
        self.positions.iter_mut().for_each(|position| *position = moved(*position));
        self.function.lines.moved(moved);
    }

    /// Copies the guard if the instruction overwrites it. Two results are written one after the other, and the second
    /// still has to use the old guard.
    fn keep_guard(&mut self, instruction: &tree::Instruction<'a>) {
        let (Some((name, _)), Some(Operand::Both(first, second))) = (instruction.guard, instruction.operands.first())
        else {
            return;
        };
        if [*first, *second].contains(&name) {
            let ((slot, invert), always) = (self.guard, (self.layout.constant_mask(FULL), 0));
            let copy = self.layout.mask();
            self.guard = always;
            self.push(Op::Predicate { function: Logic::Copy, d: copy, a: slot, b: slot, invert_b: false });
            self.guard = (copy, invert);
        }
    }

    fn dispatch(&mut self, name: &'a str, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        match name {
            "mov" if m.take("b128") => {
                m.finish()?;
                self.move_quad(operands)
            }
            "mov" => self.mov(m, operands),
            "ld" | "ldu" => self.load(name == "ldu", m, operands),
            "st" => self.store(m, operands),
            "cvta" => self.cvta(m, operands),
            "isspacep" => self.is_space(m, operands),
            "prefetch" | "prefetchu" | "discard" | "applypriority" => self.advise(name, m, operands),
            "atom" | "red" => self.atomic(name == "red", m, operands),
            "cp" => self.copy_async(m, operands),
            "createpolicy" => self.create_policy(m, operands),
            "cvt" => self.convert(m, operands),
            "setp" | "set" => self.compare(name, m, operands),
            "testp" => self.classify(m, operands),
            "selp" | "slct" => self.select(name, m, operands),
            "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shr" | "popc" | "clz" | "brev" | "bfind" | "bfe"
            | "bfi" | "lop3" | "shf" | "prmt" => self.bits(name, m, operands),
            "dp4a" | "dp2a" => self.dot(name, m, operands),
            "bra" | "brx" | "ret" | "exit" | "trap" | "brkpt" | "call" => self.control(name, m, operands),
            "bar" | "barrier" => self.barrier(m, operands),
            "membar" | "fence" => self.fence(name == "membar", m, operands),
            "nanosleep" => self.sleep(m, operands),
            "pmevent" => self.monitor(m, operands),
            "shfl" => self.shuffle(m, operands),
            "vote" => self.vote(m, operands),
            "match" => self.match_lanes(m, operands),
            "redux" => self.reduce(m, operands),
            "elect" => self.elect(m, operands),
            "mbarrier" => self.phase_barrier(m, operands),
            "mapa" => self.map_address(m, operands),
            "getctarank" => self.rank_of_address(m, operands),
            "griddepcontrol" => self.grid_dependency(m, operands),
            "activemask" => self.active_mask(m, operands),
            "tex" | "tld4" | "txq" | "suld" | "sust" | "suq" | "sured" | "istypep" => self.texturing(name, m, operands),
            "wmma" | "mma" | "ldmatrix" | "stmatrix" | "movmatrix" | "wgmma" | "tcgen05" => {
                self.matrix(name, m, operands)
            }
            _ => self.arithmetic(name, m, operands),
        }
    }
}

/// The error for a function in which more registers are live at once, with its constants, than fit a frame.
fn too_many_registers(function: &Function, overfull: Overfull) -> LoadError {
    let most = FRAME_BYTES_MAX / PLANE_BYTES;
    let message = format!(
        "the function has too many registers: {} of 32 bits hold values or constants at once, and a warp has \
         room for {most}; split the function, or keep values in local memory",
        overfull.words
    );
    LoadError::syntax(function.code[overfull.at as usize].line, message)
}
