//! Rendering of diagnostics as text, with the user's source line if the file can be read.

use super::cell::{CELL, NotebookCell};
use super::{Diagnostic, SourceLocation, TypePart};
use crate::core::util::text::{columns, wrap};
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use std::ops::Range;
use std::path::Path;

/// Renders diagnostics: message, source line, operand types with highlights, and helps.
///
/// Sentences are wrapped to `width` columns, if given; code to copy is not.
pub(super) fn render(list: &[Diagnostic], renderer: &Renderer, width: Option<usize>) -> String {
    let cell = NotebookCell::newest();
    // the numbers of a cell's lines are those of a file that the user does not see
    let of_cell = cell.is_some().then(|| renderer.clone().anonymized_snippet_line_numbers(true));
    let renderer = of_cell.as_ref().unwrap_or(renderer);
    let texts: Vec<_> = list.iter().map(|d| render_one(d, renderer, cell.as_ref(), width)).collect();
    let text = texts.join("\n\n");
    if cell.is_some() { without_cell_lines(&text) } else { text }
}

/// Removes the line and the column after the name of a cell.
fn without_cell_lines(text: &str) -> String {
    let mark = format!("--> {CELL}:");
    let is_position = |c: char| c.is_ascii_digit() || c == ':';
    let mut parts = text.split(mark.as_str());
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |text, part| format!("{text}--> {CELL}{}", part.trim_start_matches(is_position)))
}

fn render_one(
    d: &Diagnostic,
    renderer: &Renderer,
    cell: Option<&NotebookCell>,
    width: Option<usize>,
) -> String {
    let title = match d.op.as_str() {
        "" => d.fault.message.clone(),
        op => format!("{op}: {}", d.fault.message),
    };
    // `error[kind]: ` precedes every line of the title
    let before = "error[]: ".len() + d.fault.kind.name().len();
    let title = match width {
        Some(width) => wrap(&title, width.saturating_sub(before).max(MIN_TEXT_COLUMNS)).join("\n"),
        None => title,
    };
    let mut group = Group::with_title(Level::ERROR.primary_title(title).id(d.fault.kind.name()));
    // the newest cell of a notebook, other cells, or the path of a file
    let name = |location: SourceLocation| match cell {
        Some(cell) if cell.contains(location) => CELL,
        Some(_) => "an earlier cell",
        None => location.file(),
    };
    let read = |location: SourceLocation| match cell {
        Some(cell) => cell.contains(location).then(|| cell.source.clone()),
        None => read_source(location.file()),
    };
    let mut files: Vec<(&str, Option<String>, Vec<SourceMark<'_>>)> = Vec::new();
    let own = d.location.map(|place| SourceMark { location: place, op: &d.op, label: None });
    let related =
        d.related.iter().map(|(place, what)| SourceMark { location: place, op: "", label: Some(what) });
    for mark in own.into_iter().chain(related) {
        let file = name(mark.location);
        match files.iter_mut().find(|f| f.0 == file) {
            Some(f) => f.2.push(mark),
            None => files.push((file, read(mark.location), vec![mark])),
        }
    }
    // a location whose line does not exist (the file changed, or was generated) is printed without
    // a snippet
    let mut placeless = Vec::new();
    for (path, text, marks) in &files {
        let text = text.as_deref().unwrap_or("");
        let (shown, other): (Vec<_>, Vec<_>) = marks
            .iter()
            .map(|m| (m, source_span(text, m.location, m.op)))
            .partition(|(_, span)| span.is_some());
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
            _ if cell.is_some() => group.element(Origin::path(name(m.location))),
            None => {
                let (line, column) = (m.location.line() as usize, m.location.column() as usize);
                group.element(Origin::path(m.location.file()).line(line).char_column(column))
            }
            Some(label) => group.element(Level::NOTE.message(format!("{label}: {}", m.location))),
        };
    }
    if !d.operands.is_empty() {
        let name = if d.operands.len() == 1 { "operand" } else { "operands" };
        group = group
            .element(Level::NOTE.with_name(name).message(operands_text(&d.operands, &d.fault.highlights)));
    }
    for (what, out) in &d.fault.out_shardings {
        let out = out.to_string();
        let call = d.explicit_form.as_ref().map_or_else(|| out.clone(), |form| form.replace("{}", &out));
        group = group.element(Level::HELP.message(format!("{what}: `{call}`")));
    }
    for help in &d.fault.help {
        group = group.element(Level::HELP.message(help.clone()));
    }
    renderer.render(&[group])
}

/// The minimum number of columns for a message.
const MIN_TEXT_COLUMNS: usize = 40;

