//! Answers one question, read from standard input: `cargo run -p atmesh_playground --example ask`.
use std::io::{Read, Write};
fn main() -> std::io::Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    for line in text.lines() {
        writeln!(std::io::stdout(), "{}", atmesh_playground::answer(line))?;
    }
    Ok(())
}
