//! Computes the grid and blocks of a launch within the device's limits, with checked arithmetic.

use gpufleet_schema::{Block, Grid};

use super::device::DeviceLimits;

/// Number of threads along x in an automatic block of two or three dimensions: one warp, so that its threads read neighbouring elements.
const WARP: u32 = 32;

/// The grid and block of a launch, in the form that the driver takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub grid: [u32; 3],
    pub block: [u32; 3],
}

/// The limits of a kernel that matter for its launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KernelLimits {
    pub threads_per_block: u32,
    pub static_shared_bytes: u32,
}

impl Geometry {
    /// Computes a launch. `occupancy` returns the driver's suggested block size; it is called only if the launch leaves the block open.
    /// `cluster` is the size of a cluster in blocks, and the grid consists of whole clusters.
    pub(crate) fn of<E>(
        grid: &Grid,
        block: &Block,
        cluster: [u32; 3],
        limits: &DeviceLimits,
        kernel: KernelLimits,
        occupancy: impl FnOnce() -> Result<u32, E>,
    ) -> Result<Result<Self, String>, E> {
        let block = match block {
            Block::Threads(threads) => three(threads),
            Block::Auto => {
                let dimensions = match grid {
                    Grid::Cover(extents) => extents.len(),
                    Grid::Blocks(blocks) => blocks.len(),
                };
                automatic(occupancy()?.clamp(1, kernel.threads_per_block.max(1)), dimensions)
            }
        };
        Ok(check_block(block, limits, kernel)
            .and_then(|()| Ok(Self { grid: cover(grid, block, cluster, limits)?, block })))
    }
}

/// Extends extents to three dimensions; missing ones are 1.
fn three(extents: &[u32]) -> [u32; 3] {
    let mut all = [1; 3];
    all.iter_mut().zip(extents).for_each(|(to, from)| *to = *from);
    all
}

/// Arranges a number of threads in as many dimensions as the grid has: a warp along x, the rest along y.
fn automatic(threads: u32, dimensions: usize) -> [u32; 3] {
    if dimensions <= 1 || threads < WARP { [threads, 1, 1] } else { [WARP, threads / WARP, 1] }
}

fn check_block(block: [u32; 3], limits: &DeviceLimits, kernel: KernelLimits) -> Result<(), String> {
    for ((extent, max), axis) in block.iter().zip(limits.block).zip(["x", "y", "z"]) {
        if *extent == 0 || *extent > max {
            return Err(format!("the block has {extent} threads in {axis}; the device allows 1 to {max}"));
        }
    }
    let threads: u64 = block.iter().map(|extent| u64::from(*extent)).product();
    let max = limits.threads_per_block.min(kernel.threads_per_block);
    if threads > u64::from(max) {
        return Err(format!("the block has {threads} threads; the maximum for this kernel on this device is {max}"));
    }
    Ok(())
}

fn cover(grid: &Grid, block: [u32; 3], cluster: [u32; 3], limits: &DeviceLimits) -> Result<[u32; 3], String> {
    let mut blocks = [1_u64; 3];
    match grid {
        Grid::Blocks(given) => blocks.iter_mut().zip(given).for_each(|(to, from)| *to = u64::from(*from)),
        Grid::Cover(extents) => blocks
            .iter_mut()
            .zip(extents)
            .zip(block)
            .for_each(|((to, extent), threads)| *to = extent.div_ceil(u64::from(threads))),
    }
    whole_clusters(&mut blocks, grid, cluster)?;
    let mut checked = [1; 3];
    for (((to, blocks), max), axis) in checked.iter_mut().zip(blocks).zip(limits.grid).zip(["x", "y", "z"]) {
        match u32::try_from(blocks) {
            Ok(blocks @ 1..) if blocks <= max => *to = blocks,
            _ => return Err(format!("the grid has {blocks} blocks in {axis}; the device allows 1 to {max}")),
        }
    }
    Ok(checked)
}

/// Checks or rounds the grid to whole clusters: a number of threads to cover may be rounded up, a given number of blocks may not.
fn whole_clusters(blocks: &mut [u64; 3], grid: &Grid, cluster: [u32; 3]) -> Result<(), String> {
    for ((blocks, cluster), axis) in blocks.iter_mut().zip(cluster).zip(["x", "y", "z"]) {
        let whole = blocks.checked_next_multiple_of(u64::from(cluster));
        match (grid, whole) {
            (Grid::Cover(_), Some(whole)) => *blocks = whole,
            (Grid::Blocks(_), Some(whole)) if whole == *blocks => {}
            _ => {
                return Err(format!(
                    "the grid has {blocks} blocks in {axis}, which is not a multiple of the cluster size {cluster}"
                ));
            }
        }
    }
    Ok(())
}

