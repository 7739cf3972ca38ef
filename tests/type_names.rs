//! Checks the names of the library's types: each name stands for one type, and is a noun.

mod lexer;

use lexer::{SourceFile, Token, TokenKind, item_end, library_sources};
use std::collections::BTreeMap;

/// A file of at most this many lines may reuse a name for a private type.
const MAX_PRIVATE_LINES: usize = 200;

/// Prepositions, pronouns, adverbs and the like: they do not name types.
const NOT_NOUNS: [&str; 110] = [
    "Above", "After", "Again", "All", "Alone", "Along", "Also", "Any", "Apart", "As", "At", "Away", "Back",
    "Before", "Behind", "Below", "Beside", "Between", "Beyond", "Both", "By", "Down", "Each", "Either",
    "Else", "Even", "Ever", "Few", "For", "Forth", "From", "Here", "How", "If", "In", "Inside", "Into", "It",
    "Just", "Late", "Left", "Less", "Made", "Many", "Minus", "More", "Most", "Near", "Neither", "Never",
    "Next", "No", "None", "Not", "Nothing", "Now", "Of", "Off", "On", "Once", "One", "Only", "Onto", "Other",
    "Out", "Outside", "Over", "Past", "Per", "Plus", "Quite", "Rather", "Same", "Some", "Still", "Such",
    "Than", "That", "Then", "There", "These", "They", "This", "Those", "Through", "Till", "Times", "To",
    "Together", "Too", "Toward", "Twice", "Under", "Until", "Up", "Upon", "Very", "Via", "What", "When",
    "Where", "Which", "While", "Who", "Whole", "Why", "With", "Within", "Without", "Yet",
];

/// Names that two types share because one replaces the other, with the reason.
const ALLOWED: &[(&str, &str)] = &[
    (
        "ComputeMatrix",
        "ir::ops::linalg has one with the feature `linalg` and one without; `cfg` selects one of them",
    ),
    ("First", SIMD_LEVELS),
    ("Nans", SIMD_LEVELS),
    (
        "Options",
        "the modules `stablehlo` and `distributed` each have one, and users write them with their module",
    ),
    ("Shape", STATIC_TYPES),
    ("Shard", STATIC_TYPES),
    ("Spec", STATIC_TYPES),
    ("V", SIMD_LEVELS),
    ("WorkerThread", "runtime::park has one for Linux and one for other systems; `cfg` selects one of them"),
];

const STATIC_TYPES: &str =
    "a trait of the typed layer has the name of the value that its types describe before the program runs";

const SIMD_LEVELS: &str =
    "the same kernels are compiled for AVX-512 and AVX2, with the vector type of each level";

/// The place where a type is declared.
struct Declaration {
    path: String,
    line: usize,
    /// True if only one file of at most [`MAX_PRIVATE_LINES`] lines can use the type.
    is_local: bool,
}

#[test]
fn type_names_are_unique_nouns() {
    let (mut types, mut faults) = (BTreeMap::<String, Vec<Declaration>>::new(), Vec::new());
    for file in library_sources(&["src", "typed/src"]) {
        for (name, declaration) in declarations(&file) {
            types.entry(name).or_default().push(declaration);
        }
    }
    for (name, declarations) in &types {
        let places: Vec<String> = declarations.iter().map(|d| format!("{}:{}", d.path, d.line)).collect();
        let shared = declarations.iter().filter(|d| !d.is_local).count();
        if NOT_NOUNS.contains(&name.as_str()) {
            faults.push(format!("`{name}` is not a noun: {}", places.join(", ")));
        }
        let limit = if ALLOWED.iter().any(|(allowed, _)| allowed == name) { 2 } else { 1 };
        if shared > limit {
            faults.push(format!("`{name}` names {} types: {}", places.len(), places.join(", ")));
        } else if limit == 2 && shared < 2 {
            faults.push(format!("`{name}` is in the list of allowed names, and need not be"));
        }
    }
    let vanished = ALLOWED.iter().filter(|(name, _)| !types.contains_key(*name));
    faults.extend(
        vanished.map(|(name, _)| format!("`{name}` is in the list of allowed names, and no type has it")),
    );
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// The types that a file declares: structs, enums, unions, traits and aliases, but no associated types.
fn declarations(file: &SourceFile) -> Vec<(String, Declaration)> {
    let tokens = &file.tokens;
    let (mut found, mut associated_end) = (Vec::new(), 0);
    for (i, token) in tokens.iter().enumerate() {
        if (token.is("impl") || token.is("trait")) && starts_item(&tokens[..i]) {
            associated_end = associated_end.max(item_end(tokens, i));
        }
        let is_type = ["struct", "enum", "union", "trait"].iter().any(|k| token.is(k))
            || token.is("type") && i >= associated_end;
        let Some(name) = tokens.get(i + 1).filter(|t| is_type && is_type_name(t)) else { continue };
        let is_private = !tokens[..i].last().is_some_and(|t| t.is("pub") || t.is(")"));
        let is_local = is_private && file.lines.len() <= MAX_PRIVATE_LINES;
        found.push((name.text.clone(), Declaration { path: file.path.clone(), line: token.line, is_local }));
    }
    found
}

/// Returns true if an item can start after `before`, rather than a type or an expression. In the body of a
/// macro, an item can also start after `$(` or `)*`.
fn starts_item(before: &[Token]) -> bool {
    let before = before.iter().rev().filter(|t| !t.is_comment()).take(2);
    let before: Vec<&str> = before.map(|t| t.text.as_str()).collect();
    match before[..] {
        [] => true,
        [last, second, ..] if last == "(" || last == "*" => {
            [("(", "$"), ("*", ")")].contains(&(last, second))
        }
        [last, ..] => [";", "{", "}", "]", ")", "pub", "unsafe"].contains(&last),
    }
}

fn is_type_name(token: &Token) -> bool {
    token.kind == TokenKind::Word && token.text.starts_with(char::is_uppercase)
}

#[test]
fn declarations_are_found() {
    let source = "pub struct First<T>(T);\nimpl Iterator for First<u8> {\n type Item = u8;\n}\n\
                  fn f() -> impl Fn() {\n type Second = u8;\n || ()\n}\npub(crate) trait Third {\n type Output;\n}\n\
                  #[cfg(test)]\nstruct Fourth;\nenum Fifth { Sixth { union: u8 } }";
    let file = SourceFile::new("src/lib.rs".into(), source);
    let found = declarations(&file).into_iter().map(|(name, d)| format!("{name} {} {}", d.line, d.is_local));
    let expected = ["First 1 false", "Second 6 true", "Third 9 false", "Fifth 14 true"];
    assert_eq!(found.collect::<Vec<_>>(), expected);
}
