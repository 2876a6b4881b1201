//! Recipes: the entries of the grammar's tables, and how they become cases.

use std::{collections::BTreeSet, fmt, rc::Rc};

use crate::{
    case::{Case, Output, Row},
    compare::Tolerance,
    kind::Kind,
    texture::Texture,
};

/// Computes the results of one row.
pub type RowFn = dyn Fn(&[u64]) -> Vec<u64>;
/// Computes the results of all rows of a block.
pub type BlockFn = dyn Fn(&[Vec<u64>]) -> Vec<Vec<u64>>;

/// Computes a form's results, for one row or for all rows of a block.
#[derive(Clone)]
pub enum Eval {
    Row(Rc<RowFn>),
    Block(Rc<BlockFn>),
}

/// The lowest PTX version and architecture with a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Needs {
    pub sm: u32,
    /// PTX version times ten.
    pub ptx: u32,
}

/// The lowest version and architecture that cases use: today's drivers and assemblers accept them without warnings.
pub const OLDEST: Needs = Needs { sm: 70, ptx: 70 };

impl fmt::Debug for Eval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Eval::Row(_) => "Row",
            Eval::Block(_) => "Block",
        })
    }
}

/// A form: one opcode with all its modifiers.
#[derive(Clone, Debug)]
pub struct Form {
    pub text: String,
    /// Other opcodes that its instructions prove too.
    pub also: Vec<String>,
    /// Name of its case, without the mnemonic; forms with equal inputs share a case.
    pub file: String,
    pub needs: Needs,
    pub inputs: Vec<Kind>,
    pub outputs: Vec<(Kind, Tolerance)>,
    pub eval: Eval,
    /// The instructions, which use the registers [`INPUTS`] and [`OUTPUTS`].
    pub code: String,
    /// True if `code` is only the instruction, with registers in the order of its operands, and exact; random programs
    /// use such forms.
    pub is_plain: bool,
    pub rows: Rows,
    /// Declarations in the module scope.
    pub globals: String,
    /// A texture or a surface, whose handle is in `%texture`.
    pub texture: Option<Texture>,
    /// Number of memory words at `%m`, for each row.
    pub scratch: usize,
    /// Status with which a launch ends.
    pub status: u32,
    /// True if it differs from another form only by a hint; such forms have cases of their own.
    pub is_hint: bool,
    /// True if the ISA does not define its result: it is counted but has no case.
    pub is_open: bool,
}

/// Source of a form's rows.
#[derive(Clone, Debug)]
pub enum Rows {
    /// Edge values and random values, and these additional rows.
    Edges { count: usize, and: Vec<Vec<u64>> },
    /// Only these rows.
    Given(Vec<Vec<u64>>),
}

/// Names of the registers with a row's inputs.
pub const INPUTS: [&str; 16] =
    ["%a", "%b", "%c", "%e", "%f", "%g", "%h", "%i", "%j", "%k", "%l", "%aa", "%ab", "%ac", "%ae", "%af"];
/// Names of the registers with the results.
pub const OUTPUTS: [&str; 16] =
    ["%d", "%q", "%s", "%t", "%u", "%v", "%w", "%x", "%da", "%db", "%dc", "%de", "%df", "%dg", "%dh", "%di"];

/// Rows of an ordinary case: enough for every edge value a few times, and few enough to read.
const ROWS: usize = 32;

/// Makes a form with one result.
pub fn form(text: impl Into<String>, output: Kind, inputs: &[Kind], eval: impl Fn(&[u64]) -> u64 + 'static) -> Form {
    forms(text, &[output], inputs, move |x| vec![eval(x)])
}

/// Makes a form with any number of results.
pub fn forms(
    text: impl Into<String>,
    outputs: &[Kind],
    inputs: &[Kind],
    eval: impl Fn(&[u64]) -> Vec<u64> + 'static,
) -> Form {
    let text = text.into();
    let file = text.split_once('.').map_or(text.as_str(), |(_, rest)| rest).to_owned();
    let code = format!("{text} {}, {};", OUTPUTS[0], INPUTS[..inputs.len()].join(", "));
    Form {
        text,
        also: Vec::new(),
        file,
        needs: OLDEST,
        inputs: inputs.to_vec(),
        outputs: outputs.iter().map(|kind| (*kind, Tolerance::Exact)).collect(),
        eval: Eval::Row(Rc::new(eval)),
        code,
        is_plain: outputs.len() == 1,
        rows: Rows::Edges { count: ROWS, and: Vec::new() },
        globals: String::new(),
        texture: None,
        scratch: 0,
        status: 0,
        is_hint: false,
        is_open: false,
    }
}

