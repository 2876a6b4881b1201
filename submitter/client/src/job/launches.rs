//! The launches of a job: grids, blocks and arguments.

use gpufleet_schema::{Arg, Block, Dtype, Grid, Launch, Number};

use super::{Draft, Job};
use crate::Element;

impl Job {
    /// Starts the description of a launch. `entry` is a kernel's symbol, or in CUDA C++ also a name expression such as
    /// `kernel<float>` or `::kernel`. The following calls for grid, block and arguments belong to this launch, up to
    /// the next `entry`.
    #[must_use]
    pub fn entry(mut self, entry: impl Into<String>) -> Self {
        self.launches.push(Draft { launch: Launch::new(entry, Grid::Blocks(vec![1])), has_grid: false });
        self
    }

    /// Launches enough blocks for at least this many threads in x, y and z.
    #[must_use]
    pub fn cover(self, threads: impl Into<Vec<u64>>) -> Self {
        self.grid(Grid::Cover(threads.into()))
    }

    /// Launches this many blocks in x, y and z.
    #[must_use]
    pub fn blocks(self, blocks: impl Into<Vec<u32>>) -> Self {
        self.grid(Grid::Blocks(blocks.into()))
    }

    /// Sets the grid of the launch, in either form.
    #[must_use]
    pub fn grid(self, grid: Grid) -> Self {
        self.draft("grid", |draft| {
            draft.launch.grid = grid;
            draft.has_grid = true;
        })
    }

    /// Sets the threads of one block in x, y and z. By default the driver's occupancy calculator chooses them.
    #[must_use]
    pub fn block(self, threads: impl Into<Vec<u32>>) -> Self {
        let threads = threads.into();
        self.draft("block", |draft| draft.launch.block = Block::Threads(threads))
    }

    /// Sets the dynamic shared memory of one block, in bytes.
    #[must_use]
    pub fn shared_bytes(self, bytes: u32) -> Self {
        self.draft("shared_bytes", |draft| draft.launch.shared_bytes = bytes)
    }

    /// Makes the launch cooperative: all blocks run at once, so that they can wait for each other
    /// (`cooperative_groups::this_grid().sync()`). The job fails if the device can't run all blocks at once.
    #[must_use]
    pub fn cooperative(self) -> Self {
        self.draft("cooperative", |draft| draft.launch.cooperative = true)
    }

    /// Sets the blocks of one cluster in x, y and z. Clusters need a device of compute capability 9.0 or higher, and a
    /// grid of whole clusters.
    #[must_use]
    pub fn cluster(self, blocks: impl Into<Vec<u32>>) -> Self {
        let blocks = blocks.into();
        self.draft("cluster", |draft| draft.launch.cluster = blocks)
    }

    /// Runs the launch this many times in a row.
    #[must_use]
    pub fn repeat(self, times: u32) -> Self {
        self.draft("repeat", |draft| draft.launch.repeat = times)
    }

    /// Adds the next kernel parameter: the address of a buffer.
    #[must_use]
    pub fn arg_buffer(self, name: impl Into<String>) -> Self {
        let arg = Arg::Buffer(name.into());
        self.draft("args", |draft| draft.launch.args.push(arg))
    }

    /// Adds the next kernel parameter: the address of one element of a buffer, by its index.
    #[must_use]
    pub fn arg_buffer_at(self, name: impl Into<String>, element: u64) -> Self {
        let name = name.into();
        let arg = if element == 0 { Arg::Buffer(name) } else { Arg::BufferAt { name, offset: element } };
        self.draft("args", |draft| draft.launch.args.push(arg))
    }

    /// Adds the next kernel parameter: a structure by value. `bytes` has the device's layout (little endian, with
    /// padding), and `align` is the structure's alignment in bytes.
    #[must_use]
    pub fn arg_bytes(self, bytes: impl Into<Vec<u8>>, align: u32) -> Self {
        let bytes = bytes.into();
        self.draft("args", |draft| draft.launch.args.push(Arg::Bytes { bytes, align }))
    }

    /// Adds the next kernel parameter: a scalar of the type `T`.
    #[must_use]
    pub fn arg<T: Element>(self, value: T) -> Self {
        self.arg_scalar(T::DTYPE, value.number())
    }

    /// Adds the next kernel parameter: a scalar whose type is only known at run time.
    #[must_use]
    pub fn arg_scalar(self, dtype: Dtype, number: Number) -> Self {
        self.draft("args", |draft| draft.launch.args.push(Arg::Scalar(dtype, number)))
    }

    /// Adds the next kernel parameter: the address of a 64-bit counter, which is zero at first. The kernels increment it with `atomicAdd`, and
    /// the worker reads it while they run. `total` is its value when all work is done. All counters of a job are the same one.
    #[must_use]
    pub fn arg_progress(self, total: u64) -> Self {
        self.draft("args", |draft| draft.launch.args.push(Arg::Progress(total)))
    }

    fn draft(mut self, what: &str, change: impl FnOnce(&mut Draft)) -> Self {
        match self.launches.last_mut() {
            Some(draft) => change(draft),
            None => self.reject("launches", format!("{what} belongs to a launch; call entry() first")),
        }
        self
    }
}
