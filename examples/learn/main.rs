//! The programs of the book's lessons: `… --example learn -- [LESSON…] [--pictures FOLDER]`.
//!
//! Each file is one lesson and a complete program. `chart.rs`, `figures.rs` and `plate.rs` draw their pictures.

mod chart;
mod figures;
mod plate;

use atmesh::Result;

/// Declares the lessons: each file is a module, with its `main`.
macro_rules! lessons {
    ($($name:ident),+ $(,)?) => {
        $(mod $name {
            include!(concat!(stringify!($name), ".rs"));
            pub(super) fn run() -> Result<()> { main() }
        })+
        const LESSONS: &[(&str, fn() -> Result<()>)] = &[$((stringify!($name), $name::run)),+];
    };
}
lessons! {
    why, first, network, grids, replicated, uneven, data, collectives, costs, products, reports, auto, manual, native, mixed, derivatives, loops, randoms, stencils, convolutions, indexing, custom, programs, whole, stages, sums, bits, planning, strategy, beyond, gpu, debugging, testing, sharp, performance, walkthroughs, practice, choosing, spectral, schedules, recompute, explain,
}

fn main() -> Result<()> {
    let mut wanted = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), LESSONS.iter().find(|l| l.0 == arg)) {
            ("--pictures", _) => {
                return figures::draw(args.next().unwrap_or_else(|| "pictures".into()).as_ref());
            }
            (_, Some(lesson)) => wanted.push(lesson),
            _ => {
                let names: Vec<_> = LESSONS.iter().map(|l| l.0).collect();
                return Err(atmesh::Error::other(format!("{arg} is not a lesson: {}", names.join(", "))));
            }
        }
    }
    if wanted.is_empty() {
        wanted.extend(LESSONS);
    }
    wanted.into_iter().try_for_each(|(_, lesson)| lesson())
}
