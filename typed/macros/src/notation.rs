//! Parsing and expansion of shapes, sizes, specs and array types.

use crate::tokens::{Code, Input, Result, code, code_with, fail, tuple};
use proc_macro::{Delimiter, Literal, Span, TokenTree};

/// Parses an unsigned integer literal.
pub(crate) fn literal(l: &Literal) -> Result<u64> {
    let text = l.to_string().replace('_', "");
    match text.trim_end_matches("usize").parse() {
        Ok(n) => Ok(n),
        Err(_) => fail(l.span(), "a size is a whole number"),
    }
}
/// Formats an integer as a size type: `Num<..>`, `K<..>`, `M<..>` or `G<..>`.
pub(crate) fn number(n: u64, at: Span) -> Result<Code> {
    let (ones, thousands, millions) = (n % 1000, n / 1000 % 1000, n / 1_000_000 % 1000);
    Ok(code(&match n {
        0..=999 => format!("LIB::size::Num<{ones}>"),
        1000..=999_999 => format!("LIB::size::K<{thousands}, {ones}>"),
        1_000_000..=999_999_999 => format!("LIB::size::M<{millions}, {thousands}, {ones}>"),
        1_000_000_000..=999_999_999_999 => {
            format!("LIB::size::G<{}, {millions}, {thousands}, {ones}>", n / 1_000_000_000)
        }
        _ => return fail(at, "sizes in types go up to 999,999,999,999: write `?`, or a name made by `dim!`"),
    }))
}
/// Expands a size that rustc computes: `{WIDTH}`.
fn computed(value: &Code) -> Code {
    let limb = |i: u8| format!("{{ LIB::size::limb(VALUE, {i}) }}");
    let (a, b, c, d) = (limb(3), limb(2), limb(1), limb(0));
    code_with(
        &format!(
            "<LIB::size::Limbs<{{ LIB::size::limb_count(VALUE) }}, {a}, {b}, {c}, {d}> as LIB::size::Trim>::Out"
        ),
        &[("VALUE", value)],
    )
}
/// Parses a path. Returns it with its last word.
fn path(it: &mut Input, what: &str) -> Result<(Code, String)> {
    let mut tokens = Code::default();
    loop {
        let at = it.here();
        let Some(TokenTree::Ident(word)) = it.next() else { return fail(at, format!("expected {what}")) };
        tokens.extend([TokenTree::Ident(word.clone())]);
        if !it.sees(':') {
            return Ok((tokens, word.to_string()));
        }
        for _ in 0..2 {
            let at = it.here();
            match it.next() {
                Some(colon @ TokenTree::Punct(_)) if colon.to_string() == ":" => tokens.extend([colon]),
                _ => return fail(at, "expected `::` within a path"),
            }
        }
    }
}
/// Parses optional `<..>` arguments after a path: `Num<8>` and `K<4, 96>`, as rustc prints sizes.
fn arguments(it: &mut Input) -> Result<Code> {
    let (at, mut depth, mut tokens) = (it.here(), 0, Code::default());
    while depth > 0 || it.sees('<') {
        depth += usize::from(it.sees('<'));
        depth -= usize::from(it.sees('>'));
        match it.next() {
            Some(token) => tokens.extend([token]),
            None => return fail(at, "this `<` has no `>`"),
        }
    }
    Ok(tokens)
}
/// Parses one axis and adds it to `seen`. An axis that is already there is an error.
fn axis(it: &mut Input, seen: &mut Vec<String>) -> Result<Code> {
    let at = it.here();
    if let Some(TokenTree::Literal(l)) = it.peek() {
        return fail(l.span(), format!("expected a mesh axis, as `mesh!` declares it: a name, not {l}"));
    }
    let (tokens, name) = path(it, "a mesh axis")?;
    let text = tokens.to_string();
    if seen.contains(&text) {
        return fail(
            at,
            format!("mesh axis `{name}` shards two dims of one array; an axis can shard only one"),
        );
    }
    seen.push(text);
    Ok(tokens)
}
/// Parses `X` or `(X, Y)`.
fn axes(it: &mut Input, seen: &mut Vec<String>) -> Result<Code> {
    if let Some(TokenTree::Group(g)) = it.peek().cloned() {
        if g.delimiter() != Delimiter::Parenthesis {
            return fail(g.span(), "expected a mesh axis, or several: `(X, Y)`");
        }
        it.next();
        let list = axis_list(&mut Input::new(g.stream(), g.span()), seen)?;
        return match list.len() {
            0 => fail(g.span(), "expected the axes that shard this dim, or no `@` where it is unsharded"),
            1 => Ok(list.into_iter().next().unwrap_or_default()),
            2 | 3 => Ok(tuple(listed(list))),
            _ => fail(
                g.span(),
                "a dim is sharded over up to three axes in types: use the dynamic layer for more",
            ),
        };
    }
    axis(it, seen)
}
fn axis_list(it: &mut Input, seen: &mut Vec<String>) -> Result<Vec<Code>> {
    let mut list = Vec::new();
    while !it.is_empty() {
        list.push(axis(it, seen)?);
        it.comma("`,` and another mesh axis")?;
    }
    Ok(list)
}
fn listed(list: Vec<Code>) -> Code {
    list.into_iter().fold(Code::default(), |all, one| all.then(one).then(code(",")))
}

