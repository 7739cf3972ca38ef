//! `mesh!` and `dim!`: declarations of the user's types.

use crate::notation::{literal, size};
use crate::tokens::{Code, Input, Result, code_with, fail};
use proc_macro::{Delimiter, Ident, TokenTree};
use std::fmt::Write;

/// The constant of an impl of a sealed trait.
const SEAL: &str = "const SEAL: LIB::sealed::Seal = LIB::sealed::Seal;";

/// An axis as declared in `mesh!`.
struct Axis {
    ident: Ident,
    name: String,
    /// The size. `None` if it is given when the mesh is created.
    size: Option<u64>,
}

/// Parses `pub`, `pub(crate)` or nothing.
fn visibility(it: &mut Input) -> Code {
    let mut tokens = Code::default();
    if it.sees_word("pub") {
        tokens.extend(it.next());
        if matches!(it.peek(), Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Parenthesis) {
            tokens.extend(it.next());
        }
    }
    tokens
}
/// Parses `#[..]` attributes, including documentation.
fn attributes(it: &mut Input) -> Code {
    let mut tokens = Code::default();
    while it.sees('#') {
        tokens.extend(it.next());
        tokens.extend(it.next());
    }
    tokens
}
fn name(it: &mut Input, what: &str) -> Result<Ident> {
    let at = it.here();
    match it.next() {
        Some(TokenTree::Ident(i)) if i.to_string().starts_with(|c: char| c.is_uppercase()) => Ok(i),
        Some(TokenTree::Ident(i)) => fail(
            i.span(),
            format!(
                "{what} is a type: its name begins with a capital. (A unit struct `{i}` would make `let {i} = ..` an error.)"
            ),
        ),
        _ => fail(at, format!("expected the name of {what}")),
    }
}

