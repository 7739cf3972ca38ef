//! Parsing of types: `float32[8@X,4]{V:Z, U:Y}`.

use super::ArrayType;
use crate::core::diagnostic::{Cursor, Error, ErrorKind, Fault, Result};
use crate::core::dtype::{DType, Shape};
use crate::core::mesh::{Axes, Axis, AxisType, Mesh};
use crate::core::sharding::{Spec, check_divides};
use std::panic::Location;

impl ArrayType {
    /// Parses a type on this mesh, in the syntax in which types print.
    /// Names of element types may be long or short.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    /// let ty = ArrayType::parse("f32[8@X,4]{U:Y}", &mesh)?;
    /// assert_eq!(ty.to_string(), "float32[8@X,4]{U:Y}");
    /// assert!(ArrayType::parse("f32[7@X]", &mesh).is_err());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn parse(text: &str, mesh: &Mesh) -> Result<ArrayType> {
        let location = Location::caller();
        parse(text, mesh).map_err(|fault| Error::new(fault, "type", Vec::new(), Some(location)))
    }
}

/// Parses the name of an element type, long or short.
///
/// ```
/// use atmesh::prelude::*;
/// assert_eq!(("float32".parse::<DType>()?, "bf16".parse::<DType>()?), (F32, BF16));
/// assert!("float".parse::<DType>().is_err());
/// # Ok::<(), atmesh::Error>(())
/// ```
impl std::str::FromStr for DType {
    type Err = Error;
    #[track_caller]
    fn from_str(name: &str) -> Result<DType> {
        DType::from_name(name).ok_or_else(|| {
            let fault = fault!(Syntax, "`{name}` is not an element type").help(dtype_list());
            Error::new(fault, "type", Vec::new(), Some(Location::caller()))
        })
    }
}

/// Returns a help text that lists the element types.
fn dtype_list() -> String {
    let names: Vec<_> = DType::all().map(DType::name).collect();
    format!("element types are {}, or short as in f32, i8, bf16", names.join(", "))
}

fn parse(text: &str, mesh: &Mesh) -> Result<ArrayType, Fault> {
    let c = &mut Cursor::new(text, false, syntax_fault);
    // parse the whole text first: unknown axis names matter only if the syntax is correct
    let dtype = element_type(c)?;
    let dims = dimensions(c)?;
    let sets = sets(c)?;
    c.end()?;

    let mut seen = AxisUses { mesh, axes: Vec::new() };
    let (shape, entries): (Vec<usize>, Vec<_>) = dims.into_iter().unzip();
    let entries = entries.iter().map(|names| seen.axes(names, "split a dimension", &[AxisType::Explicit]));
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    let [varying, unreduced, reduced] = sets;
    let either = [AxisType::Explicit, AxisType::Manual];
    let varying = mesh.in_order(&seen.axes(&varying, "appear in {V:…}", &[AxisType::Manual])?);
    let unreduced = seen.axes(&unreduced, "appear in {U:…}", &either)?;
    let reduced = seen.axes(&reduced, "appear in {R:…}", &either)?;
    let spec = Spec::from_dims(entries).unreduced(unreduced).reduced(reduced).in_order(mesh);
    check_divides(mesh, spec, &shape)?;
    let bytes = shape.iter().filter(|n| **n > 0).try_fold(dtype.size(), |b, n| b.checked_mul(*n));
    if bytes.is_none_or(|b| b > isize::MAX as usize) {
        return Err(fault!(Shape, "{text} has more bytes than can be addressed"));
    }
    let ty = ArrayType { dtype, shape: Shape::from(shape), mesh: Some(mesh.clone()), spec, varying };
    ty.check_addressable()?;
    Ok(ty)
}

/// The axes named so far in a type.
/// Each axis may be named once.
struct AxisUses<'a> {
    /// The mesh that has the axes.
    mesh: &'a Mesh,
    /// The axes, in the order of the text.
    axes: Vec<Axis>,
}

impl AxisUses<'_> {
    fn axes(&mut self, names: &[&str], what: &str, kinds: &[AxisType]) -> Result<Axes, Fault> {
        names.iter().map(|name| self.axis(name, what, kinds)).collect()
    }
    fn axis(&mut self, name: &str, what: &str, kinds: &[AxisType]) -> Result<Axis, Fault> {
        // compare names first: creating an `Axis` for an unknown name would leak its text
        let Some(axis) = self.mesh.axis_names().iter().copied().find(|a| a.name() == name) else {
            return Err(self.mesh.unknown_name(name));
        };
        let fault = |m: String| Fault::new(ErrorKind::Mesh, m);
        let ty = self.mesh.axis_type(axis).unwrap_or(AxisType::Explicit);
        if !kinds.contains(&ty) {
            let words: Vec<_> = kinds.iter().map(|k| format!("{k:?}").to_lowercase()).collect();
            let ty = format!("{ty:?}").to_lowercase();
            let fault = fault(format!("axis {axis} is {ty} in {}: it may not {what}", self.mesh));
            return Err(fault.help(format!("only {} axes may", words.join(" and "))));
        }
        if self.axes.contains(&axis) {
            return Err(fault(format!("axis {axis} is named twice"))
                .help("an axis shards one dimension or is in one set: name it once"));
        }
        self.axes.push(axis);
        Ok(axis)
    }
}

fn syntax_fault(c: &Cursor<'_>, what: &str) -> Fault {
    let found = match c.rest().chars().next() {
        Some(c) => format!("`{c}`"),
        None => "the end".to_string(),
    };
    let at = c.chars();
    fault!(Syntax, "`{}` is not a type: {what} is expected at character {at}, not {found}", c.text())
        .help("a type looks like float32[8@X,4@(Y,Z)]{V:A, U:B, R:C}, without blanks but between its sets")
}

