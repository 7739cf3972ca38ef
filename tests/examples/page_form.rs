//! The form of the book's teaching pages: objectives at the top, and a summary.

use super::at;

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

/// Returns what the form requires and the page lacks.
fn missing(page: &str) -> Vec<&'static str> {
    let top: String = page.lines().take(12).collect::<Vec<_>>().join("\n");
    let objectives = top.contains("After this ") && page.lines().take(12).any(|line| line.starts_with("* "));
    let parts = [("objectives at the top", objectives), ("a summary", page.contains("\n## Summary\n"))];
    parts.into_iter().filter(|(_, there)| !there).map(|(part, _)| part).collect()
}

#[test]
fn teaching_pages_have_objectives_and_a_summary() {
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(at("book/src")).expect("the book has pages") {
        let path = entry.expect("a page").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.ends_with(".md") || REFERENCE.contains(&name.as_str()) {
            continue;
        }
        let lacks = missing(&std::fs::read_to_string(&path).expect("a page can be read"));
        if !lacks.is_empty() {
            wrong.push(format!("{name} has no {}", lacks.join(", and no ")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_form_is_recognised() {
    let page = "# A page\n\nAfter this page you can\n\n* read it.\n\n## Summary\n\nIt is short.\n";
    assert!(missing(page).is_empty());
    assert_eq!(missing("# A page\n\nText.\n").len(), 2);
}
