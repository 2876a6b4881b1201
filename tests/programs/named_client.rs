//! A program with a client name, for the scenario that kills it. It submits two jobs, prints their ids, takes the first result, prints it,
//! and waits until it is killed. Its arguments are the broker's URL and the client name.

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
    // The process that kills this one holds the other end of the pipe.
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}
