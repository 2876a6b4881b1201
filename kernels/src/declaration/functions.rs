//! Finds the `__global__` functions of the code, and the names of types.

use std::collections::HashMap;

use super::{brackets::closing, lexer::is_name};

/// The maximum number of kernels that are read from the words up to one `;` or `{`. An attribute that only a header
/// defines looks like a kernel too.
const KERNELS_OF_HEAD_MAX: usize = 8;

/// The words for which the name of a type stands.
pub type Aliases<'a> = HashMap<&'a str, Vec<&'a str>>;

/// The declaration of a `__global__` function.
#[derive(Debug)]
pub struct Function<'w, 'a> {
    pub name: &'a str,
    pub parameters: &'w [&'a str],
    pub template: Vec<&'a str>,
    pub is_template: bool,
    pub is_c: bool,
    pub is_in_namespace: bool,
}

/// Returns all `__global__` functions outside of bodies, and the names that `typedef` and `using` give to types.
pub fn find<'w, 'a>(words: &'w [&'a str]) -> (Vec<Function<'w, 'a>>, Aliases<'a>) {
    let mut functions = Vec::new();
    let mut aliases = Aliases::new();
    let mut blocks = Blocks::default();
    let mut head = Head::default();
    let mut index = 0;
    while let Some(&word) = words.get(index) {
        match word {
            "{" => match head.block() {
                Some(block) => {
                    blocks.enter(block);
                    head.clear();
                }
                None => {
                    index = closing(words, index);
                    // The body of a function ends its declaration. That of a type may be followed by a name.
                    if head.has_parameters { head.clear() } else { head.push("{}") }
                }
            },
            ";" | "}" => {
                note_alias(&head.words, &mut aliases);
                head.clear();
                if word == "}" {
                    blocks.leave();
                }
            }
            "(" => {
                let end = closing(words, index);
                if let Some(name) = head.kernel() {
                    functions.push(Function {
                        name,
                        parameters: &words[index + 1..end],
                        template: head.template().to_vec(),
                        is_template: head.is_template,
                        is_c: head.is_c || blocks.c > 0,
                        is_in_namespace: blocks.namespaces > 0,
                    });
                    head.kernels += 1;
                }
                head.push("(");
                head.push(")");
                index = end;
            }
            _ => head.push(word),
        }
        index += 1;
    }
    (functions, aliases)
}

/// A block that may contain kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    Namespace,
    ExternC,
    /// `extern "C++"`
    OtherExtern,
}

/// The blocks around a word.
#[derive(Debug, Default)]
struct Blocks {
    open: Vec<Block>,
    namespaces: usize,
    c: usize,
}

impl Blocks {
    fn enter(&mut self, block: Block) {
        self.open.push(block);
        self.namespaces += usize::from(block == Block::Namespace);
        self.c += usize::from(block == Block::ExternC);
    }

    fn leave(&mut self) {
        let block = self.open.pop();
        self.namespaces -= usize::from(block == Some(Block::Namespace));
        self.c -= usize::from(block == Some(Block::ExternC));
    }
}

/// The words since the last declaration, without those in parentheses and braces.
#[derive(Debug, Default)]
struct Head<'a> {
    words: Vec<&'a str>,
    kernels: usize,
    is_global: bool,
    is_template: bool,
    is_namespace: bool,
    is_c: bool,
    has_parameters: bool,
}

impl<'a> Head<'a> {
    fn push(&mut self, word: &'a str) {
        match word {
            "__global__" => self.is_global = true,
            "template" => self.is_template = true,
            "namespace" => self.is_namespace = true,
            "\"C\"" => self.is_c = true,
            ")" => self.has_parameters = true,
            _ => {}
        }
        self.words.push(word);
    }

    fn clear(&mut self) {
        let mut words = std::mem::take(&mut self.words);
        words.clear();
        *self = Self { words, ..Self::default() };
    }

    /// Returns the kind of a block that begins here, if it may contain kernels.
    fn block(&self) -> Option<Block> {
        match self.words.as_slice() {
            _ if self.is_namespace => Some(Block::Namespace),
            ["extern", "\"C\""] => Some(Block::ExternC),
            ["extern", _] => Some(Block::OtherExtern),
            _ => None,
        }
    }

    /// Returns the name of the kernel whose parameters begin here.
    fn kernel(&self) -> Option<&'a str> {
        let name = *self.words.last()?;
        // Attributes such as `__launch_bounds__` also precede parentheses.
        let is_attribute = name.starts_with("__") && name.ends_with("__");
        (self.is_global && is_name(name) && !is_attribute && self.kernels < KERNELS_OF_HEAD_MAX).then_some(name)
    }

    /// Returns the parameters of the template.
    fn template(&self) -> &[&'a str] {
        match self.words.iter().position(|word| *word == "<") {
            Some(start) if self.is_template => &self.words[start + 1..closing(&self.words, start)],
            _ => &[],
        }
    }
}

fn note_alias<'a>(head: &[&'a str], aliases: &mut Aliases<'a>) {
    if let ["typedef", meaning @ .., name] | ["using", name, "=", meaning @ ..] = head
        && is_name(name)
    {
        aliases.insert(name, meaning.to_vec());
    }
}