/// Expands `pub struct Pod { X: 2, Data("data"): ? }`.
pub(crate) fn mesh(it: &mut Input) -> Result<Code> {
    let about = attributes(it);
    let vis = visibility(it);
    let at = it.here();
    if !it.sees_word("struct") {
        return fail(at, "expected `struct`: `mesh! { pub struct Pod { X: 2, Y: 4 } }`");
    }
    it.next();
    let mesh = name(it, "a mesh")?;
    let at = it.here();
    let body = match it.next() {
        Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Brace => g,
        _ => return fail(at, "expected the axes: `{ X: 2, Y: 4 }`"),
    };
    it.end("one mesh")?;
    let axes = axes(&mut Input::new(body.stream(), body.span()))?;
    if axes.is_empty() {
        return fail(body.span(), "a mesh has an axis at least: `{ X: 2 }`");
    }
    let none = "LIB::sets::Invariant,".repeat(axes.len());
    let listed: String = axes.iter().map(|a| format!("({:?}, {}),", a.name, value(a.size))).collect();
    let text = mesh.to_string();
    let mesh = Code::from(&mesh);
    let names = [("MESH", &mesh), ("VISIBILITY", &vis)];
    let mut out = about;
    out.push(code_with(
        &format!(
            "#[derive(Clone, Copy, Debug)] VISIBILITY struct MESH;
            impl LIB::sealed::SealedOrDeclared for MESH {{}}
            impl LIB::axis::MeshType for MESH {{
                type Empty = ({none});
                const NAME: &'static str = {:?};
                const AXES: &'static [(&'static str, ::core::option::Option<usize>)] = &[{listed}];
            }}",
            text
        ),
        &names,
    ));
    for (i, axis) in axes.iter().enumerate() {
        out.push(declared(&mesh, &axes, i, axis, &vis));
    }
    Ok(out)
}
fn axes(it: &mut Input) -> Result<Vec<Axis>> {
    let mut axes: Vec<Axis> = Vec::new();
    while !it.is_empty() {
        let ident = name(it, "a mesh axis")?;
        let mut known = ident.to_string();
        if let Some(TokenTree::Group(g)) = it.peek().cloned() {
            it.next();
            let text = g.stream().to_string();
            let quoted = text.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
            match quoted {
                Some(text) if !text.is_empty() => known = text.to_string(),
                _ => {
                    return fail(
                        g.span(),
                        "expected the name that arrays know the axis by: `Data(\"data\"): 2`",
                    );
                }
            }
        }
        if !it.takes(':') {
            return fail(
                ident.span(),
                "expected `Axis: size`, or `Axis: ?` where the size is known when the mesh is made",
            );
        }
        let at = it.here();
        let size = match it.next() {
            Some(TokenTree::Literal(l)) => Some(literal(&l)?),
            Some(TokenTree::Punct(p)) if p.as_char() == '?' => None,
            _ => {
                return fail(
                    at,
                    "expected the number of devices along the axis, or `?` where it is known when the mesh is made",
                );
            }
        };
        if size == Some(0) {
            return fail(at, "a mesh axis has a device at least");
        }
        if axes.iter().any(|a| a.ident.to_string() == ident.to_string() || a.name == known) {
            return fail(ident.span(), format!("axis `{ident}` is declared twice"));
        }
        if axes.len() == 6 {
            return fail(ident.span(), "a mesh has up to six axes in types: use the dynamic layer for more");
        }
        if size.is_some_and(|n| factors(n).is_none()) {
            return fail(at, "an axis size in types has prime factors up to 13: write `?` for others");
        }
        axes.push(Axis { ident, name: known, size });
        it.comma("`,` and another axis")?;
    }
    Ok(axes)
}
fn value(size: Option<u64>) -> String {
    size.map_or_else(
        || "::core::option::Option::None".into(),
        |n| format!("::core::option::Option::Some({n})"),
    )
}
/// Generates the struct of one axis, its size, its slot in sets, and the axes that it differs from.
fn declared(mesh: &Code, axes: &[Axis], i: usize, axis: &Axis, vis: &Code) -> Code {
    let (size, factors) = match axis.size {
        None => ("LIB::axis::RunTimeSize".into(), "LIB::axis::RunTimeSize".into()),
        Some(n) => (binary(n), factors(n).unwrap_or_default()),
    };
    // the slot of this axis is `mine`; the others are type parameters
    let slots = |mine: &str| -> String {
        (0..axes.len()).map(|j| if j == i { format!("{mine},") } else { format!("S{j},") }).collect()
    };
    let others: String =
        (0..axes.len()).filter(|j| *j != i).map(|j| format!("S{j}: LIB::sets::AxisSlot,")).collect();
    let (mine, none) = (slots("DECLARED"), slots("LIB::sets::Invariant"));
    let (any, unreduced, reduced) =
        (slots("S"), slots("LIB::sets::UnreducedSum<DECLARED>"), slots("LIB::sets::ReducedSum<DECLARED>"));
    let mut text = format!(
        "#[derive(Clone, Copy, Debug)] #[allow(missing_docs)] VISIBILITY struct DECLARED;
        impl LIB::sealed::SealedOrDeclared for DECLARED {{}}
        impl LIB::axis::MeshAxis for DECLARED {{
            type Mesh = MESH;
            type Size = {size};
            type Factors = {factors};
            const AXIS: Self = DECLARED;
            const NAME: &'static str = {:?};
            const SIZE: ::core::option::Option<usize> = {};
        }}
        impl LIB::axis::HasAxis<DECLARED> for MESH {{ {SEAL} }}
        impl<S: LIB::sets::VaryingSlot, {others}> LIB::sets::AddAxis<({any})> for DECLARED {{ {SEAL} type Out = ({mine}); }}
        impl<S: LIB::sets::AxisSlot, {others}> LIB::sets::SlotIn<({any})> for DECLARED {{ {SEAL} type Slot = S; }}
        impl<{others}> LIB::sets::Member<({mine})> for DECLARED {{ {SEAL} type Removed = ({none}); }}
        impl<{others}> LIB::sets::Mark<({none})> for DECLARED {{ {SEAL} type Varying = ({mine}); type Unreduced = ({unreduced}); type Reduced = ({reduced}); }}",
        axis.name,
        value(axis.size),
    );
    let idents: Vec<Code> = axes.iter().map(|a| Code::from(&a.ident)).collect();
    let mut names = vec![("VISIBILITY", vis), ("MESH", mesh), ("DECLARED", &idents[i])];
    let placeholders: Vec<String> = (0..axes.len()).map(|j| format!("OTHER{j}")).collect();
    for (j, other) in idents.iter().enumerate().filter(|(j, _)| *j != i) {
        let _ = write!(text, "impl LIB::axis::DistinctAxis<OTHER{j}> for DECLARED {{ {SEAL} }}");
        names.push((&placeholders[j], other));
    }
    code_with(&text, &names)
}
/// Returns the prime factors as a list of types; `None` if one is above 13.
fn factors(mut n: u64) -> Option<String> {
    let mut list = "()".to_string();
    for p in [2, 3, 5, 7, 11, 13] {
        while n > 0 && n.is_multiple_of(p) {
            n /= p;
            list = format!("(LIB::size::Prime<{p}>, {list})");
        }
    }
    (n == 1).then_some(list)
}
/// Formats an integer as a `typenum` type.
fn binary(n: u64) -> String {
    match n {
        0..=1024 => format!("LIB::typenum::consts::U{n}"),
        _ => format!("LIB::typenum::UInt<{}, LIB::typenum::B{}>", binary(n / 2), n % 2),
    }
}

/// Expands `pub Hidden = 11008` or `pub Batch`.
pub(crate) fn dim(it: &mut Input) -> Result<Code> {
    let about = attributes(it);
    let vis = visibility(it);
    let dim = name(it, "a named size")?;
    let text = dim.to_string();
    let name = Code::from(&dim);
    let mut names = vec![("VISIBILITY", &vis), ("DIM", &name)];
    let number;
    let (kind, value, shown, named) = if it.is_empty() {
        ("Symbol", "::core::option::Option::None", format!("f.write_str({text:?})"), "")
    } else {
        if !it.takes('=') {
            let at = it.here();
            return fail(at, "expected `= size`, or nothing where the size is known at run time only");
        }
        number = size(it)?;
        it.end("one size")?;
        names.push(("NUMBER", &number));
        (
            "Named",
            "<NUMBER as LIB::size::Size>::VALUE",
            "<NUMBER as LIB::size::Size>::show(f)".into(),
            "impl LIB::size::NamedSize for DIM { type Number = NUMBER; }",
        )
    };
    let declared = code_with(
        &format!(
            "#[derive(Clone, Copy, Debug)] #[allow(missing_docs)] VISIBILITY struct DIM;
            impl LIB::sealed::SealedOrDeclared for DIM {{}}
            impl LIB::size::Size for DIM {{
                type Kind = LIB::size::{kind};
                const VALUE: ::core::option::Option<usize> = {value};
                fn show(f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{ {shown} }}
            }}
            {named}
            impl LIB::size::IntoSize for DIM {{ type Size = DIM; }}"
        ),
        &names,
    );
    Ok(about.then(declared))
}