/// Checks that a block can have this much shared memory.
pub(crate) fn check_shared(dynamic: u32, limits: &DeviceLimits, kernel: KernelLimits) -> Result<(), String> {
    let total = u64::from(dynamic) + u64::from(kernel.static_shared_bytes);
    if total <= u64::from(limits.shared_bytes_per_block) {
        return Ok(());
    }
    Err(format!(
        "a block needs {total} bytes of shared memory ({} of them static); the device has {}",
        kernel.static_shared_bytes, limits.shared_bytes_per_block
    ))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    const LIMITS: DeviceLimits = DeviceLimits {
        grid: [i32::MAX as u32, 65_535, 65_535],
        block: [1024, 1024, 64],
        threads_per_block: 1024,
        shared_bytes_per_block: 166_912,
        is_cooperative: true,
        has_clusters: true,
    };
    const KERNEL: KernelLimits = KernelLimits { threads_per_block: 1024, static_shared_bytes: 1024 };

    fn geometry(grid: Grid, block: Block) -> Result<Geometry, String> {
        Geometry::of(&grid, &block, [1; 3], &LIMITS, KERNEL, || Ok::<_, Infallible>(768)).unwrap()
    }

    #[test]
    fn a_cover_is_rounded_up() {
        let found = geometry(Grid::Cover(vec![1000, 3]), Block::Threads(vec![256, 2])).unwrap();
        assert_eq!(found, Geometry { grid: [4, 2, 1], block: [256, 2, 1] });
    }

    #[test]
    fn threads_are_covered_by_whole_clusters_and_counted_blocks_must_be_such() {
        let of = |grid: Grid, cluster| {
            Geometry::of(&grid, &Block::Threads(vec![256]), cluster, &LIMITS, KERNEL, || Ok::<_, Infallible>(768))
                .unwrap()
        };
        assert_eq!(of(Grid::Cover(vec![1000, 3]), [3, 2, 1]).unwrap().grid, [6, 4, 1]);
        assert_eq!(of(Grid::Blocks(vec![6, 4]), [3, 2, 1]).unwrap().grid, [6, 4, 1]);
        let told = of(Grid::Blocks(vec![6, 3]), [3, 2, 1]).unwrap_err();
        assert_eq!(told, "the grid has 3 blocks in y, which is not a multiple of the cluster size 2");
    }

    #[test]
    fn an_open_block_follows_the_driver_and_the_grid() {
        assert_eq!(
            geometry(Grid::Cover(vec![769]), Block::Auto).unwrap(),
            Geometry { grid: [2, 1, 1], block: [768, 1, 1] }
        );
        assert_eq!(
            geometry(Grid::Cover(vec![64, 48]), Block::Auto).unwrap(),
            Geometry { grid: [2, 2, 1], block: [32, 24, 1] }
        );
    }

    #[test]
    fn what_the_device_can_not_do_is_said_in_numbers() {
        let said = geometry(Grid::Cover(vec![1, 70_000]), Block::Threads(vec![1, 1])).unwrap_err();
        assert_eq!(said, "the grid has 70000 blocks in y; the device allows 1 to 65535");
        assert!(geometry(Grid::Cover(vec![u64::MAX]), Block::Threads(vec![1])).is_err());
        assert!(geometry(Grid::Blocks(vec![1]), Block::Threads(vec![1024, 2])).unwrap_err().contains("2048 threads"));
        assert!(check_shared(166_912, &LIMITS, KERNEL).unwrap_err().contains("167936 bytes"));
        assert!(check_shared(100_000, &LIMITS, KERNEL).is_ok());
    }

    proptest! {
        #[test]
        fn a_cover_reaches_every_element_and_stays_within_the_device(
            extents in prop::collection::vec(1_u64.., 1..=3),
            threads in prop::collection::vec(1_u32..=1024, 1..=3),
        ) {
            if let Ok(found) = geometry(Grid::Cover(extents.clone()), Block::Threads(threads)) {
                for (axis, extent) in extents.iter().enumerate() {
                    prop_assert!(u64::from(found.grid[axis]) * u64::from(found.block[axis]) >= *extent);
                    prop_assert!(found.grid[axis] <= LIMITS.grid[axis]);
                }
            }
        }
    }
}