/// A source location to show.
struct SourceMark<'a> {
    /// The source location.
    location: SourceLocation,
    /// The operation at the location.
    op: &'a str,
    /// The label of a related location; `None` for the error itself.
    label: Option<&'a str>,
}

/// Reads the source file of a location.
///
/// Paths are as rustc was given them, relative to the workspace in which it ran. That may be the
/// working directory or (as `cargo test` runs in a member) a directory above it.
fn read_source(path: &str) -> Option<String> {
    let path = Path::new(path);
    std::fs::read_to_string(path).ok().or_else(|| {
        let here = std::env::current_dir().ok()?;
        here.ancestors().skip(1).find_map(|above| std::fs::read_to_string(above.join(path)).ok())
    })
}

/// Returns the bytes of `text` to underline: the name of the operation, or its operator.
///
/// The location that Rust records for an operator is the start of the whole expression.
fn source_span(text: &str, location: SourceLocation, op: &str) -> Option<Range<usize>> {
    let line = text.split_inclusive('\n').nth(location.line().checked_sub(1)? as usize)?;
    let start = line.as_ptr() as usize - text.as_ptr() as usize;
    let line = line.trim_end();
    // columns count characters, and a tab as four
    let mut columns = 1;
    let at = line.char_indices().find_map(|(i, c)| {
        let here = columns >= location.column();
        columns += if c == '\t' { 4 } else { 1 };
        here.then_some(i)
    })?;
    let span = operation_span(&line[at..], op);
    Some(start + at + span.start..start + at + span.end)
}

/// Returns the part of the expression `here` that names the operation.
fn operation_span(here: &str, op: &str) -> Range<usize> {
    let ends = |text: &str| text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let mut word = ends(here);
    let called = here[word..].starts_with('(') && here[..word] == *op;
    // underline all segments of a path: `Array::from_shards`
    while let Some(rest) = here[word..].strip_prefix("::").filter(|rest| ends(rest) > 0) {
        word += "::".len() + ends(rest);
    }
    let first = here.chars().next().map_or(0, char::len_utf8);
    let symbol = operator_symbol(op).filter(|_| !called).and_then(|symbol| {
        // `(a + b).sum()` has the location of the parenthesis
        find_operator(here, symbol).or_else(|| {
            let inside = find_operator(here.strip_prefix('(')?, symbol)?;
            Some(inside.start + 1..inside.end + 1)
        })
    });
    symbol.unwrap_or(0..word.max(first))
}

/// Returns the operator symbol of an operation, if it has one.
fn operator_symbol(op: &str) -> Option<&'static str> {
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