/// Makes a form whose results depend on all rows.
pub fn block(
    text: impl Into<String>,
    outputs: &[Kind],
    inputs: &[Kind],
    eval: impl Fn(&[Vec<u64>]) -> Vec<Vec<u64>> + 'static,
) -> Form {
    let mut form = forms(text, outputs, inputs, |_| Vec::new());
    form.eval = Eval::Block(Rc::new(eval));
    form.is_plain = false;
    form
}

impl Form {
    pub fn mnemonic(&self) -> &str {
        self.text.split(['.', ' ']).next().unwrap_or_default()
    }

    pub fn also(mut self, texts: impl IntoIterator<Item = String>) -> Form {
        self.also.extend(texts);
        self
    }

    pub fn file(mut self, file: impl Into<String>) -> Form {
        self.file = file.into();
        self
    }

    /// Sets the lowest architecture and PTX version (times ten).
    pub fn needs(mut self, sm: u32, ptx: u32) -> Form {
        self.needs = Needs { sm: self.needs.sm.max(sm), ptx: self.needs.ptx.max(ptx) };
        self
    }

    /// Replaces the instructions, which otherwise are the form with all inputs as operands.
    pub fn code(mut self, code: impl Into<String>) -> Form {
        self.code = code.into();
        self.is_plain = false;
        self
    }

    /// Allows the form in random programs although its instructions were replaced.
    pub fn plain(mut self) -> Form {
        self.is_plain = true;
        self
    }

    /// Excludes the form from random programs, because some inputs of its kinds are not legal.
    pub fn composed(mut self) -> Form {
        self.is_plain = false;
        self
    }

    pub fn within(mut self, tolerance: Tolerance) -> Form {
        for (_, found) in &mut self.outputs {
            *found = tolerance;
        }
        self.is_plain &= tolerance == Tolerance::Exact;
        self
    }

    /// Adds rows.
    pub fn and(mut self, rows: &[&[u64]]) -> Form {
        if let Rows::Edges { and, .. } = &mut self.rows {
            and.extend(rows.iter().map(|row| row.to_vec()));
        }
        self
    }

    /// Sets the number of rows with edge values.
    pub fn count(mut self, rows: usize) -> Form {
        if let Rows::Edges { count, .. } = &mut self.rows {
            *count = rows;
        }
        self
    }

    /// Uses only these rows.
    pub fn given(mut self, rows: Vec<Vec<u64>>) -> Form {
        self.rows = Rows::Given(rows);
        self
    }

    pub fn globals(mut self, text: impl Into<String>) -> Form {
        self.globals = text.into();
        self
    }

    pub fn texture(mut self, texture: Texture) -> Form {
        self.texture = Some(texture);
        self
    }

    pub fn scratch(mut self, words: usize) -> Form {
        self.scratch = words;
        self
    }

    pub fn open(mut self) -> Form {
        (self.is_open, self.is_plain) = (true, false);
        self
    }

    pub fn hint(mut self, is_hint: bool) -> Form {
        self.is_hint = is_hint;
        self
    }

    pub fn ends(mut self, status: u32) -> Form {
        self.status = status;
        self
    }
}

/// Forms that share a case; hints have a case for each architecture that they need.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Name of the form `mnemonic/file`.
    pub name: String,
    pub forms: Vec<Form>,
}

impl Recipe {
    /// Returns all its cases.
    pub fn cases(&self) -> Vec<Case> {
        let keep = |form: &Form| !form.is_hint && !form.is_open;
        let main = self.forms.iter().any(keep).then(|| self.case(keep));
        main.into_iter().chain(self.hints()).collect()
    }

    /// Returns the cases of hints, separately for each architecture, so that an older device runs what it can.
    fn hints(&self) -> Vec<Case> {
        let keep = |form: &Form| form.is_hint && !form.is_open;
        let targets: BTreeSet<u32> = self.forms.iter().filter(|form| keep(form)).map(|form| form.needs.sm).collect();
        let case = |sm| Case { name: self.hints_name(sm), ..self.case(|form| keep(form) && form.needs.sm == sm) };
        targets.into_iter().map(case).collect()
    }

    /// Returns the name of the case with this recipe's hints for an architecture.
    pub fn hints_name(&self, sm: u32) -> String {
        format!("{}.hints.sm_{sm}", self.name)
    }

