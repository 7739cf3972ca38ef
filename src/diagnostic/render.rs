//! Diagnostics as text, with the user's source line where the file can be read.

use super::terminal::wrap;
use super::{Diagnostic, Place, Spot};
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use std::ops::Range;
use std::path::Path;

/// Each diagnostic: the sentence, the source line, operand types with what is at fault marked, and what to write instead. Sentences are
/// wrapped to `width` columns, if any; lines to copy are not.
pub(super) fn render(list: &[Diagnostic], renderer: &Renderer, width: Option<usize>) -> String {
    let texts: Vec<_> = list.iter().map(|d| one(d, renderer, width)).collect();
    texts.join("\n\n")
}

fn one(d: &Diagnostic, renderer: &Renderer, width: Option<usize>) -> String {
    let title = match d.op.as_str() {
        "" => d.fault.message.clone(),
        op => format!("{op}: {}", d.fault.message),
    };
    // `error[kind]: ` is before each line
    let before = "error[]: ".len() + d.fault.kind.name().len();
    let title = match width {
        Some(width) => wrap(&title, width.saturating_sub(before).max(NARROW)).join("\n"),
        None => title,
    };
    let mut group = Group::with_title(Level::ERROR.primary_title(title).id(d.fault.kind.name()));
    let mut files: Vec<(&str, Option<String>, Vec<Mark<'_>>)> = Vec::new();
    let own = d.place.map(|place| Mark { place, op: &d.op, label: None });
    let related = d.related.iter().map(|(place, what)| Mark { place, op: "", label: Some(what) });
    for mark in own.into_iter().chain(related) {
        let file = mark.place.file();
        match files.iter_mut().find(|f| f.0 == file) {
            Some(f) => f.2.push(mark),
            None => files.push((file, read(file), vec![mark])),
        }
    }
    // a line that the file does not have (it was changed since, or is a generated one) is told by its place alone
    let mut placeless = Vec::new();
    for (path, text, marks) in &files {
        let text = text.as_deref().unwrap_or("");
        let (shown, other): (Vec<_>, Vec<_>) =
            marks.iter().map(|m| (m, span(text, m.place, m.op))).partition(|(_, span)| span.is_some());
        if !shown.is_empty() {
            let notes = shown.into_iter().filter_map(|(m, span)| {
                Some(match m.label {
                    None => AnnotationKind::Primary.span(span?),
                    Some(label) => AnnotationKind::Context.span(span?).label(label),
                })
            });
            group = group.element(Snippet::source(text).path(*path).annotations(notes));
        }
        placeless.extend(other.into_iter().map(|(m, _)| m));
    }
    for m in placeless {
        group = match m.label {
            None => {
                let (line, column) = (m.place.line() as usize, m.place.column() as usize);
                group.element(Origin::path(m.place.file()).line(line).char_column(column))
            }
            Some(label) => group.element(Level::NOTE.message(format!("{label}: {}", m.place))),
        };
    }
    if !d.operands.is_empty() {
        let name = if d.operands.len() == 1 { "operand" } else { "operands" };
        group = group.element(Level::NOTE.with_name(name).message(operands(&d.operands, &d.fault.marks)));
    }
    for (what, out) in &d.fault.choices {
        let out = out.to_string();
        let call = d.twin.as_ref().map_or_else(|| out.clone(), |twin| twin.replace("{}", &out));
        group = group.element(Level::HELP.message(format!("{what}: `{call}`")));
    }
    for help in &d.fault.help {
        group = group.element(Level::HELP.message(help.clone()));
    }
    renderer.render(&[group])
}

/// Sentences have at least so many columns.
const NARROW: usize = 40;

/// A place to show.
struct Mark<'a> {
    place: Place,
    /// The operation there.
    op: &'a str,
    /// What happened there, where it is not the error itself.
    label: Option<&'a str>,
}

/// The source file of a place: paths are as rustc was given them, relative to the workspace in which it ran. That may be the working
/// directory, or (as `cargo test` runs in a member) a directory above.
fn read(path: &str) -> Option<String> {
    let path = Path::new(path);
    std::fs::read_to_string(path).ok().or_else(|| {
        let here = std::env::current_dir().ok()?;
        here.ancestors().skip(1).find_map(|above| std::fs::read_to_string(above.join(path)).ok())
    })
}

