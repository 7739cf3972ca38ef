//! Typical errors by family, each with its text and the mended program.
mod control;
mod modes;
mod products;
mod running;
mod shapes;
mod types;

use atmesh::prelude::*;

/// Prints the error of a program that must not be accepted.
fn refused<T>(name: &str, result: Result<T>) -> Result<()> {
    match result {
        Ok(_) => Err(atmesh::Error::other(format!("accepted: {name}"))),
        Err(e) => {
            println!("== {name}\n{e}\n");
            Ok(())
        }
    }
}

/// Prints the type of what the mended program makes.
fn mended(result: Array) -> Result<()> {
    println!("mended: {}\n", result.ty()?);
    Ok(())
}

fn main() -> Result<()> {
    types::refusals()?;
    products::refusals()?;
    shapes::refusals()?;
    modes::refusals()?;
    control::refusals()?;
    running::refusals()
}
