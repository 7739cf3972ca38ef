//! The form of the book's teaching pages: objectives at the top, a mistake, and a summary.

use super::at;
use std::collections::BTreeSet;

/// Pages without the form: reference, lists and generated pages.
const REFERENCE: [&str; 28] = [
    "SUMMARY.md",
    "all_shardings.md",
    "cookbook.md",
    "devices.md",
    "errors.md",
    "errors_modes.md",
    "errors_products.md",
    "errors_running.md",
    "errors_shapes.md",
    "errors_tracing.md",
    "errors_types.md",
    "exercises.md",
    "explicit.md",
    "explicit_products.md",
    "explicit_reshard.md",
    "explicit_shapes.md",
    "faq.md",
    "follow.md",
    "glossary.md",
    "introduction.md",
    "modes.md",
    "playground.md",
    "primitives.md",
    "same_bits.md",
    "sources.md",
    "typed_compared.md",
    "typed_generic.md",
    "typed_rules.md",
];

/// Teaching pages that do not have the form yet. A page that gets it is removed from this list.
const NOT_YET: [&str; 32] = [
    "auto.md",
    "beyond.md",
    "convolutions.md",
    "costs.md",
    "custom.md",
    "data.md",
    "derivatives.md",
    "first.md",
    "indexing.md",
    "layers.md",
    "layouts.md",
    "lines.md",
    "loops.md",
    "manual.md",
    "meshes.md",
    "mixed.md",
    "native.md",
    "optimizers.md",
    "planning.md",
    "products.md",
    "programs.md",
    "random.md",
    "reports.md",
    "seven.md",
    "shardings.md",
    "stencils.md",
    "typed.md",
    "typed_structs.md",
    "unreduced.md",
    "vmap.md",
    "whole.md",
    "why.md",
];

/// Returns what the form requires and the page lacks.
fn missing(page: &str) -> Vec<&'static str> {
    let top: String = page.lines().take(12).collect::<Vec<_>>().join("\n");
    let objectives = top.contains("After this ") && page.lines().take(12).any(|line| line.starts_with("* "));
    let parts = [("objectives at the top", objectives), ("a summary", page.contains("\n## Summary\n"))];
    parts.into_iter().filter(|(_, there)| !there).map(|(part, _)| part).collect()
}

#[test]
fn teaching_pages_have_objectives_and_a_summary() {
    let (mut wrong, mut seen) = (Vec::new(), BTreeSet::new());
    for entry in std::fs::read_dir(at("book/src")).expect("the book has pages") {
        let path = entry.expect("a page").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.ends_with(".md") || REFERENCE.contains(&name.as_str()) {
            continue;
        }
        let lacks = missing(&std::fs::read_to_string(&path).expect("a page can be read"));
        match (NOT_YET.contains(&name.as_str()), lacks.is_empty()) {
            (true, true) => wrong.push(format!("{name} has the form: remove it from NOT_YET")),
            (false, false) => wrong.push(format!("{name} has no {}", lacks.join(", and no "))),
            _ => {}
        }
        seen.insert(name);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let gone: Vec<_> = NOT_YET.iter().filter(|name| !seen.contains(**name)).collect();
    assert!(gone.is_empty(), "there are no such pages: {gone:?}");
}

#[test]
fn the_form_is_recognised() {
    let page = "# A page\n\nAfter this page you can\n\n* read it.\n\n## Summary\n\nIt is short.\n";
    assert!(missing(page).is_empty());
    assert_eq!(missing("# A page\n\nText.\n").len(), 2);
}
