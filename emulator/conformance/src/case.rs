//! Case files: PTX, with its inputs and expected results in the comments before it. A file is readable without the
//! grammar from which it was made.
//!
//! ```text
//! // case: div/full.f32
//! // in: f32 f32
//! // out: f32 2ulp div.full.f32
//! // scratch: 0
//! // rows:
//! // 3f800000 40400000 : 3eaaaaab
//! .version 7.0
//! ...
//! ```
//!
//! The module has one kernel `test(in, out)`, or `test(in, out, texture)` if a line describes a texture. It is launched
//! as one block with a thread per row. Every value of a row has eight bytes of its own in `in` and in `out`; in `out`,
//! `scratch` words for the kernel follow.

use std::fmt::Write as _;

use thiserror::Error;

use crate::{compare::Tolerance, kind::Kind, texture::Texture};

/// Maximum rows of a case: the threads of the largest block.
pub const ROWS_MAX: usize = 1024;
/// Maximum words of a row; more means a damaged file.
const WORDS_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Name of the form `mnemonic/file`.
    pub name: String,
    pub inputs: Vec<Kind>,
    pub outputs: Vec<Output>,
    /// A texture or a surface, whose handle is the kernel's third parameter.
    pub texture: Option<Texture>,
    /// Number of words that the kernel may use behind the outputs of its row.
    pub scratch: usize,
    pub rows: Vec<Row>,
    /// The status with which the launch has to end; 0 for success.
    pub status: u32,
    pub ptx: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    pub kind: Kind,
    pub tolerance: Tolerance,
    /// The opcode that this result proves.
    pub form: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub inputs: Vec<u64>,
    pub expected: Vec<u64>,
}

/// An error in a case file.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("failed to read the case: line {line}: {what}")]
pub struct CaseError {
    pub line: usize,
    pub what: String,
}

impl Case {
    pub fn mnemonic(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }

    /// Formats the case as a file.
    pub fn render(&self) -> String {
        let mut text = format!("// case: {}\n// in:", self.name);
        for kind in &self.inputs {
            let _ = write!(text, " {kind}");
        }
        text.push('\n');
        for output in &self.outputs {
            let _ = writeln!(text, "// out: {} {} {}", output.kind, output.tolerance, output.form);
        }
        let _ = writeln!(text, "// scratch: {}", self.scratch);
        if let Some(texture) = &self.texture {
            let _ = writeln!(text, "// texture: {texture}");
        }
        if self.status != 0 {
            let _ = writeln!(text, "// status: {}", self.status);
        }
        text.push_str("// rows:\n");
        for row in &self.rows {
            text.push_str("//");
            for (value, kind) in row.inputs.iter().zip(&self.inputs) {
                let _ = write!(text, " {}", hex(*value, *kind));
            }
            text.push_str(" :");
            for (value, output) in row.expected.iter().zip(&self.outputs) {
                let _ = write!(text, " {}", hex(*value, output.kind));
            }
            text.push('\n');
        }
        text.push_str(&self.ptx);
        text
    }

    pub fn parse(text: &str) -> Result<Case, CaseError> {
        let mut case = Case {
            name: String::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            scratch: 0,
            texture: None,
            rows: Vec::new(),
            status: 0,
            ptx: String::new(),
        };
        let mut in_rows = false;
        for (index, line) in text.lines().enumerate() {
            let fail = |what: &str| CaseError { line: index + 1, what: what.to_owned() };
            let Some(comment) = line.strip_prefix("//") else {
                // The driver receives the whole text, so that line numbers in its messages are those of the file.
                case.ptx = text.to_owned();
                break;
            };
            let comment = comment.trim();
            if in_rows {
                case.rows.push(row(comment, &case).ok_or_else(|| fail("malformed row"))?);
            } else if comment == "rows:" {
                in_rows = true;
            } else {
                case.header(comment).ok_or_else(|| fail("malformed header"))?;
            }
        }
        let fail = |what: &str| CaseError { line: 0, what: what.to_owned() };
        if case.ptx.is_empty() || case.rows.is_empty() || case.rows.len() > ROWS_MAX {
            return Err(fail("no rows or no PTX"));
        }
        Ok(case)
    }

    fn header(&mut self, comment: &str) -> Option<()> {
        let (key, value) = comment.split_once(':')?;
        let value = value.trim();
        match key {
            "case" => self.name = value.to_owned(),
            "in" => self.inputs = value.split_whitespace().map(Kind::parse).collect::<Option<_>>()?,
            "out" => {
                let mut words = value.splitn(3, ' ');
                let kind = Kind::parse(words.next()?)?;
                let tolerance = Tolerance::parse(words.next()?)?;
                self.outputs.push(Output { kind, tolerance, form: words.next()?.to_owned() });
            }
            "scratch" => self.scratch = value.parse().ok().filter(|words| *words <= WORDS_MAX)?,
            "texture" => self.texture = Some(Texture::parse(value)?),
            "status" => self.status = value.parse().ok()?,
            _ => return None,
        }
        Some(())
    }

    /// Returns the bytes of a row in `in`.
    pub fn input_bytes(&self) -> usize {
        self.inputs.len().max(1) * 8
    }

    /// Returns the bytes of a row in `out`.
    pub fn output_bytes(&self) -> usize {
        (self.outputs.len() + self.scratch).max(1) * 8
    }

    /// Returns the contents of `in`.
    pub fn input_words(&self) -> Vec<u64> {
        let stride = self.input_bytes() / 8;
        let mut words = vec![0; stride * self.rows.len()];
        for (row, chunk) in self.rows.iter().zip(words.chunks_mut(stride)) {
            chunk[..row.inputs.len()].copy_from_slice(&row.inputs);
        }
        words
    }

    /// Returns the compute capability of `.target`.
    pub fn target(&self) -> Option<u32> {
        let line = self.ptx.lines().find_map(|line| line.strip_prefix(".target sm_"))?;
        line.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok()
    }
}

fn row(comment: &str, case: &Case) -> Option<Row> {
    let (inputs, expected) = comment.split_once(':')?;
    let values =
        |text: &str| text.split_whitespace().map(|word| u64::from_str_radix(word, 16).ok()).collect::<Option<Vec<_>>>();
    let row = Row { inputs: values(inputs)?, expected: values(expected)? };
    (row.inputs.len() == case.inputs.len() && row.expected.len() == case.outputs.len()).then_some(row)
}

fn hex(value: u64, kind: Kind) -> String {
    format!("{value:0width$x}", width = kind.bits().div_ceil(4) as usize)
}
