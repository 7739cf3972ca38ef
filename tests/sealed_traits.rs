//! Checks that no program can implement a trait of typed arrays' types: each such trait is sealed, or
//! is in a list with the reason why it need not be.

mod lexer;

use lexer::{SourceFile, Token, TokenKind, item_end, library_sources};
use std::collections::BTreeSet;

/// Supertraits that only the library implements. A macro declares `AddRhs`, as `$rhs: Sealed`.
const SEALS: &[&str] = &["AddRhs", "Element", "FromRule", "Sealed", "SealedKey", "SealedOrDeclared"];

/// Traits that are not sealed, with the reason.
const OPEN: &[(&str, &str)] = &[
    ("AlikeDim", EVERY_TYPE),
    ("AssignableTo", EVERY_TYPE),
    ("FromRule", "is in a private module"),
    ("LeftNumber", "is a bound of impls for numbers only, and decides no type"),
    ("NormalizedAs", EVERY_TYPE),
    ("PiecesOf", EVERY_TYPE),
    ("SameElem", EVERY_TYPE),
    ("SameShape", EVERY_TYPE),
    ("SameType", EVERY_TYPE),
    ("SealedKey", "is in a private module"),
    ("ShardMapBody", "decides no type"),
    ("ShardMapIn", DERIVED),
    ("ShardMapOut", DERIVED),
    ("SizeAtMost", "has no items, and is a bound next to the rule that computes the size"),
    ("SizesAddTo", "has no items, and is a bound next to the rule that computes the size"),
    ("SummedOver", EVERY_TYPE),
];
const EVERY_TYPE: &str = "one impl for every type is all that there can be";
const DERIVED: &str = "`Blocks` derives it; the arrays of a struct are made by the impls of typed arrays";

/// A public trait of the typed layer.
struct Declared {
    name: String,
    place: String,
    supertraits: Vec<String>,
    has_seal: bool,
}

#[test]
fn traits_of_types_are_sealed() {
    let files = library_sources(&["src", "typed/src"]);
    let in_layer = |f: &&SourceFile| ["typed/src/", "src/api/typed/"].iter().any(|p| f.path.starts_with(p));
    let traits: Vec<Declared> = files.iter().filter(in_layer).flat_map(public_traits).collect();
    assert!(traits.len() > 150, "the traits are found: {}", traits.len());
    let mut faults = Vec::new();
    let sealed = sealed_names(&traits);
    for declared in &traits {
        let Declared { name, place, .. } = declared;
        let is_marker = place.starts_with("typed/src/sealed.rs");
        let is_open = OPEN.iter().any(|(open, _)| open == name);
        if !is_marker && !is_open && !sealed.contains(name) {
            faults.push(format!("{place}: `{name}` has no supertrait `Sealed` or `SealedOrDeclared`"));
        }
        if is_open && sealed.contains(name) {
            faults.push(format!("{place}: `{name}` is in the list of open traits, and is sealed"));
        }
    }
    let vanished = OPEN.iter().filter(|(open, _)| !traits.iter().any(|t| t.name == *open));
    faults
        .extend(vanished.map(|(open, _)| format!("`{open}` is in the list of open traits, and is no trait")));
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Returns the traits that have a seal: a constant, a marker, or a supertrait that has one.
fn sealed_names(traits: &[Declared]) -> BTreeSet<String> {
    let mut sealed = BTreeSet::new();
    loop {
        let before = sealed.len();
        for t in traits {
            let has_seal = |s: &String| SEALS.contains(&s.as_str()) || sealed.contains(s);
            if t.has_seal || t.supertraits.iter().any(has_seal) {
                sealed.insert(t.name.clone());
            }
        }
        if sealed.len() == before {
            return sealed;
        }
    }
}

/// Returns the public traits that a file declares. A trait whose name is a macro's variable has the name
/// of the variable.
fn public_traits(file: &SourceFile) -> Vec<Declared> {
    let tokens: Vec<&Token> = file.tokens.iter().filter(|t| !t.is_comment()).collect();
    let mut found = Vec::new();
    for (i, pair) in tokens.windows(2).enumerate() {
        if !(pair[0].is("pub") && pair[1].is("trait")) {
            continue;
        }
        let at = if tokens[i + 2].is("$") { i + 3 } else { i + 2 };
        let all: Vec<Token> = tokens[i + 1..].iter().map(|t| (*t).clone()).collect();
        let item = &all[..item_end(&all, 0)];
        // the macro `rule_traits!` writes `pub trait Rule: Sealed, sealed => Out: Bound {..}`
        let ends =
            |i: &usize| item[*i].is("{") || item[*i].is("=") && item.get(i + 1).is_some_and(|t| t.is(">"));
        let open = (0..item.len()).find(ends).unwrap_or(item.len());
        found.push(Declared {
            name: tokens[at].text.clone(),
            place: format!("{}:{}", file.path, tokens[at].line),
            supertraits: outer_words(&item[..open]),
            has_seal: item.windows(2).any(|w| {
                w[0].is("const") && w[1].is("SEAL")
                    || w[0].is("seal") && w[1].is("!")
                    || w[0].is(",") && w[1].is("sealed")
            }),
        });
    }
    found
}

/// Returns the words after the colon of a trait's head that are outside of angle brackets.
fn outer_words(head: &[Token]) -> Vec<String> {
    let (mut depth, mut words, mut after_colon) = (0, Vec::new(), false);
    for token in head {
        match token.text.as_str() {
            "<" => depth += 1,
            ">" => depth -= 1,
            ":" if depth == 0 => after_colon = true,
            _ if after_colon && depth == 0 && token.kind == TokenKind::Word => words.push(token.text.clone()),
            _ => {}
        }
    }
    words
}

#[test]
fn traits_and_seals_are_found() {
    let source = "pub trait First<A: Size>: Sealed + 'static {}\ntrait Second {}\n\
                  pub trait Third: First<X> {\n type Out;\n}\npub trait Fourth<S> {\n const SEAL: Seal;\n}\n\
                  pub trait Fifth<A: Sealed> {}\nmacro_rules! m { ($t:ident) => { pub trait $t: Sealed {} } }";
    let file = SourceFile::new("typed/src/lib.rs".into(), source);
    let traits = public_traits(&file);
    let names: Vec<&str> = traits.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["First", "Third", "Fourth", "Fifth", "t"]);
    let sealed: Vec<String> = sealed_names(&traits).into_iter().collect();
    assert_eq!(sealed, ["First", "Fourth", "Third", "t"]);
}
