//! The catalog: all kernels by name.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use gpufleet_schema::Dtype;

use crate::{
    embedded::{FILES, Files},
    expression::Expression,
    manifest::{ArgRule, BufferSpec, Constraint, LaunchSpec, Manifest, Role, ScalarSpec, Tolerance},
    spelling,
};

/// All kernels that this build knows.
#[derive(Debug)]
pub struct Catalog {
    kernels: BTreeMap<String, Kernel>,
}

/// One kernel: its manifest, its source and its PTX.
#[derive(Debug, Clone)]
pub struct Kernel {
    pub name: String,
    pub summary: String,
    /// The definition of the result, as lines of plain text.
    pub formula: String,
    /// Whether element i of each output depends only on the elements i of the inputs, so that arrays may be split.
    pub is_elementwise: bool,
    /// The scalars, in the order in which a person would pass them.
    pub scalars: Vec<ScalarSpec>,
    pub buffers: Vec<BufferSpec>,
    pub launches: Vec<LaunchSpec>,
    pub constraints: Vec<Constraint>,
    tolerances: BTreeMap<String, Tolerance>,
    files: &'static Files,
}

/// A manifest that contradicts itself or its files.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{file}: {problem}")]
pub struct ManifestError {
    file: String,
    problem: String,
}

/// Returns the catalog. The first call parses it.
pub fn catalog() -> &'static Catalog {
    static CATALOG: LazyLock<Catalog> =
        LazyLock::new(|| Catalog::parse(&FILES).expect("the manifests in this crate are parsed by its tests"));
    &CATALOG
}

impl Catalog {
    fn parse(files: &'static [Files]) -> Result<Self, ManifestError> {
        let kernels = files.iter().map(|files| Ok((files.name.to_owned(), Kernel::parse(files)?)));
        Ok(Self { kernels: kernels.collect::<Result<_, _>>()? })
    }

    pub fn get(&self, name: &str) -> Option<&Kernel> {
        self.kernels.get(name)
    }

    /// Returns all kernels, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Kernel> {
        self.kernels.values()
    }

    /// Returns the name in the catalog that is most similar to the mistyped `name`, if one is similar enough.
    pub fn closest(&self, name: &str) -> Option<&str> {
        spelling::closest(name, self.kernels.keys().map(String::as_str))
    }
}

impl Kernel {
    /// Returns the source in CUDA C.
    pub fn source(&self) -> &str {
        self.files.source
    }

    /// Returns the PTX, for compute capability 8.0 and higher.
    pub fn ptx(&self) -> &str {
        self.files.ptx
    }

    /// Returns the kernel's scalars and buffers without scratch buffers, on one line: `saxpy(a: f32, x: in f32[n], y:
    /// inout f32[n])`.
    pub fn signature(&self) -> String {
        let scalars = self.scalars.iter().map(ToString::to_string);
        let buffers = self.buffers.iter().filter(|buffer| buffer.role != Role::Scratch).map(ToString::to_string);
        format!("{}({})", self.name, scalars.chain(buffers).collect::<Vec<_>>().join(", "))
    }

    pub fn scalar(&self, name: &str) -> Option<&ScalarSpec> {
        self.scalars.iter().find(|scalar| scalar.name == name)
    }

    pub fn buffer(&self, name: &str) -> Option<&BufferSpec> {
        self.buffers.iter().find(|buffer| buffer.name == name)
    }

    /// Returns the buffers that the kernel returns.
    pub fn outputs(&self) -> impl Iterator<Item = &BufferSpec> {
        self.buffers.iter().filter(|buffer| buffer.role.is_returned())
    }

    /// Returns the tolerance of `output` against the reference.
    pub fn tolerance(&self, output: &str) -> Tolerance {
        self.tolerances.get(output).copied().unwrap_or_default()
    }

