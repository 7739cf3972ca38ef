//! The programs of the book's chapters. Runs all chapters if none is given.
//!
//! `cargo run --example book -- [CHAPTER…] [--pictures FOLDER]` (also writes pictures)

#[macro_use]
mod show;
mod all_shardings;
mod explicit;
mod meshes;
mod modes;
mod shardings;
mod unreduced;

use atmesh::Result;

type Chapter = fn() -> Result<()>;

/// The chapters, in the book's order.
const CHAPTERS: [(&str, Chapter); 6] = [
    ("meshes", meshes::chapter),
    ("shardings", shardings::chapter),
    ("explicit", explicit::chapter),
    ("all_shardings", all_shardings::chapter),
    ("unreduced", unreduced::chapter),
    ("modes", modes::chapter),
];

fn main() -> Result<()> {
    let mut wanted = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), CHAPTERS.iter().find(|c| c.0 == arg)) {
            ("--pictures", _) => show::pictures_into(args.next().unwrap_or_else(|| "pictures".into()).into()),
            (_, Some(chapter)) => wanted.push(chapter),
            _ => {
                let names: Vec<_> = CHAPTERS.iter().map(|c| c.0).collect();
                return Err(atmesh::Error::other(format!("{arg} is no chapter: {}", names.join(", "))));
            }
        }
    }
    if wanted.is_empty() {
        wanted.extend(&CHAPTERS);
    }
    wanted.into_iter().try_for_each(|(_, chapter)| chapter())
}