/// The bytes of `text` to underline: the method or function named at the place; of an expression with an operator, whose place is
/// where it begins, the operator.
fn span(text: &str, place: Place, op: &str) -> Option<Range<usize>> {
    let line = text.split_inclusive('\n').nth(place.line().checked_sub(1)? as usize)?;
    let start = line.as_ptr() as usize - text.as_ptr() as usize;
    let line = line.trim_end();
    // columns count characters, a tab as four
    let mut columns = 1;
    let at = line.char_indices().find_map(|(i, c)| {
        let here = columns >= place.column();
        columns += if c == '\t' { 4 } else { 1 };
        here.then_some(i)
    })?;
    let span = underlined(&line[at..], op);
    Some(start + at + span.start..start + at + span.end)
}

/// The part of the expression that begins here which names the operation.
fn underlined(here: &str, op: &str) -> Range<usize> {
    let ends = |text: &str| text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let mut word = ends(here);
    let called = here[word..].starts_with('(') && here[..word] == *op;
    // of a path all of it: `Array::from_shards`
    while let Some(rest) = here[word..].strip_prefix("::").filter(|rest| ends(rest) > 0) {
        word += "::".len() + ends(rest);
    }
    let first = here.chars().next().map_or(0, char::len_utf8);
    let symbol = operator(op).filter(|_| !called).and_then(|symbol| {
        // the place of `(a + b).sum()` is that of the bracket
        find_operator(here, symbol).or_else(|| {
            let inside = find_operator(here.strip_prefix('(')?, symbol)?;
            Some(inside.start + 1..inside.end + 1)
        })
    });
    symbol.unwrap_or(0..word.max(first))
}

/// How an operation is written between or before its operands.
fn operator(op: &str) -> Option<&'static str> {
    Some(match op {
        "add" => "+",
        "sub" | "neg" => "-",
        "mul" => "*",
        "div" => "/",
        "rem" => "%",
        "and" => "&",
        "or" => "|",
        "xor" => "^",
        "not" => "!",
        _ => return None,
    })
}

/// The first such operator of an expression that is not inside brackets.
fn find_operator(text: &str, symbol: &str) -> Option<Range<usize>> {
    let mut depth = 0;
    for (i, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => return None,
            ')' | ']' | '}' => depth -= 1,
            ';' | ',' if depth == 0 => return None,
            _ if depth == 0 && text[i..].starts_with(symbol) => {
                // `x.dot(w) + &b`: a reference or a sign is written against its operand, an operator apart
                let unary = text[..i].trim_end().ends_with(|c: char| "+-*/%&|^!=<>".contains(c));
                if !unary {
                    return Some(i..i + symbol.len());
                }
            }
            _ => {}
        }
    }
    None
}

/// Operand types, and under them carets at what is at fault.
fn operands(types: &[String], parts: &[(usize, Spot)]) -> String {
    const WIDE: usize = 100;
    let one_line = types.iter().map(|t| t.chars().count() + 2).sum::<usize>() <= WIDE;
    let (mut lines, mut text, mut marks) = (Vec::new(), String::new(), String::new());
    for (k, ty) in types.iter().enumerate() {
        let before = text.chars().count();
        for (_, part) in parts.iter().filter(|p| p.0 == k) {
            if let Some(r) = stands(ty, *part) {
                let (from, to) =
                    (before + ty[..r.start].chars().count(), before + ty[..r.end].chars().count());
                let mut row: Vec<char> = marks.chars().collect();
                row.resize(row.len().max(to), ' ');
                row[from..to].fill('^');
                marks = row.into_iter().collect();
            }
        }
        text += ty;
        if k + 1 < types.len() {
            text += if one_line { ", " } else { "," };
        }
        if !one_line || k + 1 == types.len() {
            lines.push(std::mem::take(&mut text));
            if !marks.is_empty() {
                lines.push(std::mem::take(&mut marks));
            }
        }
    }
    lines.join("\n")
}

/// The position of a part in a printed type.
fn stands(ty: &str, part: Spot) -> Option<Range<usize>> {
    match part {
        Spot::Dim(d) => dim(ty, d),
        Spot::Dtype => ty.find('[').map(|open| 0..open),
        Spot::Sets => ty.rfind("]{").map(|close| close + 1..ty.len()),
    }
}