    /// Returns the case with the results of the forms that `keep` accepts.
    pub fn case(&self, keep: impl Fn(&Form) -> bool) -> Case {
        let forms: Vec<&Form> = self.forms.iter().filter(|form| keep(form)).collect();
        let inputs = self.forms[0].inputs.clone();
        let values = crate::inputs::rows(&inputs, &self.forms[0].rows, &self.name);
        let mut rows: Vec<Row> =
            values.iter().map(|inputs| Row { inputs: inputs.clone(), expected: Vec::new() }).collect();
        for form in &forms {
            let results = match &form.eval {
                Eval::Row(eval) => values.iter().map(|row| eval(row)).collect(),
                Eval::Block(eval) => eval(&values),
            };
            for (row, results) in rows.iter_mut().zip(results) {
                assert_eq!(results.len(), form.outputs.len(), "{}", form.text);
                row.expected.extend(results);
            }
        }
        let outputs = forms
            .iter()
            .flat_map(|form| {
                form.outputs.iter().map(|(kind, tolerance)| Output {
                    kind: *kind,
                    tolerance: *tolerance,
                    form: form.text.clone(),
                })
            })
            .collect();
        let scratch = forms.iter().map(|form| form.scratch).max().unwrap_or(0);
        Case {
            name: self.name.clone(),
            inputs,
            outputs,
            scratch,
            texture: self.forms[0].texture.clone(),
            rows,
            status: forms.iter().map(|form| form.status).max().unwrap_or(0),
            ptx: kernel(&forms, scratch),
        }
    }
}

/// Returns the module: it reads a row, runs every form in a scope of its own, and stores the results.
fn kernel(forms: &[&Form], scratch: usize) -> String {
    let needs = Needs {
        sm: forms.iter().map(|form| form.needs.sm).max().unwrap_or(OLDEST.sm),
        ptx: forms.iter().map(|form| form.needs.ptx).max().unwrap_or(OLDEST.ptx),
    };
    let inputs = &forms[0].inputs;
    let outputs: usize = forms.iter().map(|form| form.outputs.len()).sum();
    let (input_bytes, output_bytes) = (inputs.len().max(1) * 8, (outputs + scratch).max(1) * 8);
    let mut globals: Vec<&str> = Vec::new();
    for form in forms {
        if !form.globals.is_empty() && !globals.contains(&form.globals.as_str()) {
            globals.push(&form.globals);
        }
    }
    let texture = forms[0].texture.is_some();
    let mut text = format!(
        ".version {}.{}\n.target sm_{}\n.address_size 64\n{}.visible .entry test(.param .u64 in, .param .u64 out{})\n{{\n\
         .reg .b64 %in, %out, %m;\n.reg .b32 %thread, %word;\n.reg .pred %is;\n",
        needs.ptx / 10,
        needs.ptx % 10,
        needs.sm,
        globals.concat(),
        if texture { ", .param .u64 texture" } else { "" }
    );
    if texture {
        text += ".reg .b64 %texture;\nld.param.u64 %texture, [texture];\n";
    }
    for (kind, name) in inputs.iter().zip(INPUTS) {
        text += &format!(".reg .{} {name};\n", kind.register());
    }
    text += "mov.u32 %thread, %tid.x;\nld.param.u64 %in, [in];\nld.param.u64 %out, [out];\n";
    text += &format!("mad.wide.u32 %in, %thread, {input_bytes}, %in;\n");
    text += &format!("mad.wide.u32 %out, %thread, {output_bytes}, %out;\n");
    if scratch > 0 {
        text += &format!("add.u64 %m, %out, {};\n", outputs * 8);
    }
    for (index, (kind, name)) in inputs.iter().zip(INPUTS).enumerate() {
        text += &match kind {
            Kind::Pred => format!("ld.global.u32 %word, [%in+{}];\nsetp.ne.u32 {name}, %word, 0;\n", index * 8),
            _ => format!("ld.global.{} {name}, [%in+{}];\n", kind.access(), index * 8),
        };
    }
    let mut place = 0;
    for form in forms {
        text += "{\n";
        for ((kind, _), name) in form.outputs.iter().zip(OUTPUTS) {
            text += &format!(".reg .{} {name};\n", kind.register());
        }
        text += form.code.trim();
        text += "\n";
        for ((kind, _), name) in form.outputs.iter().zip(OUTPUTS) {
            text += &match kind {
                Kind::Pred => format!("selp.u32 %word, 1, 0, {name};\nst.global.u32 [%out+{place}], %word;\n"),
                _ => format!("st.global.{} [%out+{place}], {name};\n", kind.access()),
            };
            place += 8;
        }
        text += "}\n";
    }
    text + "ret;\n}\n"
}
