//! The tree of a PTX module. Names are slices of the text.

use super::types::Type;

/// A whole PTX text.
#[derive(Debug, Default)]
pub struct Tree<'a> {
    /// The version of PTX, as major and minor number.
    pub version: (u32, u32),
    /// The architecture of `.target sm_NN`.
    pub target: Option<Target>,
    pub variables: Vec<Variable<'a>>,
    pub functions: Vec<Function<'a>>,
    /// Other names of functions, with the names that they stand for.
    pub aliases: Vec<(&'a str, &'a str)>,
    /// Numbers and names of `.file` directives.
    pub files: Vec<(u32, &'a str)>,
}

#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub line: u32,
    pub major: u32,
    pub minor: u32,
    /// `sm_90a` and its like run on exactly that architecture.
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

/// Where the name of a variable or a function is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Linkage {
    /// In its own text alone.
    #[default]
    Internal,
    Visible,
    /// Everywhere, unless another text has it visible or weak before this one.
    Weak,
    /// As weak; the largest of several counts.
    Common,
    /// Another text defines it.
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
    /// Elements; 0 for an array without a length.
    pub count: u64,
    pub linkage: Linkage,
    pub initial: Vec<Initial<'a>>,
    /// It stands for a texture, a sampler or a surface, and has no bytes of its own.
    pub opaque: Option<Opaque<'a>>,
}

/// A variable of type `.texref`, `.samplerref` or `.surfref`.
#[derive(Clone, Debug)]
pub enum Opaque<'a> {
    Texture,
    /// With its properties and their values, as written.
    Sampler(Vec<(&'a str, &'a str)>),
    Surface,
}

#[derive(Clone, Copy, Debug)]
pub enum Initial<'a> {
    /// Raw bits of an integer or an f64.
    Integer(u64),
    Single(u32),
    Double(f64),
    /// The address of a symbol plus an offset. It is its own generic address: only global and constant variables and
    /// functions have an address that is known here.
    Symbol {
        name: &'a str,
        offset: i64,
    },
    /// One byte of such an address, or of a number where there is no name.
    Byte {
        shift: u32,
        name: Option<&'a str>,
        offset: i64,
    },
}

/// A kernel or a function; without a body it is a declaration.
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
    /// It says that it runs in clusters, of one block each.
    pub explicit_cluster: bool,
    pub body: Option<Vec<Statement<'a>>>,
}

#[derive(Debug)]
pub enum Statement<'a> {
    /// Variables of one block: a scope opens and closes.
    Open,
    Close,
    Label(&'a str),
    Registers(Registers<'a>),
    Variable(Variable<'a>),
    /// The labels of `name: .branchtargets`.
    Targets(&'a str, Vec<&'a str>),
    /// `.loc`: where what follows stands in the source.
    Location(Location),
    /// `name: .callprototype`, which tells only what the call's arguments tell too.
    Prototype,
    Instruction(Instruction<'a>),
}

/// A place in a source file, and the one that it was inlined at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    pub at: Position,
    pub inlined_at: Option<Position>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Number of a `.file` directive.
    pub file: u32,
    /// 0 where the compiler knows of no line.
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

/// How many values of its type a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Scalar,
    /// `.v2` or `.v4`.
    Vector(u32),
    /// `.b128`: two halves of 64 bits.
    Quad,
}

#[derive(Clone, Debug)]
pub struct Instruction<'a> {
    pub line: u32,
    /// Register of the guard, and whether it is negated.
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
    /// The bits of `0f` and `0d` literals, or of a decimal one.
    Single(u32),
    Double(f64),
    /// `name + offset` outside brackets.
    Offset(&'a str, i64),
    /// `[base + offset]`.
    Address(Base<'a>, i64),
    /// `[base, {x, y}]`: what a texture, a surface or a tensor has there.
    Indexed(Base<'a>, Vec<Operand<'a>>),
    /// `{a, b}`.
    Vector(Vec<Operand<'a>>),
    /// `{a, b}|p`: values, and whether they were there.
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
