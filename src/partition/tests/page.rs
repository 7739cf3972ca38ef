//! Tests that the documentation of `partition` shows the states that the passes produce.

use crate::core::Mesh;
use crate::partition::draft::Draft;
use crate::prelude::*;
use std::cell::RefCell;

thread_local! {
    static SHOWN: RefCell<Option<Vec<(&'static str, String)>>> = const { RefCell::new(None) };
}

/// Records the draft as text, if this thread requested it.
pub(crate) fn watch(pass: &'static str, d: &Draft) {
    SHOWN.with_borrow_mut(|shown| {
        if let Some(shown) = shown {
            let mut p = d.to_program();
            p.origins.iter_mut().for_each(|origin| origin.location = None);
            shown.push((pass, p.to_string()));
        }
    });
}

#[test]
fn the_page_shows_what_the_passes_make() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let x = F32.array_type([8, 6]).on(&mesh, p!["X"]);
    let w = F32.array_type([2, 6]).on(&mesh, p![_, "X"]);
    let f = jit(|x: &Array, w: &Array| x.dot(w.t()));
    SHOWN.set(Some(Vec::new()));
    let lowered = f.trace((x, w))?.lower()?;
    let shown = SHOWN.take().unwrap_or_default();
    let mut expected: Vec<String> = shown.into_iter().map(|(_, text)| text).collect();
    // The page does not repeat the program where a pass leaves it as it is.
    expected.dedup();
    let c = lowered.collectives().iter().next().expect("the weights are gathered");
    expected.push(format!("{} over {}: {} bytes per device\n", c.kind, c.axes, c.bytes_per_device));
    let page = include_str!("../mod.rs");
    let page: Vec<&str> = page.lines().map_while(|l| l.strip_prefix("//!")).collect();
    let mut blocks: Vec<String> = Vec::new();
    let mut inside = false;
    for line in page {
        let line = line.strip_prefix(' ').unwrap_or(line);
        match line {
            "```text" => (inside, blocks) = (true, [blocks, vec![String::new()]].concat()),
            "```" => inside = false,
            _ if inside => *blocks.last_mut().expect("within a block") += &format!("{line}\n"),
            _ => {}
        }
    }
    assert_eq!(blocks.concat(), expected.concat(), "\n{}", expected.join("----\n"));
    Ok(())
}
