//! The kernel's launches, their sizes worked out.

use gpufleet_schema::{
    Arg, Grid, Launch,
    bounds::{GRID_MAX, SHARED_BYTES_MAX},
};

use super::{Problem, ResolveError, Symbols, arguments::Scalars};
use crate::{
    catalog::Kernel,
    expression::Expression,
    manifest::{ArgRule, GridRule, LaunchSpec},
};

pub(super) fn plan(kernel: &Kernel, scalars: &Scalars, symbols: &Symbols) -> Result<Vec<Launch>, ResolveError> {
    let plan = |(index, spec): (usize, &LaunchSpec)| {
        let plan = Plan { spec, scalars, symbols };
        plan.launch().map_err(|problem| ResolveError::new(format!("launches[{index}] of {}", kernel.name), problem))
    };
    kernel.launches.iter().enumerate().map(plan).collect()
}

struct Plan<'a> {
    spec: &'a LaunchSpec,
    scalars: &'a Scalars,
    symbols: &'a Symbols,
}

impl Plan<'_> {
    fn launch(&self) -> Result<Launch, Problem> {
        Ok(Launch {
            entry: self.spec.entry.clone(),
            grid: self.grid()?,
            block: self.spec.block.clone(),
            shared_bytes: match &self.spec.shared_bytes {
                Some(bytes) => self.at_most("the shared memory of a block", bytes, SHARED_BYTES_MAX)?,
                None => 0,
            },
            args: self.spec.args.iter().map(|rule| self.arg(rule)).collect::<Result<_, _>>()?,
            repeat: 1,
        })
    }

    fn grid(&self) -> Result<Grid, Problem> {
        match &self.spec.grid {
            GridRule::Cover(extents) => {
                let cover = |extent: &Expression| match self.symbols.evaluate(extent)? {
                    0 => Err(Problem::LaunchEmpty { what: format!("the grid's {extent}") }),
                    threads => Ok(threads),
                };
                Ok(Grid::Cover(extents.iter().map(cover).collect::<Result<_, _>>()?))
            }
            GridRule::Blocks(extents) => {
                let blocks = |(extent, max): (&Expression, u32)| match self.at_most(
                    &format!("the grid's {extent}"),
                    extent,
                    max,
                )? {
                    0 => Err(Problem::LaunchEmpty { what: format!("the grid's {extent}") }),
                    blocks => Ok(blocks),
                };
                Ok(Grid::Blocks(extents.iter().zip(GRID_MAX).map(blocks).collect::<Result<_, _>>()?))
            }
        }
    }

    fn arg(&self, rule: &ArgRule) -> Result<Arg, Problem> {
        match rule {
            ArgRule::Named(name) => Ok(match self.scalars.get(name) {
                Some((dtype, number)) => Arg::Scalar(*dtype, *number),
                None => Arg::Buffer(name.clone()),
            }),
            ArgRule::Computed(dtype, expression) => {
                let number = self.symbols.evaluate(expression)?.into();
                gpufleet_schema::Number::write(number, *dtype, &mut Vec::with_capacity(dtype.size()))?;
                Ok(Arg::Scalar(*dtype, number))
            }
        }
    }

    fn at_most(&self, what: &str, expression: &Expression, max: u32) -> Result<u32, Problem> {
        let value = self.symbols.evaluate(expression)?;
        match u32::try_from(value) {
            Ok(fitting) if fitting <= max => Ok(fitting),
            _ => Err(Problem::LaunchTooLarge { what: what.to_owned(), value, max: max.into() }),
        }
    }
}