/// The position of dimension `d` in a printed type.
fn dim(ty: &str, d: usize) -> Option<Range<usize>> {
    let open = ty.find('[')? + 1;
    let (mut depth, mut n, mut start) = (0, 0, open);
    for (i, c) in ty[open..].char_indices() {
        let i = open + i;
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' | ']' if depth == 0 => {
                if n == d {
                    return (start < i).then_some(start..i);
                }
                if c == ']' {
                    return None;
                }
                (n, start) = (n + 1, i + 1);
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{Error, ErrorKind, Fault, Place};
    use super::*;
    use expect_test::{Expect, expect};
    use std::panic::Location;

    struct Toy;
    impl Toy {
        #[track_caller]
        fn dot(&self, _: &Toy) -> Place {
            Location::caller()
        }
    }
    impl std::ops::Add for &Toy {
        type Output = Place;
        #[track_caller]
        fn add(self, _: &Toy) -> Place {
            Location::caller()
        }
    }

    fn check(error: &Error, want: Expect) {
        // line numbers of this file are not what is tested
        let text = render(
            error.diagnostics(),
            &Renderer::plain().anonymized_snippet_line_numbers(true).anonymized_origin_line_numbers(true),
            None,
        );
        want.assert_eq(&(text + "\n"));
    }
    fn fault() -> Fault {
        Fault::new(
            ErrorKind::Sharding,
            "dimension 1 of operand 0 and dimension 0 of operand 1 are one loop, but are split differently",
        )
        .dim(0, 1)
        .dim(1, 0)
        .help("reshard one of them: x.reshard(p![_, \"Y\"])")
        .help("or say how the result is sharded: x.dot_to(&w, p![…])")
    }
    fn types() -> Vec<String> {
        vec!["float32[8,16@X]{V:Z}".into(), "float32[16@(Y,W),4]".into()]
    }

    #[test]
    fn a_method_is_underlined_and_dimensions_are_marked() {
        let (x, w) = (Toy, Toy);
        let place = x.dot(&w);
        check(
            &Error::at(fault(), "dot", types(), Some(place)),
            expect![[r#"
                error[sharding]: dot: dimension 1 of operand 0 and dimension 0 of operand 1 are one loop, but are split differently
                  --> src/diagnostic/render.rs:LL:23
                   |
                LL |         let place = x.dot(&w);
                   |                       ^^^
                   |
                   = operands: float32[8,16@X]{V:Z}, float32[16@(Y,W),4]
                                         ^^^^                ^^^^^^^^
                   = help: reshard one of them: x.reshard(p![_, "Y"])
                   = help: or say how the result is sharded: x.dot_to(&w, p![…])
            "#]],
        );
    }
    #[test]
    fn an_operator_is_underlined() {
        let (x, w) = (Toy, Toy);
        let place = &(x) + &w;
        let fault = Fault::new(ErrorKind::Shape, "sizes 3 and 4 do not broadcast").dim(0, 0).dim(1, 0);
        check(
            &Error::at(fault, "add", vec!["float32[3]".into(), "float32[4]".into()], Some(place)),
            expect![[r#"
                error[shape]: add: sizes 3 and 4 do not broadcast
                  --> src/diagnostic/render.rs:LL:26
                   |
                LL |         let place = &(x) + &w;
                   |                          ^
                   |
                   = operands: float32[3], float32[4]
                                       ^           ^
            "#]],
        );
    }
    #[test]
    fn related_lines_stand_beside() {
        let (x, w) = (Toy, Toy);
        let before = x.dot(&w); // given away
        let place = w.dot(&x);
        let fault = Fault::new(ErrorKind::Donated, "the argument was donated");
        let error = Error::at(fault, "dot", Vec::new(), Some(place)).related(before, "donated here");
        check(
            &error,
            expect![[r#"
                error[donated]: dot: the argument was donated
                  --> src/diagnostic/render.rs:LL:23
                   |
                LL |         let before = x.dot(&w); // given away
                   |                        --- donated here
                LL |         let place = w.dot(&x);
                   |                       ^^^
            "#]],
        );
    }
    #[test]
    fn without_a_place_or_an_op_the_sentence_stands_alone() {
        check(
            &Error::other("disk full"),
            expect![[r#"
            error[other]: disk full
        "#]],
        );
        check(
            &Error::at(fault(), "dot", types(), None),
            expect![[r#"
            error[sharding]: dot: dimension 1 of operand 0 and dimension 0 of operand 1 are one loop, but are split differently
               |
               = operands: float32[8,16@X]{V:Z}, float32[16@(Y,W),4]
                                     ^^^^                ^^^^^^^^
               = help: reshard one of them: x.reshard(p![_, "Y"])
               = help: or say how the result is sharded: x.dot_to(&w, p![…])
        "#]],
        );
    }
    #[test]
    fn sentences_are_wrapped_to_a_terminal() {
        let error = Error::at(fault(), "dot", types(), None);
        let text = render(error.diagnostics(), &Renderer::plain(), Some(80));
        expect![[r#"
            error[sharding]: dot: dimension 1 of operand 0 and dimension 0 of operand 1 are
                             one loop, but are split differently
             |
             = operands: float32[8,16@X]{V:Z}, float32[16@(Y,W),4]
                                   ^^^^                ^^^^^^^^
             = help: reshard one of them: x.reshard(p![_, "Y"])
             = help: or say how the result is sharded: x.dot_to(&w, p![…])
        "#]]
        .assert_eq(&(text + "\n"));
    }
    #[test]
    fn several_errors_are_all_told() {
        let a = Error::at(Fault::new(ErrorKind::Shape, "one"), "dot", Vec::new(), None);
        let b = Error::at(Fault::new(ErrorKind::Dtype, "two").help("cast it"), "add", Vec::new(), None);
        check(
            &Error::all([a.clone(), b, a]),
            expect![[r#"
            error[shape]: dot: one

            error[dtype]: add: two
               |
               = help: cast it
        "#]],
        );
    }
    #[test]
    fn a_file_that_is_gone_is_told_by_its_place() {
        let text = "short\n";
        let (x, w) = (Toy, Toy);
        assert_eq!(span(text, x.dot(&w), "dot"), None);
        assert_eq!(read("no/such/file.rs"), None);
        assert!(read(file!()).is_some(), "found from the workspace or a directory below");
    }
    #[test]
    fn many_operands_stand_on_lines_of_their_own() {
        let types = vec!["float32[1024@(X,Y),1024,1024,1024]".to_string(); 4];
        expect![[r#"
            float32[1024@(X,Y),1024,1024,1024],
            float32[1024@(X,Y),1024,1024,1024],
                    ^^^^^^^^^^
            float32[1024@(X,Y),1024,1024,1024],
            float32[1024@(X,Y),1024,1024,1024]
                                         ^^^^"#]]
        .assert_eq(&operands(
            &types,
            &[(1, Spot::Dim(0)), (3, Spot::Dim(3)), (9, Spot::Dim(0)), (0, Spot::Dim(7))],
        ));
    }
    #[test]
    fn element_types_and_sets_are_marked() {
        let types = vec!["float32[8@X,4]{V:Z, U:(A,B)}".to_string(), "int32[4]".into(), "2".into()];
        expect![[r#"
            float32[8@X,4]{V:Z, U:(A,B)}, int32[4], 2
                          ^^^^^^^^^^^^^^  ^^^^^"#]]
        .assert_eq(&operands(
            &types,
            &[(0, Spot::Sets), (1, Spot::Dtype), (1, Spot::Sets), (2, Spot::Dtype)],
        ));
    }
    #[test]
    fn what_is_underlined() {
        for (text, op, found) in [
            ("x.dot(w) + b;", "add", "+"),
            ("&(a + b) - &c", "sub", "-"),
            ("-x", "neg", "-"),
            ("a * -b", "sub", "a"),
            ("f(a + b)", "add", "f"),
            ("add(&a, &b)", "add", "add"),
            ("größe.sum()", "sum", "größe"),
            ("(&a + &b).ty()", "add", "+"),
            ("(f(a - c) * &b).sum(..)", "mul", "*"),
            ("(a, b - c)", "sub", "("),
            ("Array::from_shards(x)", "from_shards", "Array::from_shards"),
            ("Array::zeros::<f32>(x)", "zeros", "Array::zeros"),
        ] {
            assert_eq!(&text[underlined(text, op)], found, "{text}");
        }
    }
}
