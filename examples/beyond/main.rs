//! Programs for XLA, saved as StableHLO with Shardy annotations, arguments and our results.
//!
//! `cargo run --example beyond` prints one; `… -- FOLDER` saves all, for `scripts/stablehlo`.
use atmesh::prelude::*;

mod programs;

fn main() -> Result<()> {
    let cases = programs::all()?;
    let Some(folder) = std::env::args().nth(1) else {
        let case = &cases[0];
        println!("{}", case.module);
        for port in case.module.arguments().iter().chain(case.module.results()) {
            println!("{:8} {:16} {}", port.name, port.ty, port.sharding.as_deref().unwrap_or(""));
        }
        return Ok(());
    };
    for case in &cases {
        let folder = std::path::Path::new(&folder).join(&case.name);
        case.module.save(&folder)?;
        for (what, arrays) in [("argument", &case.arguments), ("expected", &case.results)] {
            for (k, a) in arrays.iter().enumerate() {
                let path = folder.join(format!("{what}{k}.npy"));
                programs::plain_bits(a)?.save_npy(path)?;
            }
        }
    }
    println!("{} programs in {folder}", cases.len());
    Ok(())
}
