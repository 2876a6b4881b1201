//! The syntax tree of a PTX module. Names are slices of the text.

use super::types::Type;

/// A whole PTX text.
#[derive(Debug, Default)]
pub struct Tree<'a> {
    /// PTX version (`.version`), as major and minor number.
    pub version: (u32, u32),
    /// Architecture of `.target sm_NN`.
    pub target: Option<Target>,
    pub variables: Vec<Variable<'a>>,
    pub functions: Vec<Function<'a>>,
    /// Aliases of functions (`.alias`), with the names that they stand for.
    pub aliases: Vec<(&'a str, &'a str)>,
    /// Numbers and names of the `.file` directives.
    pub files: Vec<(u32, &'a str)>,
}

#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub line: u32,
    pub major: u32,
    pub minor: u32,
    /// True for `sm_90a` and the like, which run on exactly that architecture.
    pub exact: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    Global,
    Const,
    Shared,
    Local,
    Param,
}

/// Linkage: where the name of a variable or a function is visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Linkage {
    /// In its own text only.
    #[default]
    Internal,
    Visible,
    /// Everywhere, unless an earlier text defines the name as visible or weak.
    Weak,
    /// Like weak, but the largest of several definitions counts.
    Common,
    /// Defined by another text.
    Extern,
}

/// A variable or a parameter.
#[derive(Clone, Debug)]
pub struct Variable<'a> {
    pub line: u32,
    pub name: &'a str,
    pub space: Space,
    pub ty: Type,
    pub align: u32,
    /// Number of elements; 0 for an array of unspecified length.
    pub count: u64,
    pub linkage: Linkage,
    pub initial: Vec<Initial<'a>>,
    /// Set if it is a texture, sampler or surface reference, which has no bytes of its own.
    pub opaque: Option<Opaque<'a>>,
}

/// A variable of type `.texref`, `.samplerref` or `.surfref`.
#[derive(Clone, Debug)]
pub enum Opaque<'a> {
    Texture,
    /// A sampler's properties and their values, as written.
    Sampler(Vec<(&'a str, &'a str)>),
    Surface,
}

#[derive(Clone, Copy, Debug)]
pub enum Initial<'a> {
    /// Raw bits of an integer or an f64.
    Integer(u64),
    Single(u32),
    Double(f64),
    /// The address of a symbol plus an offset. Only global and constant variables and functions are allowed, so it is
    /// its own generic address.
    Symbol {
        name: &'a str,
        offset: i64,
    },
    /// One byte of such an address, or of a number if there is no name.
    Byte {
        shift: u32,
        name: Option<&'a str>,
        offset: i64,
    },
}

/// A kernel or a function. Without a body it is a declaration.
#[derive(Debug)]
pub struct Function<'a> {
    pub line: u32,
    pub name: &'a str,
    pub linkage: Linkage,
    pub is_entry: bool,
    pub results: Vec<Variable<'a>>,
    pub params: Vec<Variable<'a>>,
    pub max_threads: Option<u64>,
    pub required: Option<[u32; 3]>,
    pub registers_max: Option<u32>,
    /// True if it declares that it runs in clusters, of one block each.
    pub explicit_cluster: bool,
    pub body: Option<Vec<Statement<'a>>>,
}

#[derive(Debug)]
pub enum Statement<'a> {
    /// `{`: opens a scope for the variables of a block of code.
    Open,
    Close,
    Label(&'a str),
    Registers(Registers<'a>),
    Variable(Variable<'a>),
    /// The labels of `name: .branchtargets`.
    Targets(&'a str, Vec<&'a str>),
    /// `.loc`: the source location of the statements that follow.
    Location(Location),
    /// `name: .callprototype`. The arguments of the call contain all that is needed of it.
    Prototype,
    Instruction(Instruction<'a>),
}

/// A source location, and the one that it was inlined at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    pub at: Position,
    pub inlined_at: Option<Position>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Number of a `.file` directive.
    pub file: u32,
    /// Line, from 1; 0 if the compiler knows of none.
    pub line: u32,
    pub column: u32,
}

/// `.reg .b32 %r<10>` or `.reg .b32 a, b`.
#[derive(Debug)]
pub struct Registers<'a> {
    pub line: u32,
    pub ty: Type,
    pub shape: Shape,
    pub names: Vec<(&'a str, Option<u32>)>,
}

/// Number of values of its type that a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Scalar,
    /// `.v2` or `.v4`.
    Vector(u32),
    /// `.b128`: two 64-bit halves.
    Quad,
}

#[derive(Clone, Debug)]
pub struct Instruction<'a> {
    pub line: u32,
    /// Register of the guard predicate, and whether it is negated.
    pub guard: Option<(&'a str, bool)>,
    /// The opcode as written, for messages.
    pub text: &'a str,
    pub mnemonic: &'a str,
    pub modifiers: Vec<&'a str>,
    pub operands: Vec<Operand<'a>>,
}

#[derive(Clone, Debug)]
pub enum Operand<'a> {
    /// A register, a variable, a label or a function.
    Name(&'a str),
    /// `!p`.
    Negated(&'a str),
    /// `%tid.x`.
    Element(&'a str, &'a str),
    Integer(u64),
    /// Bits of a floating-point literal: `0f`, `0d` or decimal.
    Single(u32),
    Double(f64),
    /// `name + offset` outside brackets.
    Offset(&'a str, i64),
    /// `[base + offset]`.
    Address(Base<'a>, i64),
    /// `[base, {x, y}]`: coordinates in a texture, a surface or a tensor.
    Indexed(Base<'a>, Vec<Operand<'a>>),
    /// `{a, b}`.
    Vector(Vec<Operand<'a>>),
    /// `{a, b}|p`: values, and a predicate that says whether they are resident.
    Resident(Vec<Operand<'a>>, &'a str),
    /// `(a, b)` of a call.
    List(Vec<Operand<'a>>),
    /// `p|q`.
    Both(&'a str, &'a str),
    /// `_`.
    Sink,
}

#[derive(Clone, Copy, Debug)]
pub enum Base<'a> {
    Name(&'a str),
    Integer(u64),
}
