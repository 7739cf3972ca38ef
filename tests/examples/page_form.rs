//! The form of the book's pages, and links to sections that exist.
//!
//! A teaching page has objectives, a reason to read it, a picture or a drawing in text before any code,
//! a small program, a variation of it, a mistake, something to try, three questions with folded
//! answers, and a summary.

use super::at;

/// Pages without the form, and what they are instead.
const REFERENCE: &[(&[&str], &str)] = &[
    (&["SUMMARY.md"], "the list of pages"),
    (&["introduction.md", "reading.md"], "the way in: what the book is for, and where to start"),
    (&["playground.md"], "the playground itself"),
    (&["exercises.md", "cookbook.md", "faq.md"], "collections, each entry by itself"),
    (&["glossary.md", "primitives.md", "all_shardings.md", "sources.md"], "lists to look something up"),
    (
        &[
            "errors.md",
            "errors_modes.md",
            "errors_products.md",
            "errors_running.md",
            "errors_shapes.md",
            "errors_tracing.md",
            "errors_types.md",
        ],
        "errors by family, each with its program",
    ),
    (
        &["explicit.md", "explicit_products.md", "explicit_reshard.md", "explicit_shapes.md", "modes.md"],
        "rules, one by one, each accepted and rejected",
    ),
    (&["typed_compared.md", "typed_generic.md", "typed_rules.md"], "the reference of typed arrays"),
    (&["devices.md", "follow.md", "same_bits.md"], "how the crate works inside"),
];

/// Parts of the form that pages do without, and why.
const WITHOUT: &[(&[&str], &[&str], &str)] = &[
    (
        &["jax.md", "mpi.md", "numpy.md", "pytorch.md", "reactant.md"],
        &["picture", "small program", "variation", "mistake", "try", "questions", "next"],
        "a comparison with another library, to look up names",
    ),
    (&["install.md"], &["picture", "variation", "questions"], "nothing is sharded yet"),
    (
        &["training.md", "optimizers.md", "layers.md", "layouts.md", "llama.md", "network_layouts.md"],
        &["reason", "picture", "small program", "variation", "mistake", "try", "questions", "next"],
        "a project, grown from page to page: a program is a whole one, and questions come at its end",
    ),
    (
        &["debugging.md", "testing.md", "sharp_bits.md", "performance.md", "beyond.md", "gpu.md"],
        &["picture"],
        "about code and its surroundings: a picture of blocks would show nothing of it",
    ),
    (
        &["typed.md", "typed_structs.md"],
        &["picture"],
        "about types in the source, whose arrays are those of the pages before",
    ),
    (
        &["train_model.md", "train_pipeline.md", "train_precision.md"],
        &["picture"],
        "with a figure in text, of characters, ticks or bits",
    ),
];

/// The formula of each teaching page whose subject has one, for example that of a cost.
const FORMULAS: &[(&str, &str)] = &[
    ("auto.md", "bytes received + multiplications / 32"),
    ("collectives.md", "C[I, K]{U:x}"),
    ("convolutions.md", "d (k−1)/2"),
    ("costs.md", "V (n−1)/n"),
    ("derivatives.md", "Aᵀ ȳ"),
    ("fft.md", "V(n−1)/n²"),
    ("heat1d.md", "x[i, t+1] = "),
    ("indexing.md", "2 k w (n−1)/n"),
    ("linalg.md", "n³"),
    ("lines.md", "k·(n − 1)"),
    ("llama.md", "4 b e (n−1)/n"),
    ("loops.md", "bytes × times"),
    ("manual.md", "V (n−1)/n"),
    ("meshes.md", "i m + j"),
    ("network.md", "2 V (n−1)/n"),
    ("network_layouts.md", "2 V (n−1)/n"),
    ("optimizers.md", "g = gradient of (s · loss)"),
    ("performance.md", "time ≥ max("),
    ("planning.md", "2V(n−1)/n"),
    ("practice.md", "2V(n−1)/n"),
    ("products.md", "4·I·J·(n−1)/n"),
    ("programs.md", "k (d + 1)"),
    ("recompute.md", "n·c + s"),
    ("replicated.md", "V (n−1)/n"),
    ("reports.md", "2 V (n−1)/n"),
    ("schedules.md", "max(g, p)"),
    ("seven.md", "V (n−1)/n²"),
    ("shardings.md", "s / (a b)"),
    ("spectral.md", "exp(-(k² + l²) t)"),
    ("stencils.md", "2 r (a + b)"),
    ("strategy.md", "16 P"),
    ("testing.md", "(f(x + h v) − f(x − h v)) / 2h"),
    ("train_accumulation.md", "2 (n − 1) / n · V · k"),
    ("train_both.md", "2 (m − 1) / m · A / d"),
    ("train_checkpoints.md", "12 P"),
    ("train_data.md", "2 (n − 1) / n · V"),
    ("train_experts.md", "capacity = f · t / e"),
    ("train_fsdp.md", "(n − 1) / n · V"),
    ("train_model.md", "−ln p"),
    ("train_optimizer.md", "g · min(1, 1 / ‖g‖)"),
    ("train_pipeline.md", "(s − 1) / (m + s − 1)"),
    ("train_precision.md", "1 + 2⁻⁷"),
    ("train_sequence.md", "(m − 1) / m · A"),
    ("train_tensor.md", "rows · characters · embed · 4"),
    ("uneven.md", "⌈s/n⌉"),
    ("unreduced.md", "2 V (n−1)/n"),
    ("whole.md", "softmax(Q · Kᵀ / √d) · V"),
    ("why.md", "4 numbers · 4 bytes · parameters"),
];