/// Parses a size.
///
/// A size is an integer, a product of integers, `{constant}`, a name, `?`, or a `typenum` integer.
pub(crate) fn size(it: &mut Input) -> Result<Code> {
    let at = it.here();
    match it.peek().cloned() {
        Some(TokenTree::Punct(p)) if p.as_char() == '?' => {
            it.next();
            Ok(code("LIB::size::Unknown"))
        }
        Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Brace => {
            it.next();
            Ok(computed(&Input::new(g.stream(), g.span()).rest()))
        }
        Some(TokenTree::Literal(l)) => {
            it.next();
            let mut n = literal(&l)?;
            while it.takes('*') {
                let at = it.here();
                let Some(TokenTree::Literal(l)) = it.next() else {
                    return fail(at, "after `*` comes a number; `{..}` takes any constant expression");
                };
                n = n.saturating_mul(literal(&l)?);
            }
            number(n, at)
        }
        Some(TokenTree::Ident(_)) => {
            let (mut tokens, word) = path(it, "a size")?;
            tokens.push(arguments(it)?);
            if it.sees('*') || it.sees('+') || it.sees('/') || it.sees('-') {
                let at = it.here();
                return fail(
                    at,
                    "sizes with names are not computed in types: write the number, or `{..}` around a constant expression",
                );
            }
            let digits =
                word.strip_prefix('U').filter(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()));
            Ok(match digits {
                // a `typenum` integer is converted on entry
                Some(_) => code_with("<SIZE as LIB::size::IntoSize>::Size", &[("SIZE", &tokens)]),
                None => tokens,
            })
        }
        Some(t) => fail(
            t.span(),
            "expected a dim: a number, a named size, `{constant}`, `?` or `~`, and `@axis` if it is sharded",
        ),
        None => fail(at, "expected a dim: a number, a named size, `{constant}`, `?` or `~`"),
    }
}
/// Parses dims into a tuple type, and adds their axes to `seen`.
pub(crate) fn dims(it: &mut Input, seen: &mut Vec<String>) -> Result<Code> {
    let (mut out, mut rank) = (Code::default(), 0);
    while !it.is_empty() {
        let at = it.here();
        rank += 1;
        if rank > 8 {
            return fail(at, "arrays have up to eight dims in types: use the dynamic layer for more");
        }
        if it.takes('~') {
            if it.sees('@') {
                let at = it.here();
                return fail(
                    at,
                    "`~` is a dim of size 1 that repeats, and is never sharded; write `1` for one that is",
                );
            }
            out.push(code("LIB::shape::Stretch"));
        } else {
            let mut arguments = size(it)?;
            if it.takes('@') {
                if it.is_empty() {
                    let at = it.here();
                    return fail(at, "after `@` comes a mesh axis");
                }
                arguments.push(code(","));
                arguments.push(axes(it, seen)?);
            }
            out.push(code_with("LIB::shape::TDim<ARGUMENTS>", &[("ARGUMENTS", &arguments)]));
        }
        out.push(code(","));
        it.comma("`,`, or `@axis` if the dim is sharded")?;
    }
    Ok(tuple(out))
}

/// The sets after the second `;`: `V: X, U: (Y, Z), R: W`.
struct Sets {
    mesh: Option<Code>,
    lists: [Vec<Code>; 3],
}
const NAMES: [&str; 3] = ["V", "U", "R"];
fn sets(it: &mut Input, seen: &mut Vec<String>, allowed: &[&str]) -> Result<Sets> {
    let mut found = Sets { mesh: None, lists: Default::default() };
    let expected =
        format!("expected {}", allowed.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", "));
    while !it.is_empty() {
        let at = it.here();
        if it.sees_word("in") && allowed.contains(&"in Mesh") {
            it.next();
            found.mesh = Some(path(it, "the mesh of the `shard_map`")?.0);
        } else {
            let which =
                NAMES.iter().position(|n| it.sees_word(n) && allowed.iter().any(|a| a.starts_with(*n)));
            let Some(which) = which else { return fail(at, expected) };
            it.next();
            if !it.takes(':') {
                let at = it.here();
                return fail(at, format!("after `{}` comes `:` and mesh axes", NAMES[which]));
            }
            // a value may vary over axes that shard none of its dims; each axis is in only one set
            found.lists[which] = match it.peek().cloned() {
                Some(TokenTree::Group(g)) => {
                    it.next();
                    axis_list(&mut Input::new(g.stream(), g.span()), seen)?
                }
                _ => vec![axis(it, seen)?],
            };
        }
        it.comma("`,` and another set")?;
    }
    Ok(found)
}
/// Expands the empty set of a mesh, or of the mesh of an axis.
fn empty_of(mesh: Option<&Code>, axis: &Code) -> Code {
    match mesh {
        Some(mesh) => code_with("<MESH as LIB::axis::MeshType>::Empty", &[("MESH", mesh)]),
        None => {
            let text = "<<AXIS as LIB::axis::MeshAxis>::Mesh as LIB::axis::MeshType>::Empty";
            code_with(text, &[("AXIS", axis)])
        }
    }
}

