//! A sample, and how one is built.

use gpufleet_schema::{Buffer, Data, Dtype, Inline, Number, Program, Task};

use crate::{
    catalog::{Kernel, catalog},
    compare::Expected,
};

/// A task for a catalog kernel, and its expected outputs.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The task as a producer writes it, without launches, outputs and scratch buffers.
    pub task: Task<'static>,
    /// The expected outputs, in the manifest's order.
    pub expected: Vec<Expected>,
}

/// Rust types that are elements of buffers.
pub(super) trait Element: Copy {
    const DTYPE: Dtype;
    fn append(self, bytes: &mut Vec<u8>);
}

macro_rules! elements {
    ($($t:ty => $dtype:ident),*) => {
        $(impl Element for $t {
            const DTYPE: Dtype = Dtype::$dtype;

            fn append(self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_le_bytes());
            }
        })*
    };
}

elements!(u8 => U8, u32 => U32, u64 => U64, f32 => F32);

pub(super) struct Draft {
    kernel: &'static Kernel,
    task: Task<'static>,
    expected: Vec<Expected>,
}

impl Draft {
    pub(super) fn new(kernel: &str) -> Self {
        Self {
            kernel: catalog().get(kernel).expect("samples are written for kernels of the catalog"),
            task: Task::new(Program::Catalog(kernel.to_owned())),
            expected: Vec::new(),
        }
    }

    pub(super) fn argument(mut self, name: &str, value: impl Into<Number>) -> Self {
        self.task.arguments.insert(name.to_owned(), value.into());
        self
    }

    pub(super) fn input<T: Element>(mut self, name: &str, shape: &[usize], values: &[T]) -> Self {
        let data = Data::Inline(Inline::from(bytes(values)));
        self.task.buffers.push(Buffer::new(name, T::DTYPE, extents(shape), data));
        self
    }

    pub(super) fn expect<T: Element>(mut self, name: &str, shape: &[usize], values: &[T]) -> Self {
        self.expected.push(Expected {
            name: name.to_owned(),
            dtype: T::DTYPE,
            shape: extents(shape),
            bytes: bytes(values),
            tolerance: self.kernel.tolerance(name),
        });
        self
    }

    pub(super) fn finish(self) -> Sample {
        Sample { task: self.task, expected: self.expected }
    }
}

fn bytes<T: Element>(values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_val(values));
    values.iter().for_each(|value| value.append(&mut bytes));
    bytes
}

fn extents(shape: &[usize]) -> Vec<u64> {
    shape.iter().map(|extent| *extent as u64).collect()
}
