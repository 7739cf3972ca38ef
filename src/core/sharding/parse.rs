//! Parsing of specs, in the syntax in which they print: `p!["X", _, ("Y", "Z"); U: "W"]`.

use super::Spec;
use crate::core::diagnostic::{Cursor, Error, ErrorKind, Fault, Result};
use crate::core::mesh::{Axes, Axis};
use std::panic::Location;
use std::str::FromStr;

/// Parses a spec in the syntax of `p!`, in which specs also print.
///
/// ```
/// use atmesh::prelude::*;
/// let spec = p!["X", _, ("Y", "Z"); U: "W"];
/// assert_eq!(spec.to_string().parse::<Spec>()?, spec);
/// assert!("X".parse::<Spec>().is_err());
/// # Ok::<(), atmesh::Error>(())
/// ```
impl FromStr for Spec {
    type Err = Error;
    #[track_caller]
    fn from_str(text: &str) -> Result<Spec> {
        spec(&mut Cursor::new(text, true, syntax_fault))
            .map_err(|fault| Error::new(fault, "spec", Vec::new(), Some(Location::caller())))
    }
}

fn syntax_fault(c: &Cursor<'_>, what: &str) -> Fault {
    let message = format!("`{}` is no spec: {what} is expected at character {}", c.text(), c.chars());
    Fault::new(ErrorKind::Syntax, message).help("a spec looks like p![\"X\", _, (\"Y\", \"Z\"); U: \"W\"]")
}

fn name<'a>(c: &mut Cursor<'a>) -> Result<&'a str, Fault> {
    c.expect("\"")?;
    let before = *c;
    let name = c.until("\"").ok_or_else(|| before.expected("`\"`"))?;
    match !name.is_empty() && name.chars().all(Axis::is_valid_char) {
        true => Ok(name),
        false => Err(before.expected("the name of an axis")),
    }
}

fn axes(c: &mut Cursor<'_>) -> Result<Axes, Fault> {
    let mut names = Vec::new();
    if c.eat("(") {
        while !c.eat(")") {
            names.push(name(c)?);
            if !c.eat(",") {
                c.expect(")")?;
                break;
            }
        }
    } else {
        names.push(name(c)?);
    }
    Ok(names.into_iter().map(Axis::from).collect())
}

fn spec(c: &mut Cursor<'_>) -> Result<Spec, Fault> {
    c.expect("p![")?;
    let mut dims = Vec::new();
    let mut sets = c.eat(";");
    while !sets && !c.eat("]") {
        dims.push(if c.eat("_") { Axes::none() } else { axes(c)? });
        sets = c.eat(";");
        if !sets && !c.eat(",") {
            c.expect("]")?;
            break;
        }
    }
    let mut spec = Spec::from_dims(dims);
    if sets {
        let unreduced = c.eat("U:");
        if unreduced {
            spec = spec.unreduced(axes(c)?);
        }
        if (!unreduced || c.eat(",")) && c.eat("R:") {
            spec = spec.reduced(axes(c)?);
        } else if !unreduced {
            return Err(c.expected("`U:` or `R:`"));
        }
        c.expect("]")?;
    }
    c.end()?;
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::p;

    #[test]
    fn specs_are_read_as_they_print() {
        let all = [
            p![],
            p![_],
            p!["X"],
            p![_, "Y"],
            p![("X", "Y"), _],
            p![; U: "X"],
            p!["Y"; R: ("X", "Z")],
            p![_, "Y"; U: "X", R: "Z"],
        ];
        for spec in all {
            assert_eq!(spec.to_string().parse::<Spec>().unwrap(), spec, "{spec}");
        }
        for text in [
            "",
            "X",
            "p![",
            "p![X]",
            "p![\"X\"",
            "p![\"X\"] ]",
            "p![;]",
            "p![; U]",
            "p![\"\"]",
            "p![\"a b\"]",
            "p![_ _]",
        ] {
            assert_eq!(text.parse::<Spec>().unwrap_err().kind(), ErrorKind::Syntax, "{text}");
        }
    }
}