/// Returns the first occurrence of the operator `symbol` that is not inside brackets.
fn find_operator(text: &str, symbol: &str) -> Option<Range<usize>> {
    let mut depth = 0;
    for (i, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => return None,
            ')' | ']' | '}' => depth -= 1,
            ';' | ',' if depth == 0 => return None,
            _ if depth == 0 && text[i..].starts_with(symbol) => {
                // in `x.dot(w) + &b` the `&` is unary, since it follows another operator
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

/// Prints operand types, with carets under the highlighted parts.
fn operands_text(types: &[String], highlights: &[(usize, TypePart)]) -> String {
    const MAX_LINE_CHARS: usize = 100;
    let one_line = types.iter().map(|t| columns(t) + 2).sum::<usize>() <= MAX_LINE_CHARS;
    let (mut lines, mut text, mut marks) = (Vec::new(), String::new(), String::new());
    for (k, ty) in types.iter().enumerate() {
        let before = columns(&text);
        for (_, type_part) in highlights.iter().filter(|p| p.0 == k) {
            if let Some(r) = type_part_span(ty, *type_part) {
                let (from, to) = (before + columns(&ty[..r.start]), before + columns(&ty[..r.end]));
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

/// Returns the range of a part in a printed type.
fn type_part_span(ty: &str, part: TypePart) -> Option<Range<usize>> {
    match part {
        TypePart::Dim(d) => dim_span(ty, d),
        TypePart::Dtype => ty.find('[').map(|open| 0..open),
        TypePart::Sets => ty.rfind("]{").map(|close| close + 1..ty.len()),
    }
}

/// Returns the range of dimension `d` in a printed type.
fn dim_span(ty: &str, d: usize) -> Option<Range<usize>> {
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
    use super::super::{Error, Fault, SourceLocation};
    use super::*;
    use expect_test::{Expect, expect};
    use std::panic::Location;

    struct TrackedValue;
    impl TrackedValue {
        #[track_caller]
        fn dot(&self, _: &TrackedValue) -> SourceLocation {
            Location::caller()
        }
    }
    impl std::ops::Add for &TrackedValue {
        type Output = SourceLocation;
        #[track_caller]
        fn add(self, _: &TrackedValue) -> SourceLocation {
            Location::caller()
        }
    }

    fn check(error: &Error, expected: Expect) {
        // the test must not depend on line numbers of this file
        let text = render(
            error.diagnostics(),
            &Renderer::plain().anonymized_snippet_line_numbers(true).anonymized_origin_line_numbers(true),
            None,
        );
        expected.assert_eq(&(text + "\n"));
    }
    fn fault() -> Fault {
        fault!(
            Sharding,
            "dimension 1 of operand 0 and dimension 0 of operand 1 are one loop, but are split differently"
        )
        .highlight_dim(0, 1)
        .highlight_dim(1, 0)
        .help("reshard one of them: x.reshard(p![_, \"Y\"])")
        .help("or say how the result is sharded: x.dot_to(&w, p![…])")
    }
    fn types() -> Vec<String> {
        vec!["float32[8,16@X]{V:Z}".into(), "float32[16@(Y,W),4]".into()]
    }

    #[test]
    fn a_method_is_underlined_and_dimensions_are_marked() {
        let (x, w) = (TrackedValue, TrackedValue);
        let place = x.dot(&w);
        check(
            &Error::new(fault(), "dot", types(), Some(place)),
            expect![[r#"
                error[sharding]: dot: dimension 1 of operand 0 and dimension 0 of operand 1 are one loop, but are split differently
                  --> src/core/diagnostic/render.rs:LL:23
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
        let (x, w) = (TrackedValue, TrackedValue);
        let place = &(x) + &w;
        let fault = fault!(Shape, "sizes 3 and 4 do not broadcast").highlight_dim(0, 0).highlight_dim(1, 0);
        check(
            &Error::new(fault, "add", vec!["float32[3]".into(), "float32[4]".into()], Some(place)),
            expect![[r#"
                error[shape]: add: sizes 3 and 4 do not broadcast
                  --> src/core/diagnostic/render.rs:LL:26
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
    fn related_lines_stand_after() {
        let (x, w) = (TrackedValue, TrackedValue);
        let before = x.dot(&w); // given away
        let place = w.dot(&x);
        let fault = fault!(Donated, "the argument was donated");
        let error = Error::new(fault, "dot", Vec::new(), Some(place)).related(before, "donated here");
        check(
            &error,
            expect![[r#"
                error[donated]: dot: the argument was donated
                  --> src/core/diagnostic/render.rs:LL:23
                   |
                LL |         let before = x.dot(&w); // given away
                   |                        --- donated here
                LL |         let place = w.dot(&x);
                   |                       ^^^
            "#]],
        );
    }
    #[test]
    fn without_a_location_or_an_op_the_message_stands_alone() {
        check(
            &Error::other("disk full"),
            expect![[r#"
            error[user]: disk full
        "#]],
        );
        check(
            &Error::new(fault(), "dot", types(), None),
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
    fn messages_are_wrapped_to_a_terminal() {
        let error = Error::new(fault(), "dot", types(), None);
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
    fn several_errors_are_all_reported() {
        let a = Error::new(fault!(Shape, "one"), "dot", Vec::new(), None);
        let b = Error::new(fault!(Dtype, "two").help("cast it"), "add", Vec::new(), None);
        check(
            &Error::combine([a.clone(), b, a]),
            expect![[r#"
            error[shape]: dot: one

            error[dtype]: add: two
               |
               = help: cast it
        "#]],
        );
    }
    #[test]
    fn a_missing_file_is_named_by_its_location() {
        let text = "short\n";
        let (x, w) = (TrackedValue, TrackedValue);
        assert_eq!(source_span(text, x.dot(&w), "dot"), None);
        assert_eq!(read_source("no/such/file.rs"), None);
        assert!(read_source(file!()).is_some(), "found from the workspace or a directory below");
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
        .assert_eq(&operands_text(
            &types,
            &[(1, TypePart::Dim(0)), (3, TypePart::Dim(3)), (9, TypePart::Dim(0)), (0, TypePart::Dim(7))],
        ));
    }
    #[test]
    fn element_types_and_sets_are_marked() {
        let types = vec!["float32[8@X,4]{V:Z, U:(A,B)}".to_string(), "int32[4]".into(), "2".into()];
        expect![[r#"
            float32[8@X,4]{V:Z, U:(A,B)}, int32[4], 2
                          ^^^^^^^^^^^^^^  ^^^^^"#]]
        .assert_eq(&operands_text(
            &types,
            &[(0, TypePart::Sets), (1, TypePart::Dtype), (1, TypePart::Sets), (2, TypePart::Dtype)],
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
            assert_eq!(&text[operation_span(text, op)], found, "{text}");
        }
    }
}
