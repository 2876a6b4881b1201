//! The values of a manifest's symbols, and the field of the task that determined each.

use std::collections::BTreeMap;

use super::{Problem, ResolveError, arguments::Scalars};
use crate::{
    catalog::Kernel,
    expression::{EvaluateError, Expression},
    manifest::{Comparison, Constraint},
};

/// The symbols that have a value so far.
pub(super) struct Symbols(BTreeMap<String, Bound>);

struct Bound {
    value: u64,
    /// The field of the task that determined the value.
    by: String,
}

impl Symbols {
    pub(super) fn of_scalars(kernel: &Kernel, scalars: &Scalars) -> Self {
        let symbols = kernel.scalars.iter().filter(|spec| spec.is_symbol()).filter_map(|spec| {
            let (_, number) = scalars.get(&spec.name)?;
            let value = u64::try_from(number.integer()?).ok()?;
            Some((spec.name.clone(), Bound { value, by: format!("arguments.{}", spec.name) }))
        });
        Self(symbols.collect())
    }

    pub(super) fn evaluate(&self, expression: &Expression) -> Result<u64, EvaluateError> {
        expression.evaluate(&|symbol| self.0.get(symbol).map(|bound| bound.value))
    }

    /// Returns the field of the task that determines the value of `expression`.
    pub(super) fn blame(&self, expression: &Expression) -> &str {
        let bound = expression.symbols().into_iter().find_map(|symbol| self.0.get(symbol));
        bound.map_or("program.catalog", |bound| &bound.by)
    }

    /// Gives `symbol` a value. If it has one already, the two must be equal.
    pub(super) fn bind(&mut self, symbol: &str, value: u64, by: &str, shape: &[u64]) -> Result<(), ResolveError> {
        match self.0.get(symbol) {
            None => {
                self.0.insert(symbol.to_owned(), Bound { value, by: by.to_owned() });
                Ok(())
            }
            Some(bound) if bound.value == value => Ok(()),
            Some(bound) => Err(ResolveError::new(
                by,
                Problem::Disagreement {
                    symbol: symbol.to_owned(),
                    value,
                    other: bound.by.clone(),
                    other_value: bound.value,
                    got: shape.to_vec(),
                },
            )),
        }
    }

    pub(super) fn check_constraints(&self, kernel: &Kernel) -> Result<(), ResolveError> {
        kernel.constraints.iter().try_for_each(|constraint| {
            self.check(constraint).map_err(|problem| ResolveError::new(&constraint.field, problem))
        })
    }

    fn check(&self, constraint: &Constraint) -> Result<(), Problem> {
        let got = self.evaluate(&constraint.value)?;
        for (comparison, bound) in constraint.bounds() {
            let want = self.evaluate(bound)?;
            if !comparison.holds(got, want) {
                let relation = match comparison {
                    Comparison::Equals => "equal to",
                    Comparison::AtLeast => "at least",
                    Comparison::AtMost => "at most",
                };
                let (value, because) = (constraint.value.to_string(), constraint.because.clone());
                return Err(Problem::Constraint { value, got, relation, want, because });
            }
        }
        Ok(())
    }
}
