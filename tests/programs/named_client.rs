//! A program with a client name of its own, for the scenario that kills it. It submits two jobs, prints their ids, takes the first result,
//! prints it, and waits until it is killed. Arguments: the broker's URL, the client name.

use std::{error::Error, io};

use gpufleet::Fleet;
use gpufleet_tests::{WAIT, kernels};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(name)) = (arguments.next(), arguments.next()) else { return Err("two arguments".into()) };
    let fleet = Fleet::builder().client(name).connect(&url).await?;
    let mut first = fleet.submit(kernels::doubles(&[1.0])).await?;
    let second = fleet.submit(kernels::doubles(&[2.0])).await?;
    println!("{} {}", first.id(), second.id());
    let y: Vec<f32> = first.wait(WAIT).await?.output("y")?;
    println!("{y:?}");
    // The killer holds the other end.
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}
