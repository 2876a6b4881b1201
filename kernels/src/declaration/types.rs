//! The types of parameters: what names of types stand for, and which numbers a type is.

use gpufleet_schema::Dtype;

use super::{
    brackets::{before, has, split},
    functions::Aliases,
    preprocessor::UNREADABLE,
};

/// How deep names of types are replaced inside of others.
const DEPTH_MAX: usize = 32;
/// The maximum number of words for which a name may stand. It is longer than the types of kernels.
const WORDS_OF_NAME_MAX: usize = 256;
/// The maximum number of names that are replaced in one list of parameters. Further names stand for themselves.
const REPLACED_MAX: usize = 1 << 16;

/// The names of types that a kernel's parameters may use.
#[derive(Debug)]
pub struct Types<'t, 'a> {
    aliases: &'t Aliases<'a>,
    template: Aliases<'a>,
    replaced: usize,
}

impl<'t, 'a> Types<'t, 'a> {
    /// Takes the parameters of the kernel's template, and the arguments of its name expression.
    pub fn new(aliases: &'t Aliases<'a>, template: &[&'a str], arguments: &[Vec<&'a str>]) -> Self {
        let types = split(template).enumerate().filter_map(|(index, part)| {
            let declared = before(part, "=");
            let ["typename" | "class", name] = declared else { return None };
            let default = part.get(declared.len() + 1..).filter(|default| !default.is_empty());
            let meaning = arguments.get(index).map(Vec::as_slice).or(default);
            // Without an argument, the name stands for itself, whatever it means outside of the template.
            Some((*name, meaning.unwrap_or(&[UNREADABLE]).to_vec()))
        });
        Self { aliases, template: types.collect(), replaced: 0 }
    }

    /// Replaces names by the types for which they stand. Fails with a name that stands for a pointer, an array or a
    /// function, or for a type with `const`.
    pub fn resolve(&mut self, words: &[&'a str]) -> Result<Vec<&'a str>, &'a str> {
        let mut resolved = Vec::new();
        self.resolve_within(words, DEPTH_MAX, &mut resolved)?;
        Ok(resolved)
    }

    fn resolve_within(&mut self, words: &[&'a str], depth: usize, resolved: &mut Vec<&'a str>) -> Result<(), &'a str> {
        for &word in words {
            let meaning = if depth == 0 || self.replaced == REPLACED_MAX { None } else { self.meaning(word) };
            let Some(meaning) = meaning else {
                resolved.push(word);
                continue;
            };
            if ["*", "(", "[", "const", "&"].iter().any(|mark| has(&meaning, mark)) {
                return Err(word);
            }
            self.replaced += 1;
            self.resolve_within(&meaning, depth - 1, resolved)?;
        }
        Ok(())
    }

    fn meaning(&self, word: &str) -> Option<Vec<&'a str>> {
        let meaning = self.template.get(word).or_else(|| self.aliases.get(word))?;
        let is_readable =
            meaning.len() <= WORDS_OF_NAME_MAX && !meaning.contains(&UNREADABLE) && !meaning.contains(&"{}");
        is_readable.then(|| meaning.clone())
    }
}

/// Returns the dtype of a type, if it is a number of the wire format. `long` has 64 bits in CUDA on Linux.
pub fn dtype(words: &[String]) -> Option<Dtype> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    integer(&words).or_else(|| {
        let mut names = words.iter().filter(|word| !matches!(**word, "::" | "std" | "cuda" | "thrust"));
        let (Some(name), None) = (names.next(), names.next()) else { return None };
        named(name)
    })
}

fn named(name: &str) -> Option<Dtype> {
    Some(match name {
        "bool" | "_Bool" => Dtype::Bool,
        "half" | "__half" => Dtype::F16,
        "nv_bfloat16" | "__nv_bfloat16" => Dtype::Bf16,
        "float" => Dtype::F32,
        "double" => Dtype::F64,
        "int8_t" => Dtype::I8,
        "int16_t" => Dtype::I16,
        "int32_t" => Dtype::I32,
        "int64_t" | "intptr_t" | "ptrdiff_t" => Dtype::I64,
        "uint8_t" => Dtype::U8,
        "uint16_t" => Dtype::U16,
        "uint32_t" => Dtype::U32,
        "uint64_t" | "uintptr_t" | "size_t" => Dtype::U64,
        _ => return None,
    })
}

/// Returns the dtype of an integer type in one of its spellings, such as `unsigned long long`.
fn integer(words: &[&str]) -> Option<Dtype> {
    let mut sorted = words.to_vec();
    sorted.retain(|word| !matches!(*word, "signed" | "unsigned"));
    sorted.sort_unstable();
    let unsigned = words.contains(&"unsigned");
    let (signed_dtype, unsigned_dtype) = match sorted.as_slice() {
        ["char"] => (Dtype::I8, Dtype::U8),
        ["short"] | ["int", "short"] => (Dtype::I16, Dtype::U16),
        ["int"] => (Dtype::I32, Dtype::U32),
        [] if !words.is_empty() => (Dtype::I32, Dtype::U32),
        ["long"] | ["int", "long"] | ["long", "long"] | ["int", "long", "long"] => (Dtype::I64, Dtype::U64),
        _ => return None,
    };
    (words.len() <= sorted.len() + 1).then_some(if unsigned { unsigned_dtype } else { signed_dtype })
}
