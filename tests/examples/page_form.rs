//! The form of the book's pages: objectives at the top, a summary, and links to sections that exist.

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

/// Returns the anchor that mdBook gives a heading.
fn anchor(heading: &str) -> String {
    let kept =
        heading.trim().chars().filter(|c| c.is_alphanumeric() || c.is_whitespace() || "-_".contains(*c));
    kept.map(|c| if c.is_whitespace() { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Splits a page into the lines outside of programs, as one text.
fn prose(page: &str) -> String {
    page.split("```").step_by(2).collect()
}

#[test]
fn links_to_sections_name_headings() {
    let folder = at("book/src");
    let pages: Vec<(String, String)> = std::fs::read_dir(&folder)
        .expect("the book has pages")
        .map(|entry| entry.expect("a page").path())
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, prose(&std::fs::read_to_string(&path).expect("a page can be read")))
        })
        .collect();
    let has = |name: &str, section: &str| {
        let page = pages.iter().find(|(page, _)| page == name).map_or("", |(_, text)| text);
        let is_heading =
            |line: &str| line.starts_with('#') && anchor(line.trim_start_matches('#')) == section;
        // the playground's list of programs is made by its script
        section.starts_with("preset-")
            || page.lines().any(is_heading)
            || page.contains(&format!("{{#{section}}}"))
    };
    let (mut wrong, mut links) = (Vec::new(), 0);
    for (name, text) in &pages {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let Some((page, section)) = link.split_once('#').filter(|_| !link.contains("//")) else {
                continue;
            };
            let page = if page.is_empty() { name } else { page };
            if !page.starts_with("api/") {
                links += 1;
                if !has(page, section) {
                    wrong.push(format!("{name}: {link}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "there are no such sections: {wrong:#?}");
    assert!(links > 100, "only {links} links");
}
