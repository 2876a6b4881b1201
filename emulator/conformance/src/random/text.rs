//! The PTX of a random program.

use std::fmt;

use super::{Guard, Program, REGISTERS, Register, Step, columns};

/// Names of the registers of each class, distinct from those in the forms.
const NAMES: [&str; 4] = ["pp", "hh", "rr", "dd"];

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}{}", NAMES[self.class], self.number)
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}%{}{}", if self.negated { "!" } else { "" }, NAMES[0], self.number)
    }
}

impl Program<'_> {
    pub(super) fn text(&self) -> String {
        let bytes = columns().len() * 8;
        let mut text = format!(
            ".version 8.1\n.target sm_80\n.address_size 64\n.visible .entry test(.param .u64 in, .param .u64 out)\n{{\n\
             .reg .b64 %in, %out;\n.reg .b32 %thread, %word;\n.reg .pred %nan;\n.reg .pred %pp<{REGISTERS}>;\n\
             .reg .b16 %hh<{REGISTERS}>;\n.reg .b32 %rr<{REGISTERS}>;\n.reg .b64 %dd<{REGISTERS}>;\n\
             mov.u32 %thread, %tid.x;\nld.param.u64 %in, [in];\nld.param.u64 %out, [out];\n\
             mad.wide.u32 %in, %thread, {bytes}, %in;\nmad.wide.u32 %out, %thread, {bytes}, %out;\n"
        );
        for (place, register) in registers() {
            text += &match register.class {
                0 => format!("ld.global.u32 %word, [%in+{place}];\nsetp.ne.u32 {register}, %word, 0;\n"),
                class => format!("ld.global.b{} {register}, [%in+{place}];\n", 8 << class),
            };
        }
        for (index, step) in self.steps.iter().enumerate() {
            if self.steps.iter().any(|step| matches!(step, Step::Branch(_, label) if *label == index)) {
                text += &format!("step{index}:\n");
            }
            match step {
                Step::Branch(guard, label) => text += &format!("{guard} bra step{label};\n"),
                Step::Compute(guard, instruction) => {
                    for line in instruction.lines(self.pool) {
                        text += &guard.map_or_else(|| format!("{line}\n"), |guard| format!("{guard} {line}\n"));
                    }
                }
                Step::Nothing => {}
            }
        }
        text += &format!("step{}:\n", self.steps.len());
        for (place, register) in registers() {
            text += &match register.class {
                0 => format!("selp.u32 %word, 1, 0, {register};\nst.global.u32 [%out+{place}], %word;\n"),
                class => format!("st.global.b{} [%out+{place}], {register};\n", 8 << class),
            };
        }
        text + "ret;\n}\n"
    }
}

/// Returns all registers with their position in a row.
fn registers() -> impl Iterator<Item = (usize, Register)> {
    (0..columns().len()).map(|index| (index * 8, Register { class: index / REGISTERS, number: index % REGISTERS }))
}
