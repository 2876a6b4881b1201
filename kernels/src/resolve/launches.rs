//! Computes the sizes of the kernel's launches.

use gpufleet_schema::{
    Arg, Dtype, Grid, Launch,
    bounds::{GRID_MAX, SHARED_BYTES_MAX},
};

use super::{Problem, ResolveError, Symbols, arguments::Scalars};
use crate::{
    catalog::Kernel,
    expression::Expression,
    manifest::{ArgRule, GridRule, LaunchSpec},
};

pub(super) fn plan(kernel: &Kernel, scalars: &Scalars, symbols: &Symbols) -> Result<Vec<Launch>, ResolveError> {
    kernel.launches.iter().map(|spec| Plan { spec, scalars, symbols }.launch()).collect()
}

struct Plan<'a> {
    spec: &'a LaunchSpec,
    scalars: &'a Scalars,
    symbols: &'a Symbols,
}

impl Plan<'_> {
    fn launch(&self) -> Result<Launch, ResolveError> {
        Ok(Launch {
            block: self.spec.block.clone(),
            shared_bytes: match &self.spec.shared_bytes {
                Some(bytes) => self.fitting("the shared memory of a block", bytes, 0, SHARED_BYTES_MAX.into())?,
                None => 0,
            },
            args: self.spec.args.iter().map(|rule| self.arg(rule)).collect::<Result<_, _>>()?,
            ..Launch::new(self.spec.entry.as_str(), self.grid()?)
        })
    }

    fn grid(&self) -> Result<Grid, ResolveError> {
        match &self.spec.grid {
            GridRule::Cover(extents) => {
                let cover = |extent| self.fitting("the grid's threads", extent, 1, u64::MAX);
                Ok(Grid::Cover(extents.iter().map(cover).collect::<Result<_, _>>()?))
            }
            GridRule::Blocks(extents) => {
                let blocks = |(extent, max): (_, u32)| self.fitting("the grid's blocks", extent, 1, max.into());
                Ok(Grid::Blocks(extents.iter().zip(GRID_MAX).map(blocks).collect::<Result<_, _>>()?))
            }
        }
    }

    fn arg(&self, rule: &ArgRule) -> Result<Arg, ResolveError> {
        match rule {
            ArgRule::Named(name) => Ok(match self.scalars.get(name) {
                Some((dtype, number)) => Arg::Scalar(*dtype, *number),
                None => Arg::Buffer(name.clone()),
            }),
            ArgRule::Computed(dtype, expression) => {
                let max = if *dtype == Dtype::U64 { u64::MAX } else { u32::MAX.into() };
                let value: u64 = self.fitting("the kernel's parameter", expression, 0, max)?;
                Ok(Arg::Scalar(*dtype, value.into()))
            }
        }
    }

    /// Returns the value of `expression`, if it is within a launch's bounds. Otherwise the error names the field that
    /// determined the sizes.
    fn fitting<T: TryFrom<u64>>(
        &self,
        what: &'static str,
        of: &Expression,
        min: u64,
        max: u64,
    ) -> Result<T, ResolveError> {
        let fail = |problem| ResolveError::new(self.symbols.blame(of), problem);
        let value = self.symbols.evaluate(of).map_err(|source| fail(source.into()))?;
        match T::try_from(value) {
            Ok(fitting) if (min..=max).contains(&value) => Ok(fitting),
            _ => Err(fail(Problem::Launch { what, expression: of.to_string(), value, min, max })),
        }
    }
}