    fn parse(files: &'static Files) -> Result<Self, ManifestError> {
        let fail = |problem: String| ManifestError { file: format!("{}.toml", files.name), problem };
        let manifest: Manifest = toml::from_str(files.manifest).map_err(|source| fail(source.to_string()))?;
        let kernel = Self {
            name: manifest.name,
            summary: manifest.summary,
            formula: manifest.formula,
            is_elementwise: manifest.elementwise,
            scalars: manifest.scalars,
            buffers: manifest.buffers,
            launches: manifest.launches,
            constraints: manifest.constraints,
            tolerances: manifest.tolerance,
            files,
        };
        kernel.check().map_err(fail)?;
        Ok(kernel)
    }

    /// Checks that everything that the manifest names exists.
    fn check(&self) -> Result<(), String> {
        if self.name != self.files.name {
            return Err(format!("the name is {:?}", self.name));
        }
        let mut names = BTreeSet::new();
        let all = self.scalars.iter().map(|scalar| &scalar.name).chain(self.buffers.iter().map(|buffer| &buffer.name));
        if let Some(twice) = all.into_iter().find(|name| !names.insert(name.as_str())) {
            return Err(format!("{twice:?} is declared twice"));
        }
        self.check_symbols()?;
        self.check_elementwise()?;
        self.check_names(&names)
    }

    /// Checks that all buffers of an elementwise kernel have the same single dimension.
    fn check_elementwise(&self) -> Result<(), String> {
        let is_row = |buffer: &BufferSpec| buffer.shape.len() == 1 && buffer.shape == self.buffers[0].shape;
        match self.buffers.iter().find(|buffer| self.is_elementwise && !is_row(buffer)) {
            Some(buffer) => Err(format!("the kernel is elementwise, but {:?} has another shape", buffer.name)),
            None => Ok(()),
        }
    }

    /// Checks that the task's buffers and scalars give every symbol a value.
    fn check_symbols(&self) -> Result<(), String> {
        let scalars = self.scalars.iter().filter(|scalar| scalar.is_symbol()).map(|scalar| scalar.name.as_str());
        let given = self.buffers.iter().filter(|buffer| buffer.role.is_given());
        let extents = given.flat_map(|buffer| &buffer.shape).filter_map(Expression::symbol);
        let bound: BTreeSet<&str> = scalars.chain(extents).collect();
        let unbound = |expression: &Expression| {
            let symbol = expression.symbols().into_iter().find(|symbol| !bound.contains(symbol));
            symbol.map_or(Ok(()), |symbol| Err(format!("{symbol} in {expression} has no value")))
        };
        self.expressions().try_for_each(unbound)
    }

    fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let shapes = self.buffers.iter().flat_map(|buffer| &buffer.shape);
        let launches = self.launches.iter().flat_map(|launch| {
            let computed = launch.args.iter().filter_map(|arg| match arg {
                ArgRule::Computed(_, expression) => Some(expression),
                ArgRule::Named(_) => None,
            });
            launch.grid.extents().iter().chain(&launch.shared_bytes).chain(computed)
        });
        let constraints = self.constraints.iter().flat_map(|constraint| {
            std::iter::once(&constraint.value).chain(constraint.bounds().map(|(_, bound)| bound))
        });
        shapes.chain(launches).chain(constraints)
    }

    fn check_names(&self, names: &BTreeSet<&str>) -> Result<(), String> {
        for launch in &self.launches {
            for arg in &launch.args {
                match arg {
                    ArgRule::Named(name) if !names.contains(name.as_str()) => {
                        return Err(format!("{} takes {name:?}, which is neither a buffer nor a scalar", launch.entry));
                    }
                    ArgRule::Computed(dtype, expression) if !matches!(dtype, Dtype::U32 | Dtype::U64) => {
                        return Err(format!("{expression} is a size and cannot be passed as {dtype}"));
                    }
                    ArgRule::Named(_) | ArgRule::Computed(..) => {}
                }
            }
        }
        match self.tolerances.keys().find(|name| !self.outputs().any(|output| output.name == **name)) {
            Some(name) => Err(format!("a tolerance names {name:?}, which is not an output")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
