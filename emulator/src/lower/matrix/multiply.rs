//! Products of matrices in registers (`wmma.mma`, `mma`).

use super::fragment::{is_wmma, units};
use crate::lower::emitter::{Emitter, Lowered};
use crate::lower::modifiers::Modifiers;
use crate::ops::exact::Rounding;
use crate::ops::matrix::element::Element;
use crate::ops::matrix::layout::{Layout, Major, Role, Shape};
use crate::ops::matrix::product::BitOp;
use crate::program::Op;
use crate::program::matrix::{Arithmetic, Matrix, Multiply};
use crate::ptx::tree::Operand;

/// Number of independent products in `mma.m8n8k4` on f16.
const QUADS: usize = 4;

/// The modifiers of a product.
struct Product {
    shape: Shape,
    a_major: Major,
    b_major: Major,
    d: Element,
    a: Element,
    b: Element,
    c: Element,
    arithmetic: Arithmetic,
}

impl<'a> Emitter<'a, '_> {
    pub(super) fn wmma(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let product = self.product(true, m)?;
        let Product { shape, a, b, c, d, .. } = product;
        let along_sum = product.a_major == Major::Row && product.b_major == Major::Column;
        let known = is_wmma(shape, a) && a == b && (a.bits() >= 8 || along_sum);
        if !known || !accumulates(a, c, d) || a != Element::F16 && c != d {
            return Err(self.unsupported());
        }
        let layouts = [(Role::C, d), (Role::A, a), (Role::B, b), (Role::C, c)]
            .map(|(role, element)| Emitter::wmma_layout(role, shape, element));
        self.multiply(product, 1, layouts, operands)
    }

    pub(super) fn mma(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let product = self.product(false, m)?;
        let Product { shape, a, b, c, d, a_major, b_major, .. } = product;
        if !accumulates(a, c, d) {
            return Err(self.unsupported());
        }
        if a == Element::F16 && b == Element::F16 && shape.is(8, 8, 4) {
            if c == Element::F32 && d == Element::F16 {
                return Err(self.unsupported());
            }
            let layouts = [
                Layout::quads(Role::C, Major::Row, d == Element::F16),
                Layout::quads(Role::A, a_major, false),
                Layout::quads(Role::B, b_major, false),
                Layout::quads(Role::C, Major::Row, c == Element::F16),
            ];
            return self.multiply(product, QUADS, layouts, operands);
        }
        if !is_mma(shape, a) || !go_together(a, b) || c != d || a_major != Major::Row || b_major != Major::Column {
            return Err(self.unsupported());
        }
        let layouts = [(Role::C, d), (Role::A, a), (Role::B, b), (Role::C, c)].map(|(role, element)| {
            Layout::tiled(role, units(shape, element), element.per_register() / element.per_unit())
        });
        self.multiply(product, 1, layouts, operands)
    }

    /// Parses the modifiers. The types are in the order D, A, B, C; `wmma` on f16 names only D and C.
    fn product(&mut self, factors_may_miss: bool, m: &mut Modifiers<'a>) -> Lowered<Product> {
        let shape = self.shape(m)?;
        let (Some(a_major), Some(b_major)) = (m.parsed(Major::parse), m.parsed(Major::parse)) else {
            return Err(self.unsupported());
        };
        let saturate = m.take("satfinite");
        let bit_op = if m.take("popc") { m.one_of(&["xor", "and"]) } else { None };
        let rounding = m.rounding();
        let mut types = Vec::new();
        while let Some(element) = m.parsed(Element::parse) {
            types.push(element);
        }
        m.finish()?;
        let (d, a, b, c) = match types[..] {
            [d, c] if factors_may_miss => (d, Element::F16, Element::F16, c),
            [_, Element::F16, _, _] if factors_may_miss => return Err(self.unsupported()),
            [d, a, b, c] => (d, a, b, c),
            _ => return Err(self.unsupported()),
        };
        let arithmetic = match (a, bit_op) {
            (Element::F64, None) => Arithmetic::Doubles(rounding.unwrap_or(Rounding::Nearest)),
            (Element::B1, Some("xor")) => Arithmetic::Bits(BitOp::Xor),
            (Element::B1, Some("and")) => Arithmetic::Bits(BitOp::And),
            (Element::U8 | Element::S8 | Element::U4 | Element::S4, None) => Arithmetic::Integers { saturate },
            (Element::B1, _) | (_, Some(_)) => return Err(self.unsupported()),
            _ => Arithmetic::Floats,
        };
        let may_saturate = matches!(arithmetic, Arithmetic::Integers { .. });
        let may_round = matches!(arithmetic, Arithmetic::Doubles(_));
        if saturate && !may_saturate || rounding.is_some() && !may_round {
            return Err(self.unsupported());
        }
        Ok(Product { shape, a_major, b_major, d, a, b, c, arithmetic })
    }

    /// Emits a product; `layouts` are those of D, A, B and C, in the order of the operands.
    fn multiply(
        &mut self,
        product: Product,
        count: usize,
        layouts: [Layout; 4],
        operands: &[Operand<'a>],
    ) -> Lowered<()> {
        self.arity(operands, 4..=4)?;
        let [d, a, b, c] = layouts;
        let mut a = self.fragment(&operands[1], false, product.a, a)?;
        let mut b = self.fragment(&operands[2], false, product.b, b)?;
        // One copy is enough of elements that a lane has several times.
        a.layout.distinct(Role::A, units(product.shape, product.a), count);
        b.layout.distinct(Role::B, units(product.shape, product.b), count);
        let c = self.fragment(&operands[3], false, product.c, c)?;
        let d = self.fragment(&operands[0], true, product.d, d)?;
        let (shape, arithmetic) = (units(product.shape, product.a), product.arithmetic);
        self.push(Op::Matrix(Matrix::Multiply(Box::new(Multiply { shape, count, a, b, c, d, arithmetic }))));
        Ok(())
    }
}