/// Parses a spec: `X, _, (Y, Z), =`, and `; U: W`.
pub(crate) fn spec(it: &mut Input) -> Result<Code> {
    let (mut entries, more) = it.until(';');
    let (mut out, mut seen) = (Code::default(), Vec::new());
    while !entries.is_empty() {
        if entries.sees_word("_") {
            entries.next();
            out.push(code("LIB::axis::Unsharded"));
        } else if entries.takes('=') {
            out.push(code("LIB::rules::reshard::KeptSharding"));
        } else {
            out.push(axes(&mut entries, &mut seen)?);
        }
        out.push(code(","));
        entries.comma("`,`: an entry of a spec is an axis, `(X, Y)`, `=` or `_`")?;
    }
    let spec = tuple(out);
    if !more {
        return Ok(spec);
    }
    let at = it.here();
    let Sets { lists: [_, u, r], .. } = sets(it, &mut seen, &["U: axes", "R: axes"])?;
    let (wrapper, list) = match (u.is_empty(), r.is_empty()) {
        (false, true) => ("LeftUnreduced", u),
        (true, false) => ("MarkedReduced", r),
        _ => return fail(at, "expected one set: `U: axes` or `R: axes`"),
    };
    let list = tuple(listed(list));
    let text = format!("LIB::rules::reshard::{wrapper}::<SPEC, AXES>");
    Ok(code_with(&text, &[("SPEC", &spec), ("AXES", &list)]))
}

/// Parses the type of an array: `f32; 8@X, 16`, or inside `shard_map` `f32; 4, 16; V: X`.
pub(crate) fn array(it: &mut Input) -> Result<Code> {
    let at = it.here();
    let (mut dtype, some) = it.until(';');
    if !some {
        return fail(
            at,
            "expected `;` after the element type: `T![f32; 8, 16]`, or `T![f32;]` for one number",
        );
    }
    let dtype = dtype.rest();
    if dtype.is_empty() {
        return fail(at, "expected an element type before `;`: `T![f32; 8, 16]`");
    }
    let (mut shape, more) = it.until(';');
    let mut seen = Vec::new();
    let shape = dims(&mut shape, &mut seen)?;
    let set = if more { array_sets(it, &mut seen)? } else { Code::default() };
    let text = if more { "LIB::Typed<ELEMENT, SHAPE, SETS>" } else { "LIB::Typed<ELEMENT, SHAPE>" };
    Ok(code_with(text, &[("ELEMENT", &dtype), ("SHAPE", &shape), ("SETS", &set)]))
}
/// Parses the sets of the type of an array.
fn array_sets(it: &mut Input, seen: &mut Vec<String>) -> Result<Code> {
    let at = it.here();
    let Sets { mesh, lists: [v, u, r] } = sets(it, seen, &["V: axes", "U: axes", "R: axes", "in Mesh"])?;
    let inside = mesh.is_some() || !v.is_empty();
    let first = v.first().or(u.first()).or(r.first());
    if first.is_none() && mesh.is_none() {
        return fail(at, "expected `V: axes`, `U: axes`, `R: axes` or `in Mesh`");
    }
    let mut set = empty_of(mesh.as_ref(), &first.cloned().unwrap_or_default());
    for axis in v {
        set = code_with("<AXIS as LIB::sets::AddAxis<SET>>::Out", &[("AXIS", &axis), ("SET", &set)]);
    }
    for (list, mark) in [(u, "Unreduced"), (r, "Reduced")] {
        let text = format!("<AXIS as LIB::sets::Mark<SET>>::{mark}");
        for axis in list {
            set = code_with(&text, &[("AXIS", &axis), ("SET", &set)]);
        }
    }
    Ok(if inside { set } else { code_with("LIB::sets::GlobalSets<SET>", &[("SET", &set)]) })
}