/// Teaching pages without a formula, and why.
const WITHOUT_FORMULA: &[(&[&str], &str)] = &[
    (&["install.md", "beyond.md", "gpu.md", "processes.md"], "about settings and commands"),
    (
        &[
            "first.md",
            "notebook.md",
            "big_sin.md",
            "choosing.md",
            "mixed.md",
            "explain.md",
            "train_layouts.md",
        ],
        "its figures come from reports and plans, whose formulas are on the pages before",
    ),
    (
        &[
            "custom.md",
            "data.md",
            "layers.md",
            "layouts.md",
            "native.md",
            "random.md",
            "training.md",
            "trees.md",
        ],
        "about how a program is written",
    ),
    (&["typed.md", "typed_structs.md"], "about types"),
    (&["vmap.md", "debugging.md", "sharp_bits.md"], "about what a program computes, not what it costs"),
    (&["jax.md", "mpi.md", "numpy.md", "pytorch.md", "reactant.md"], "a comparison with another library"),
];

/// The number of lines that the first program of a page shows at most.
const MAX_LINES: usize = 15;

/// Replaces the lines that include a part of a file by that part; other lines of the file, which the
/// page hides, are left out.
fn expanded(page: &str) -> String {
    let mut text = String::new();
    for line in page.lines() {
        let Some(include) = line.strip_prefix("{{#").and_then(|l| l.strip_suffix("}}")) else {
            text += &format!("{line}\n");
            continue;
        };
        let (_, target) = include.split_once(' ').unwrap_or_default();
        let (path, anchor) = target.split_once(':').map_or((target, None), |(path, a)| (path, Some(a)));
        let file = std::fs::read_to_string(at("book/src").join(path)).unwrap_or_default();
        let mut is_shown = anchor.is_none();
        for line in file.lines() {
            match (line.split_once("ANCHOR: "), line.split_once("ANCHOR_END: "), anchor) {
                (Some((_, name)), _, Some(anchor)) if name.trim() == anchor => is_shown = true,
                (_, Some((_, name)), Some(anchor)) if name.trim() == anchor => is_shown = false,
                (None, None, _) if is_shown => text += &format!("{line}\n"),
                _ => {}
            }
        }
    }
    text
}

/// Returns the programs of a page, expanded.
fn programs(page: &str) -> Vec<&str> {
    let blocks = page.split("```").skip(1).step_by(2);
    blocks.filter(|block| block.starts_with("rust")).collect()
}

/// Counts the lines of a program that a page shows: neither blank nor hidden.
fn shown_lines(program: &str) -> usize {
    program.lines().skip(1).filter(|l| !l.trim().is_empty() && !l.starts_with("# ") && *l != "#").count()
}

/// Returns true if a paragraph of 20 words precedes the first section, other than the objectives.
fn has_reason(page: &str) -> bool {
    let head = page.split("\n## ").next().unwrap_or_default();
    head.split("\n\n").any(|p| {
        !p.starts_with(['*', '#', '!'])
            && !p.starts_with("```")
            && !p.contains("After this ")
            && p.split_whitespace().count() >= 20
    })
}

