//! Specs from text: what they print as, `p!["X", _, ("Y", "Z"); U: "W"]`.

use super::Spec;
use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::mesh::{Axes, Axis};
use std::panic::Location;
use std::str::FromStr;

/// The spec that `text` spells, as `p!` takes it and as specs print.
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
        let mut p = Parser { text, rest: text };
        p.spec().map_err(|fault| Error::at(fault, "spec", Vec::new(), Some(Location::caller())))
    }
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
}
impl<'a> Parser<'a> {
    fn expected(&self, what: &str) -> Fault {
        let at = self.text[..self.text.len() - self.rest.len()].chars().count();
        let message = format!("`{}` is no spec: {what} is expected at character {at}", self.text);
        Fault::new(ErrorKind::Syntax, message)
            .help("a spec looks like p![\"X\", _, (\"Y\", \"Z\"); U: \"W\"]")
    }
    fn eat(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        let found = self.rest.strip_prefix(token);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }
    fn need(&mut self, token: &str) -> Result<(), Fault> {
        if self.eat(token) { Ok(()) } else { Err(self.expected(&format!("`{token}`"))) }
    }
    fn name(&mut self) -> Result<&'a str, Fault> {
        self.need("\"")?;
        let Some((name, rest)) = self.rest.split_once('"') else { return Err(self.expected("`\"`")) };
        if name.is_empty() || !name.chars().all(Axis::names_with) {
            return Err(self.expected("the name of an axis"));
        }
        self.rest = rest;
        Ok(name)
    }
    fn axes(&mut self) -> Result<Axes, Fault> {
        let mut names = Vec::new();
        if self.eat("(") {
            while !self.eat(")") {
                names.push(self.name()?);
                if !self.eat(",") {
                    self.need(")")?;
                    break;
                }
            }
        } else {
            names.push(self.name()?);
        }
        Ok(names.into_iter().map(Axis::from).collect())
    }
    fn spec(&mut self) -> Result<Spec, Fault> {
        self.need("p![")?;
        let mut dims = Vec::new();
        let mut sets = self.eat(";");
        while !sets && !self.eat("]") {
            dims.push(if self.eat("_") { Axes::none() } else { self.axes()? });
            sets = self.eat(";");
            if !sets && !self.eat(",") {
                self.need("]")?;
                return self.end(Spec::of(dims));
            }
        }
        let mut spec = Spec::of(dims);
        if sets {
            let unreduced = self.eat("U:");
            if unreduced {
                spec = spec.unreduced(self.axes()?);
            }
            if (!unreduced || self.eat(",")) && self.eat("R:") {
                spec = spec.reduced(self.axes()?);
            } else if !unreduced {
                return Err(self.expected("`U:` or `R:`"));
            }
            self.need("]")?;
        }
        self.end(spec)
    }
    fn end(&self, spec: Spec) -> Result<Spec, Fault> {
        if self.rest.trim().is_empty() { Ok(spec) } else { Err(self.expected("the end")) }
    }
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
