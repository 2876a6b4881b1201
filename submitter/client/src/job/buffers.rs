//! The buffers of a job: its inputs and outputs.

#[cfg(feature = "ledger")]
use gpufleet_schema::JobId;
use gpufleet_schema::{Buffer, Data, Dtype, Inline};

use super::Job;
use crate::{Array, ArrayFile, Element, StoredArray, claims::PENDING};

impl Job {
    /// Adds a one-dimensional input buffer with these elements.
    #[must_use]
    pub fn input<T: Element>(self, name: impl Into<String>, elements: &[T]) -> Self {
        self.input_array(name, Array::from_slice(elements))
    }

    /// Adds an input buffer with the array's elements and shape.
    #[must_use]
    pub fn input_array(self, name: impl Into<String>, array: Array) -> Self {
        self.buffer(array.into_buffer(name.into()))
    }

    /// Adds an input buffer of several dimensions, slowest first. The elements are in C order and must fill the shape.
    #[must_use]
    pub fn input_shaped<T: Element>(self, name: impl Into<String>, shape: impl Into<Vec<u64>>, elements: &[T]) -> Self {
        let data = Data::Inline(Inline::from(T::to_bytes(elements)));
        self.buffer(Buffer::new(name, T::DTYPE, shape, data))
    }

    /// Adds an input buffer whose contents are in a file. A client with a blob store stores the file with little memory, however large it
    /// is. A client without one sends the contents in the message.
    #[must_use]
    pub fn input_file(self, name: impl Into<String>, file: ArrayFile) -> Self {
        let (index, data) = (self.task.buffers.len(), Data::Zeros);
        let buffer = Buffer::new(name, file.dtype(), file.shape().to_vec(), data);
        self.buffer(buffer).contents(index, file)
    }

    /// Takes the contents of the buffer with this index, which exists, from a file. Until the job is submitted, the buffer names a placeholder.
    ///
    /// # Panics
    ///
    /// If the job has no such buffer.
    #[must_use]
    pub fn contents(mut self, index: usize, file: ArrayFile) -> Self {
        self.task.buffers[index].data = Data::Blob(*PENDING);
        self.files.push((index, file));
        self
    }

    pub(crate) fn take_files(&mut self) -> Vec<(usize, ArrayFile)> {
        std::mem::take(&mut self.files)
    }

    /// Adds an input buffer whose contents are in the blob store.
    #[must_use]
    pub fn input_stored(self, name: impl Into<String>, array: &StoredArray) -> Self {
        self.buffer(array.to_buffer(name.into()))
    }

    /// Adds an input buffer with a kept output of another job, which must have succeeded in the same pool. The client that submits the job
    /// looks the output up in its ledger ([`FleetBuilder::ledger`](crate::FleetBuilder::ledger)); the dtype and the shape must be those of
    /// the output.
    #[cfg(feature = "ledger")]
    #[must_use]
    pub fn input_from(
        self,
        name: impl Into<String>,
        dtype: Dtype,
        shape: impl Into<Vec<u64>>,
        job: JobId,
        output: impl Into<String>,
    ) -> Self {
        self.buffer(Buffer::output_of(name, dtype, shape, job, output))
    }

    /// Adds a buffer that starts as zeros. The message does not carry them.
    #[must_use]
    pub fn zeros(self, name: impl Into<String>, dtype: Dtype, shape: impl Into<Vec<u64>>) -> Self {
        self.buffer(Buffer::new(name, dtype, shape, Data::Zeros))
    }

    /// Adds a buffer whose elements all start with one value. The message carries it once.
    #[must_use]
    pub fn fill<T: Element>(self, name: impl Into<String>, shape: impl Into<Vec<u64>>, value: T) -> Self {
        self.buffer(Buffer::new(name, T::DTYPE, shape, Data::Fill(value.number())))
    }

    /// Adds a buffer in its wire form.
    #[must_use]
    pub fn buffer(mut self, buffer: Buffer<'static>) -> Self {
        self.task.buffers.push(buffer);
        self
    }

    /// Declares that the kernels only read an input of this job. If it is in the blob store, the jobs of a pool may then use one copy of it
    /// on a device, instead of one for each job. A job whose kernels write to it fails. The inputs of catalog kernels need no declaration.
    #[must_use]
    pub fn share(mut self, name: &str) -> Self {
        match self.task.buffers.iter_mut().find(|buffer| buffer.name == name) {
            Some(buffer) => buffer.share = true,
            None => self.reject("buffers", format!("there is no buffer named {name:?} to share; add the buffer first")),
        }
        self
    }

    /// Returns a buffer in the reply. If no buffer is named, a catalog kernel returns all of its outputs.
    #[must_use]
    pub fn output(mut self, name: impl Into<String>) -> Self {
        self.task.outputs.push(name.into());
        self
    }
}