/// Reports whether `mma` has the shape for factors of this type.
fn is_mma(shape: Shape, element: Element) -> bool {
    let shapes: &[(u32, u32, u32)] = match element {
        Element::F16 | Element::Bf16 => &[(16, 8, 8), (16, 8, 16)],
        Element::Tf32 => &[(16, 8, 4), (16, 8, 8)],
        Element::F64 => &[(8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)],
        Element::U8 | Element::S8 => &[(8, 8, 16), (16, 8, 16), (16, 8, 32)],
        Element::U4 | Element::S4 => &[(8, 8, 32), (16, 8, 32), (16, 8, 64)],
        Element::B1 => &[(8, 8, 128), (16, 8, 128), (16, 8, 256)],
        Element::E4m3 | Element::E5m2 => &[(16, 8, 16), (16, 8, 32)],
        Element::F32 | Element::S32 => &[],
    };
    shapes.iter().any(|(m, n, k)| shape.is(*m, *n, *k))
}

/// Reports whether one `mma` can have these two types of factors.
fn go_together(a: Element, b: Element) -> bool {
    use Element as E;
    let pairs = [[E::U8, E::S8], [E::U4, E::S4], [E::E4m3, E::E5m2]];
    a == b || pairs.iter().any(|pair| pair.contains(&a) && pair.contains(&b))
}

/// Reports whether products of factors `a` can be added to `c` with the result `d`.
fn accumulates(a: Element, c: Element, d: Element) -> bool {
    let fits = |element| match a {
        Element::F16 | Element::E4m3 | Element::E5m2 => matches!(element, Element::F16 | Element::F32),
        Element::Bf16 | Element::Tf32 => element == Element::F32,
        Element::F64 => element == Element::F64,
        _ => element == Element::S32,
    };
    fits(c) && fits(d)
}
