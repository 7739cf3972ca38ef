//! The programs of the book's part "Training": `… --example project -- [PAGE…]`, or
//! `--pictures FOLDER`.
//!
//! Each file is one page, and is complete with `model.rs`.
mod model;
mod pictures;

use atmesh::Result;

/// Declares the pages: each file is a module, with its `main`.
macro_rules! pages {
    ($($(#[$on:meta])? $name:ident),+ $(,)?) => {
        $($(#[$on])? mod $name;)+
        const PAGES: &[(&str, fn() -> Result<()>)] = &[$($(#[$on])? (stringify!($name), $name::main)),+];
    };
}
pages! {
    one, optimizer, data, accumulation, fsdp, tensor, both, sequence, pipeline, experts, precision,
    #[cfg(feature = "safetensors")] resume,
    layouts,
}

fn main() -> Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, folder] = &wanted[..]
        && flag == "--pictures"
    {
        return pictures::draw(folder.as_ref());
    }
    let pages = PAGES.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| w == name));
    pages.into_iter().try_for_each(|(_, page)| page())
}