/// A dimension as written: its size, and the names of the axes that split it.
type DimText<'a> = (usize, Vec<&'a str>);

fn element_type(c: &mut Cursor<'_>) -> Result<DType, Fault> {
    let (text, name) = (c.text(), c.take(|c| c != '['));
    DType::from_name(name).ok_or_else(|| {
        let fault = match name {
            "" => format!("`{text}` is not a type: it begins with an element type"),
            _ => format!("`{text}` is not a type: {name} is not an element type"),
        };
        Fault::new(ErrorKind::Syntax, fault).help(dtype_list())
    })
}

fn dimensions<'a>(c: &mut Cursor<'a>) -> Result<Vec<DimText<'a>>, Fault> {
    c.expect("[")?;
    let mut dims = Vec::new();
    if c.eat("]") {
        return Ok(dims);
    }
    loop {
        dims.push(dimension(c)?);
        if c.eat("]") {
            return Ok(dims);
        }
        if !c.eat(",") {
            return Err(c.expected("`,` or `]`"));
        }
    }
}

fn dimension<'a>(c: &mut Cursor<'a>) -> Result<DimText<'a>, Fault> {
    let before = *c;
    let size = c.take(|c| c.is_ascii_digit()).parse().map_err(|_| before.expected("a size"))?;
    Ok((size, if c.eat("@") { axes(c)? } else { Vec::new() }))
}

/// Parses `X` or `(X,Y)`.
fn axes<'a>(c: &mut Cursor<'a>) -> Result<Vec<&'a str>, Fault> {
    if !c.eat("(") {
        return Ok(vec![axis(c)?]);
    }
    let mut axes = vec![axis(c)?];
    while c.eat(",") {
        axes.push(axis(c)?);
    }
    c.expect(")")?;
    Ok(axes)
}

fn axis<'a>(c: &mut Cursor<'a>) -> Result<&'a str, Fault> {
    let name = c.take(Axis::is_valid_char);
    if name.is_empty() { Err(c.expected("the name of an axis")) } else { Ok(name) }
}

/// Parses the sets V, U and R, in this order.
/// Each is optional.
fn sets<'a>(c: &mut Cursor<'a>) -> Result<[Vec<&'a str>; 3], Fault> {
    let mut sets = [const { Vec::new() }; 3];
    if !c.eat("{") {
        return Ok(sets);
    }
    let mut any = false;
    for (name, set) in ["V:", "U:", "R:"].iter().zip(&mut sets) {
        let before = *c;
        if any && !c.eat(", ") {
            break;
        }
        if c.eat(name) {
            *set = axes(c)?;
            any = true;
        } else {
            *c = before;
        }
    }
    if !any {
        return Err(c.expected("`V:`, `U:` or `R:`"));
    }
    c.expect("}")?;
    Ok(sets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::mesh::AxisType::{Auto, Explicit, Manual};

    fn parse_error(text: &str) -> String {
        let mesh =
            Mesh::with_types([("X", 2, Explicit), ("Y", 4, Explicit), ("A", 2, Auto), ("M", 2, Manual)])
                .unwrap();
        let e = ArrayType::parse(text, &mesh).unwrap_err();
        let d = &e.diagnostics()[0];
        format!("{}: {}", d.fault.kind.name(), d.fault.message)
    }

    #[test]
    fn errors_say_what_and_where() {
        for (text, said) in [
            (
                "float32[16",
                "syntax: `float32[16` is not a type: `,` or `]` is expected at character 10, not the end",
            ),
            ("float33[16]", "syntax: `float33[16]` is not a type: float33 is not an element type"),
            (
                "float32[-1]",
                "syntax: `float32[-1]` is not a type: a size is expected at character 8, not `-`",
            ),
            (
                "float32[+1]",
                "syntax: `float32[+1]` is not a type: a size is expected at character 8, not `+`",
            ),
            (
                "f32[8]{R:X, U:Y}",
                "syntax: `f32[8]{R:X, U:Y}` is not a type: `}` is expected at character 10, not `,`",
            ),
            (
                "f32[8]{U:X, }",
                "syntax: `f32[8]{U:X, }` is not a type: `}` is expected at character 10, not `,`",
            ),
            ("f32[8@Q]", "mesh: Q is not an axis of the mesh Mesh(X: 2, Y: 4, A: 2 auto, M: 2 manual)"),
            ("f32[8@X,8@X]", "mesh: axis X is named twice"),
            ("f32[8@X]{V:M, U:M}", "mesh: axis M is named twice"),
            (
                "f32[8@A]",
                "mesh: axis A is auto in Mesh(X: 2, Y: 4, A: 2 auto, M: 2 manual): it may not split a dimension",
            ),
            (
                "f32[8]{V:X}",
                "mesh: axis X is explicit in Mesh(X: 2, Y: 4, A: 2 auto, M: 2 manual): it may not appear in {V:…}",
            ),
            ("f32[9@Y]", "shape: dimension 0 has size 9, which Y does not divide into 4 equal parts"),
            (
                "f32[4294967296,4294967296]",
                "shape: f32[4294967296,4294967296] has more bytes than can be addressed",
            ),
        ] {
            assert_eq!(parse_error(text), said);
        }
        assert!(parse_error("f32[99999999999999999999999]").starts_with("syntax"));
        assert!(parse_error("f32[é]").starts_with("syntax"));
    }
}
