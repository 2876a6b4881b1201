//! The same calls to the emulator in this process, and through a driver library and a session to a second emulator:
//! programs must not see a difference.

#[cfg(test)]
mod arguments;
#[cfg(test)]
mod call;
#[cfg(test)]
mod differential;
#[cfg(test)]
mod driver;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod object;
#[cfg(test)]
mod pair;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod strangers;
#[cfg(test)]
mod world;