/// Returns the parts of the form that a page lacks.
fn missing(page: &str) -> Vec<&'static str> {
    let page = &expanded(page);
    let top: Vec<&str> = page.lines().take(16).collect();
    let objectives = top.iter().any(|line| line.contains("After this "))
        && top.iter().filter(|line| line.starts_with("* ")).count() >= 2;
    let before_code = page.split("```rust").next().unwrap_or_default();
    let (before, exercises) = page.split_once("\n## Exercises\n").unwrap_or((page, ""));
    let exercises = exercises.split("\n## ").next().unwrap_or_default();
    let is_question = |line: &&str| line.split_once(". ").is_some_and(|(n, _)| n.parse::<u8>().is_ok());
    let questions = exercises.lines().filter(is_question).count();
    let folded = exercises.matches("<details><summary>Answer</summary>").count();
    let shown = programs(before);
    let is_mistake =
        |line: &str| line.starts_with("## ") && (line.contains("mistake") || line.contains("bug"));
    let mistake = page.contains("error[") || page.lines().any(is_mistake);
    let parts = [
        ("objectives", objectives),
        ("reason", has_reason(page)),
        ("picture", before_code.contains("](pictures/") || before_code.contains("```text\n")),
        ("small program", shown.first().is_some_and(|program| shown_lines(program) <= MAX_LINES)),
        ("variation", shown.len() >= 2),
        ("mistake", mistake),
        ("try", page.contains("Try it: ") || page.contains("cargo run") || page.contains("cargo test")),
        ("questions", questions >= 3 && folded >= 3),
        ("summary", page.contains("\n## Summary\n")),
        ("next", page.contains("\n**Next:** ")),
    ];
    parts.into_iter().filter(|(_, is_there)| !is_there).map(|(part, _)| part).collect()
}

/// Returns the name and the text of each page that is not a reference page.
fn teaching_pages() -> Vec<(String, String)> {
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("a page").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_teaching =
            name.ends_with(".md") && !REFERENCE.iter().any(|(pages, _)| pages.contains(&name.as_str()));
        is_teaching.then(|| (name, std::fs::read_to_string(&path).expect("a page can be read")))
    };
    std::fs::read_dir(at("book/src")).expect("the book has pages").filter_map(read).collect()
}

