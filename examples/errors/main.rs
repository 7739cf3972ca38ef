//! Typical errors by family, each with its text and the corrected program.
mod control;
mod modes;
mod products;
mod running;
mod shapes;
mod types;

use atmesh::prelude::*;

/// Prints the error of a program that must be rejected.
fn rejected<T>(name: &str, result: Result<T>) -> Result<()> {
    match result {
        Ok(_) => Err(atmesh::Error::other(format!("accepted: {name}"))),
        Err(e) => {
            println!("== {name}\n{e}\n");
            Ok(())
        }
    }
}

/// Prints the type of the corrected program's result.
fn fixed(result: Array) -> Result<()> {
    println!("fixed: {}\n", result.ty()?);
    Ok(())
}

fn main() -> Result<()> {
    types::errors()?;
    products::errors()?;
    shapes::errors()?;
    modes::errors()?;
    control::errors()?;
    running::errors()
}
