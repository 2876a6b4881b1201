//! Recipes: what the tables of the grammar are made of, and how they become cases.

use std::{collections::BTreeSet, fmt, rc::Rc};

use crate::{
    case::{Case, Output, Row},
    compare::Tolerance,
    kind::Kind,
    texture::Texture,
};

/// Results of one row.
pub type RowFn = dyn Fn(&[u64]) -> Vec<u64>;
/// Results of all rows of a block.
pub type BlockFn = dyn Fn(&[Vec<u64>]) -> Vec<Vec<u64>>;

/// What a form's results are, computed for one row or for all rows of a block.
#[derive(Clone)]
pub enum Eval {
    Row(Rc<RowFn>),
    Block(Rc<BlockFn>),
}

/// The least version and architecture that know a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Needs {
    pub sm: u32,
    /// Ten times the version of PTX.
    pub ptx: u32,
}

/// The oldest that we write for: what today's drivers and assemblers take without complaint.
pub const OLDEST: Needs = Needs { sm: 70, ptx: 70 };

impl fmt::Debug for Eval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Eval::Row(_) => "Row",
            Eval::Block(_) => "Block",
        })
    }
}

/// One opcode with all its modifiers.
#[derive(Clone, Debug)]
pub struct Form {
    pub text: String,
    /// Other opcodes that its instructions prove with it.
    pub also: Vec<String>,
    /// The name of the case that it shares with forms of the same inputs, without the mnemonic.
    pub file: String,
    pub needs: Needs,
    pub inputs: Vec<Kind>,
    pub outputs: Vec<(Kind, Tolerance)>,
    pub eval: Eval,
    /// The instructions, over the registers [`INPUTS`] and [`OUTPUTS`].
    pub code: String,
    /// `code` is the one instruction over registers, in the order of its operands, and exact: random programs use it.
    pub is_plain: bool,
    pub rows: Rows,
    /// Declarations of the module.
    pub globals: String,
    /// A texture or a surface, whose handle is in `%texture`.
    pub texture: Option<Texture>,
    /// Words of memory at `%m`, for each row.
    pub scratch: usize,
    /// The status that a launch ends with.
    pub status: u32,
    /// Differs from another form by a hint alone: forms like it have cases of their own.
    pub is_hint: bool,
    /// Legal, but what it gives is not in the ISA's text: it is counted, and has no case.
    pub is_open: bool,
}

/// Where a form's rows come from.
#[derive(Clone, Debug)]
pub enum Rows {
    /// Edge values and random ones, and these besides.
    Edges { count: usize, and: Vec<Vec<u64>> },
    /// Just these.
    Given(Vec<Vec<u64>>),
}

/// Names of the registers that hold a row's values.
pub const INPUTS: [&str; 16] =
    ["%a", "%b", "%c", "%e", "%f", "%g", "%h", "%i", "%j", "%k", "%l", "%aa", "%ab", "%ac", "%ae", "%af"];
/// Names of the registers that results are taken from.
pub const OUTPUTS: [&str; 16] =
    ["%d", "%q", "%s", "%t", "%u", "%v", "%w", "%x", "%da", "%db", "%dc", "%de", "%df", "%dg", "%dh", "%di"];

/// Rows of an ordinary case: enough for every edge value a few times, and small enough for a file to be read.
const ROWS: usize = 32;

/// A form with one result.
pub fn form(text: impl Into<String>, output: Kind, inputs: &[Kind], eval: impl Fn(&[u64]) -> u64 + 'static) -> Form {
    forms(text, &[output], inputs, move |x| vec![eval(x)])
}

/// A form with any number of results.
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

/// A form whose results depend on all rows.
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

    /// The least architecture and, times ten, version of PTX.
    pub fn needs(mut self, sm: u32, ptx: u32) -> Form {
        self.needs = Needs { sm: self.needs.sm.max(sm), ptx: self.needs.ptx.max(ptx) };
        self
    }

    /// Other instructions than the form over all inputs.
    pub fn code(mut self, code: impl Into<String>) -> Form {
        self.code = code.into();
        self.is_plain = false;
        self
    }

    /// Its instructions, though not the one over all inputs, are for random programs too.
    pub fn plain(mut self) -> Form {
        self.is_plain = true;
        self
    }

    /// Not for random programs: some inputs of the right kind are not legal.
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

    /// Rows that have to be there.
    pub fn and(mut self, rows: &[&[u64]]) -> Form {
        if let Rows::Edges { and, .. } = &mut self.rows {
            and.extend(rows.iter().map(|row| row.to_vec()));
        }
        self
    }

    /// As many rows of edge values as this.
    pub fn count(mut self, rows: usize) -> Form {
        if let Rows::Edges { count, .. } = &mut self.rows {
            *count = rows;
        }
        self
    }

    /// These rows and no others.
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

/// Forms that share a case, and a case for each architecture that their hints need.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// `mnemonic/file`.
    pub name: String,
    pub forms: Vec<Form>,
}

impl Recipe {
    /// All its cases.
    pub fn cases(&self) -> Vec<Case> {
        let keep = |form: &Form| !form.is_hint && !form.is_open;
        let main = self.forms.iter().any(keep).then(|| self.case(keep));
        main.into_iter().chain(self.hints()).collect()
    }

    /// The hints, apart for each architecture, so that an older device runs what it can.
    fn hints(&self) -> Vec<Case> {
        let keep = |form: &Form| form.is_hint && !form.is_open;
        let targets: BTreeSet<u32> = self.forms.iter().filter(|form| keep(form)).map(|form| form.needs.sm).collect();
        let case = |sm| Case { name: self.hints_name(sm), ..self.case(|form| keep(form) && form.needs.sm == sm) };
        targets.into_iter().map(case).collect()
    }

    /// The name of the case with this recipe's hints for an architecture.
    pub fn hints_name(&self, sm: u32) -> String {
        format!("{}.hints.sm_{sm}", self.name)
    }

    /// The case with the results of all forms, or of those that `keep` takes.
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

/// The module: reads a row, runs every form in a scope of its own, stores what each gave.
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