#[test]
fn teaching_pages_have_the_form() {
    let mut wrong = Vec::new();
    let mut teaching = 0;
    for (name, text) in teaching_pages() {
        let name = name.as_str();
        teaching += 1;
        let is_needed = |part: &&str| {
            !WITHOUT.iter().any(|(pages, parts, _)| pages.contains(&name) && parts.contains(part))
        };
        let lacks = missing(&text);
        let lacks: Vec<&str> = lacks.into_iter().filter(is_needed).collect();
        if !lacks.is_empty() {
            wrong.push(format!("{name}: no {}", lacks.join(", no ")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(teaching > 40, "only {teaching} teaching pages");
}

/// A reader who follows "Next" reads the pages in the order of the summary.
#[test]
fn next_is_the_page_that_follows() {
    let read = |page: &str| std::fs::read_to_string(at("book/src").join(page)).expect("a page can be read");
    let summary = read("SUMMARY.md");
    let pages: Vec<&str> = summary.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let has_form = |page: &str| {
        !REFERENCE.iter().any(|(pages, _)| pages.contains(&page))
            && !WITHOUT.iter().any(|(pages, parts, _)| pages.contains(&page) && parts.contains(&"next"))
    };
    let mut wrong = Vec::new();
    for pair in pages.windows(2).filter(|pair| has_form(pair[0])) {
        let text = read(pair[0]);
        let next = text.lines().find(|line| line.starts_with("**Next:** ")).unwrap_or_default();
        if !next.contains(&format!("({}", pair[1])) {
            wrong.push(format!("{}, not to {}: {next}", pair[0], pair[1]));
        }
    }
    assert!(pages.len() > 80, "only {} pages", pages.len());
    assert!(wrong.is_empty(), "pages whose \"Next\" leads elsewhere: {wrong:#?}");
}

/// A page whose programs do not run in the browser says how to run them, and promises no button.
#[test]
fn pages_without_panels_say_how_to_run_their_programs() {
    let script = std::fs::read_to_string(at("book/run.js")).expect("the script can be read");
    let (_, rest) = script.split_once("const WITHOUT_PANELS = [").expect("the script has the list");
    let (list, _) = rest.split_once(']').expect("the list ends");
    let named = |page: &str| list.split(", ").any(|name| name.trim_matches('"') == page);
    let (mut wrong, mut pages) = (Vec::new(), 0);
    for entry in std::fs::read_dir(at("book/src")).expect("the book has pages") {
        let path = entry.expect("a page").path();
        let page = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if named(&page) || page.starts_with("train_") {
            pages += 1;
            let text = std::fs::read_to_string(&path).expect("a page can be read");
            let says_how = ["cargo run", "cargo test", "scripts/processes"].iter().any(|c| text.contains(c));
            if !says_how || text.contains("Run here") {
                wrong.push(page);
            }
        }
    }
    assert!(wrong.is_empty(), "pages that do not say how to run their programs: {wrong:?}");
    assert!(pages > 20, "only {pages} pages without panels");
}

/// A teaching page has the formula of its subject, or is listed with the reason why there is none.
#[test]
fn pages_have_the_formulas_of_their_subjects() {
    let mut wrong = Vec::new();
    for (name, text) in teaching_pages() {
        let name = name.as_str();
        let excused = WITHOUT_FORMULA.iter().filter(|(pages, _)| pages.contains(&name)).count();
        let formulas: Vec<&str> = FORMULAS.iter().filter(|(page, _)| *page == name).map(|f| f.1).collect();
        match formulas.iter().find(|formula| !text.contains(**formula)) {
            Some(formula) => wrong.push(format!("{name} lacks {formula}")),
            None if formulas.len() + excused == 1 => {}
            None => wrong.push(format!("{name} is in {} lists of formulas", formulas.len() + excused)),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Every page that is named above exists.
#[test]
fn pages_without_the_form_exist() {
    let reference = REFERENCE.iter().flat_map(|(pages, _)| pages.iter());
    let without = WITHOUT.iter().flat_map(|(pages, ..)| pages.iter());
    let formulas = FORMULAS.iter().map(|(page, _)| page);
    let without_formula = WITHOUT_FORMULA.iter().flat_map(|(pages, _)| pages.iter());
    for page in reference.chain(without).chain(formulas).chain(without_formula) {
        assert!(at("book/src").join(page).exists(), "{page}");
    }
}

#[test]
fn the_form_is_recognised() {
    let question = "\n1. Why?\n\n<details><summary>Answer</summary>\n\nSo.\n\n</details>\n";
    let program = "```rust\nlet x = 1;\n```\n";
    let page = format!(
        "# A page\n\nAfter this page you can\n\n* read it;\n* write it.\n\n{}\n\n![a](pictures/a.svg)\n\n\
         ## First\n\n{program}\n{program}\nTry it: [there](playground.md)\n\n## A mistake\n\n## Exercises\n\
         {question}{question}{question}\n## Summary\n\nIt is short.\n\n**Next:** more.\n",
        "a word of reason ".repeat(6)
    );
    assert_eq!(missing(&page), [""; 0]);
    assert_eq!(missing("# A page\n\nText.\n").len(), 10);
    assert_eq!(missing(&page.replace("* write it.", "")), ["objectives"]);
    assert_eq!(missing(&page.replacen(question, "", 1)), ["questions"]);
    let long = format!("```rust\n{}```\n", "let x = 1;\n".repeat(16));
    assert_eq!(missing(&page.replacen(program, &long, 1)), ["small program"]);
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

/// Returns the names and texts of all pages, without their blocks of code.
fn pages() -> Vec<(String, String)> {
    std::fs::read_dir(at("book/src"))
        .expect("the book has pages")
        .map(|entry| entry.expect("a page").path())
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, prose(&std::fs::read_to_string(&path).expect("a page can be read")))
        })
        .collect()
}

#[test]
fn links_to_sections_name_headings() {
    let pages = pages();
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

/// The book's copy of the API is built with the default features, so it has no page of other modules.
#[test]
fn links_to_the_api_need_no_further_feature() {
    let root = std::fs::read_to_string(at("src/lib.rs")).expect("the crate's root can be read");
    let absent: Vec<&str> = root
        .split("\n#[cfg(feature = \"")
        .skip(1)
        .filter(|rest| !rest.starts_with("typed") && !rest.starts_with("json"))
        .filter_map(|rest| rest.split(';').next()?.rsplit("::").next())
        .collect();
    assert!(absent.contains(&"pjrt"), "{absent:?}");
    let mut links = 0;
    for (name, text) in pages() {
        for link in text.split("](api/atmesh/").skip(1).filter_map(|rest| rest.split(')').next()) {
            let module = link.split('/').next().unwrap_or_default();
            assert!(!absent.contains(&module), "{name} links to {link}, which needs a feature");
            links += 1;
        }
    }
    assert!(links > 100, "only {links} links");
}
