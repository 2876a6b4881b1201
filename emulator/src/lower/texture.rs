//! Texture fetches and queries (`tex`, `tld4`, `txq`).

use super::emitter::{Emitter, Lowered};
use super::layout::Width;
use super::modifiers::Modifiers;
use super::symbols::Symbol;
use crate::program::Op;
use crate::program::texture::{Fetch, FetchLevel, Property, Query, Texturing};
use crate::ptx::tree::{Base, Operand};
use crate::ptx::types::Type;
use crate::texture::Geometry;

const COMPONENTS: [&str; 4] = ["r", "g", "b", "a"];

/// Geometries of multisampled textures, which only graphics has.
const MULTISAMPLED: [&str; 2] = ["2dms", "a2dms"];

/// The operand `[texture, sampler, coordinates]`; the sampler is optional.
struct Place<'a, 'o> {
    texture: u32,
    sampler: Option<u32>,
    coordinates: &'o Operand<'a>,
}

impl<'a> Emitter<'a, '_> {
    /// Lowers all texture and surface instructions.
    pub fn texturing(&mut self, name: &str, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        match name {
            "tex" => self.fetch(m, operands),
            "tld4" => self.gather(m, operands),
            "txq" | "suq" => self.query(name == "suq", m, operands),
            "suld" => self.surface_load(m, operands),
            "sust" => self.surface_store(m, operands),
            "sured" => self.surface_reduction(m, operands),
            // Queries of a handle's type (`istypep`), which compilers do not emit.
            _ => self.defer(),
        }
    }

    fn fetch(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let mipmap = m.one_of(&["base", "level", "grad"]).unwrap_or("base");
        if m.one_of(&MULTISAMPLED).is_some() {
            return self.defer();
        }
        let geometry = m.parsed(Geometry::parse).ok_or_else(|| self.unsupported())?;
        let vector = m.one_of(&["v2", "v4"]).ok_or_else(|| self.unsupported())?;
        let (ty, coordinate) = (m.ty()?, m.ty()?);
        m.finish()?;
        let is_packed = ty == Type::F16x2;
        let known = matches!(ty, Type::U32 | Type::S32 | Type::F32 | Type::F16) && vector == "v4"
            || is_packed && vector == "v2";
        let by_texel = coordinate == Type::S32;
        let fits = by_texel && !geometry.is_cube() || coordinate == Type::F32;
        if !known || !fits {
            return Err(self.unsupported());
        }
        let lods = match mipmap {
            "level" => 1,
            "grad" => 2,
            _ => 0,
        };
        self.arity(operands, 2 + lods..=4 + lods)?;
        // Unsupported: 16-bit results, gradients with integer coordinates, and depth comparison.
        if matches!(ty, Type::F16 | Type::F16x2) || by_texel && mipmap == "grad" || operands.len() > 3 + lods {
            return self.defer();
        }
        let level = match &operands[2..2 + lods] {
            [level] => FetchLevel::Level(self.source(level, coordinate)?),
            [along_x, along_y] => {
                let axes = geometry.axes();
                FetchLevel::Gradients([self.gradient(along_x, axes)?, self.gradient(along_y, axes)?])
            }
            _ => FetchLevel::Base,
        };
        self.push_fetch(ty, by_texel, geometry, level, None, &operands[..2], operands.get(2 + lods))
    }

    /// Parses a gradient, which has one step per axis; three are padded to four.
    fn gradient(&mut self, operand: &Operand<'a>, axes: usize) -> Lowered<Vec<u32>> {
        let elements = self.elements(operand, if axes == 3 { 4 } else { axes })?;
        elements[..axes].iter().map(|element| self.source(element, Type::F32)).collect()
    }

    fn gather(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let component = m.parsed(|name| COMPONENTS.iter().position(|component| *component == name));
        let geometry = m.parsed(Geometry::parse).ok_or_else(|| self.unsupported())?;
        let is_vector = m.take("v4");
        let (ty, coordinate) = (m.ty()?, m.ty()?);
        m.finish()?;
        let known = matches!(ty, Type::U32 | Type::S32 | Type::F32) && coordinate == Type::F32 && is_vector;
        let flat = matches!(geometry, Geometry::D2 | Geometry::A2 | Geometry::Cube | Geometry::CubeArray);
        let Some(component) = component.filter(|_| known && flat) else { return Err(self.unsupported()) };
        self.arity(operands, 2..=4)?;
        if operands.len() > 3 {
            return self.defer();
        }
        let gathered = Some(component as u8);
        self.push_fetch(ty, false, geometry, FetchLevel::Base, gathered, &operands[..2], operands.get(2))
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one instruction")]
    fn push_fetch(
        &mut self,
        ty: Type,
        by_texel: bool,
        geometry: Geometry,
        level: FetchLevel,
        gathered: Option<u8>,
        operands: &[Operand<'a>],
        offset: Option<&Operand<'a>>,
    ) -> Lowered<()> {
        let Place { texture, sampler, coordinates } = self.place(&operands[1])?;
        let coordinate = if by_texel { Type::S32 } else { Type::F32 };
        let (layer, coordinates) = self.coordinates(coordinates, geometry, coordinate)?;
        let offsets = match offset {
            Some(offset) => {
                let axes = if geometry.is_cube() { 2 } else { geometry.axes() };
                let elements = self.elements(offset, if axes == 3 { 4 } else { axes })?;
                elements[..axes].iter().map(|element| self.source(element, Type::S32)).collect::<Lowered<_>>()?
            }
            None => Vec::new(),
        };
        let (values, resident) = match &operands[0] {
            Operand::Resident(values, predicate) => (Operand::Vector(values.clone()), Some(*predicate)),
            values => (values.clone(), None),
        };
        let resident = resident.map(|name| self.predicate_named(name)).transpose()?;
        let elements = self.elements(&values, 4)?;
        let mut d = [0; 4];
        for (d, element) in d.iter_mut().zip(&elements) {
            *d = self.target(element, ty)?;
        }
        let fetch =
            Fetch { texture, sampler, geometry, by_texel, coordinates, layer, offsets, level, gathered, d, resident };
        self.push(Op::Texture(Texturing::Fetch(Box::new(fetch))));
        Ok(())
    }

    fn place<'o>(&mut self, operand: &'o Operand<'a>) -> Lowered<Place<'a, 'o>> {
        let Operand::Indexed(base, rest) = operand else {
            return Err(self.syntax("expected a texture and coordinates"));
        };
        let texture = self.handle(*base)?;
        match rest.as_slice() {
            [coordinates] => Ok(Place { texture, sampler: None, coordinates }),
            [sampler, coordinates] => {
                let Operand::Name(sampler) = sampler else { return Err(self.syntax("expected a sampler")) };
                let sampler = Some(self.handle(Base::Name(sampler))?);
                Ok(Place { texture, sampler, coordinates })
            }
            _ => Err(self.syntax("wrong number of operands in brackets")),
        }
    }

    /// Returns the slot of a texture, sampler or surface handle: a 64-bit register, or a module variable.
    pub(super) fn handle(&mut self, base: Base<'a>) -> Lowered<u32> {
        match base {
            Base::Integer(handle) => Ok(self.layout.constant64(handle)),
            Base::Name(name) => match self.symbol(name)? {
                Symbol::Register { slot, width: Width::Double } => Ok(slot),
                Symbol::Opaque { handle } => Ok(self.layout.constant64(handle)),
                _ => Err(self.syntax(format!("`{name}` is neither a handle of 64 bits nor a variable for one"))),
            },
        }
    }

    /// Returns the slots of the layer and of the coordinates.
    pub(super) fn coordinates(
        &mut self,
        operand: &Operand<'a>,
        geometry: Geometry,
        ty: Type,
    ) -> Lowered<(Option<u32>, Vec<u32>)> {
        let elements = self.elements(operand, geometry.operand_elements())?;
        let (layer, rest) = match elements.split_first() {
            Some((layer, rest)) if geometry.is_layered() => (Some(self.source(layer, Type::B32)?), rest),
            _ => (None, elements.as_slice()),
        };
        let axes = rest[..geometry.axes()].iter().map(|element| self.source(element, ty));
        Ok((layer, axes.collect::<Lowered<_>>()?))
    }

    fn query(&mut self, is_surface: bool, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let by_level = !is_surface && m.take("level");
        let unknown: &[&'static str] = match (is_surface, by_level) {
            (true, _) => &["channel_data_type", "channel_order", "memory_layout"],
            (false, false) => &["channel_data_type", "channel_order", "num_samples", "memory_layout"],
            (false, true) => &[],
        };
        // The values of these properties depend on the source language.
        if m.one_of(unknown).is_some() {
            return self.defer();
        }
        let property = m.parsed(|name| property(name, is_surface, by_level)).ok_or_else(|| self.unsupported())?;
        let ty = m.ty()?;
        m.finish()?;
        if ty != Type::B32 {
            return Err(self.unsupported());
        }
        self.arity(operands, 2 + usize::from(by_level)..=2 + usize::from(by_level))?;
        let Operand::Address(base, 0) = &operands[1] else { return Err(self.syntax("expected a handle")) };
        let handle = self.handle(*base)?;
        let level = operands.get(2).map(|level| self.source(level, Type::U32)).transpose()?;
        let d = self.target(&operands[0], Type::B32)?;
        self.push(Op::Texture(Texturing::Query(Box::new(Query { handle, is_surface, property, level, d }))));
        Ok(())
    }

    /// Lets the module load; launches of kernels that contain this instruction are refused.
    pub(super) fn defer(&mut self) -> Lowered<()> {
        let missing = self.unsupported();
        self.function.missing.get_or_insert(missing);
        self.push(Op::Missing);
        Ok(())
    }
}

fn property(name: &str, is_surface: bool, by_level: bool) -> Option<Property> {
    Some(match name {
        "width" => Property::Width,
        "height" => Property::Height,
        "depth" => Property::Depth,
        "array_size" if !by_level => Property::ArraySize,
        _ if is_surface || by_level => return None,
        "num_mipmap_levels" => Property::Levels,
        "normalized_coords" => Property::IsNormalized,
        "force_unnormalized_coords" => Property::ForcesUnnormalized,
        "filter_mode" => Property::Filter,
        "addr_mode_0" => Property::AddressMode(0),
        "addr_mode_1" => Property::AddressMode(1),
        "addr_mode_2" => Property::AddressMode(2),
        _ => return None,
    })
}
