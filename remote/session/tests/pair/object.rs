//! An object of a random program on both drivers.

use std::cell::Cell;

/// What a call answered: the code, and the results that do not depend on the driver.
pub type Outcome = (i32, Vec<u8>);

/// An object: its handles on both drivers, and whether it is alive.
#[derive(Debug, Clone, Copy)]
pub struct Object {
    pub handles: [u64; 2],
    pub bytes: usize,
    pub is_alive: bool,
    /// For functions, which kernel.
    pub kernel: usize,
    /// For functions, graphs and nodes, what they belong to.
    pub owner: usize,
}

/// The handle of an object that was never made: null is none of them.
pub const NEVER: Object = Object { handles: [0xDEAD_0000; 2], bytes: 0, is_alive: false, kernel: 5, owner: 0 };

thread_local! {
    /// Whether the call names an object that is not there.
    pub static IS_STALE: Cell<bool> = const { Cell::new(false) };
}

pub fn object(list: &[Object], place: usize) -> Object {
    let object = list.get(place).copied().unwrap_or(NEVER);
    IS_STALE.set(IS_STALE.get() || !object.is_alive);
    object
}

/// Marks an object that was destroyed.
pub fn kill(made: &Option<[Outcome; 2]>, object: Option<&mut Object>) -> bool {
    let is_gone = made.as_ref().is_some_and(|[(code, _), _]| *code == 0);
    if let (true, Some(object)) = (is_gone, object) {
        object.is_alive = false;
    }
    is_gone
}
