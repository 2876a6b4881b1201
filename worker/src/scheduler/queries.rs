//! Queries of the dispatcher to the scheduler. No query changes the scheduler's state.

use gpufleet_schema::Priority;

use super::{
    ExecutorId, PoolId, Room, Scheduler, Ticket,
    device::Device,
    placement::{Claim, Offer},
    pool::Pool,
};

impl Scheduler {
    /// Returns how many bytes the executor may cache so that all caches and running jobs together fit into the device's memory.
    pub fn cache_bytes_max(&self, executor: ExecutorId) -> u64 {
        let device = self.devices.iter().find(|known| known.id == executor.device);
        device.map_or(0, |device| device.cache_bytes_max(executor))
    }

    /// Returns the number of slots that jobs occupy, and of open sessions.
    pub fn running(&self) -> usize {
        self.devices.iter().map(|device| device.slots_taken() as usize).sum::<usize>() + self.sessions.open()
    }

    /// Returns whether a device is reserved for the waiting job or session.
    pub fn has_reserved(&self, ticket: Ticket) -> bool {
        self.reservations.has_job(ticket)
    }

    /// Returns the number of waiting jobs, by pool.
    pub fn waiting_by_pool(&self) -> Vec<usize> {
        self.pools.iter().map(|pool| pool.backlog.len() + self.sessions.waiting(pool.id)).collect()
    }

    /// Returns the number of the pool's host programs that wait for a device.
    pub fn programs_waiting(&self, pool: PoolId) -> usize {
        self.sessions.programs_waiting(pool)
    }

    /// Returns the number of jobs that can run at once on the worker's devices.
    pub fn slots(&self) -> u32 {
        self.in_service().map(|device| device.slots).sum()
    }

    /// Returns the room for more jobs of each queue, ordered by pool and then by priority.
    pub fn rooms(&self) -> Vec<Room> {
        let claims: Vec<Claim> = self.pools.iter().map(Pool::claim).collect();
        let rooms = self.pools.iter().flat_map(|pool| {
            let open = self.in_service().map(|device| self.offer(device, &claims).open_slots(pool.id)).sum();
            let stuck = move |priority| if open > 0 { pool.backlog.waiting(priority) as u32 } else { 0 };
            Priority::ALL.map(|priority| Room { open, stuck: stuck(priority) })
        });
        rooms.collect()
    }

    pub(super) fn offer<'a>(&'a self, device: &'a Device, claims: &'a [Claim]) -> Offer<'a> {
        Offer { device, claims, reservation: self.reservations.of_device(device.id) }
    }

    fn in_service(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter(|device| !device.is_gone())
    }
}
