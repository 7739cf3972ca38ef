//! Parses calls of macros.

use super::lexer::TokenKind;
use super::{Arm, IndexEntry, Kind, Name, Node, Parser, Pattern};
use crate::error::ErrorResponse;

impl Parser<'_> {
    /// Parses the brackets of a macro, from the bracket on.
    pub(super) fn macro_call(&mut self, name: Name, from: usize) -> Result<Kind, ErrorResponse> {
        let close = match self.kind() {
            TokenKind::Mark("(") => ")",
            TokenKind::Mark("[") => "]",
            _ => "}",
        };
        let start = self.to();
        let inner = self.at + 1;
        match &*name {
            "p" => {
                let end = self.closing(inner)?;
                let text = self.text[self.tokens[inner - 1].from..self.tokens[end].to].to_string();
                self.at = end + 1;
                Ok(Kind::Spec(text))
            }
            "ix" | "s" => {
                self.at += 1;
                self.index(close).map(Kind::Index)
            }
            "vec" | "array" => {
                self.at += 1;
                self.vec(close)
            }
            "matches" => {
                self.at += 1;
                let value = self.expression()?;
                self.need(",")?;
                let pattern = self.pattern()?;
                let guard = if self.eat_word("if") { Some(self.expression()?) } else { None };
                self.eat(",");
                self.need(close)?;
                let node = |value: bool| Node { kind: Kind::Bool(value), from, to: start };
                let arms = vec![
                    Arm { pattern, guard, value: node(true) },
                    Arm { pattern: Pattern::Any, guard: None, value: node(false) },
                ];
                Ok(Kind::Match(Box::new(value), arms))
            }
            // the first expression is printed as it is written, after the operands
            "rule" | "rejected" => self.rule(name, close),
            "assert_collectives" | "axes" => self.words(name, inner),
            _ => {
                self.at += 1;
                let end = self.closing(inner)?;
                let saved = self.at;
                match self.list(close) {
                    Ok(list) => Ok(Kind::Macro(name, list)),
                    // the arguments of a macro that is not known need not be expressions
                    Err(_) if !is_known(&name) => {
                        self.at = end + 1;
                        let text = self.text[start..self.to()].into();
                        Ok(Kind::Macro(name, vec![Node { kind: Kind::Text(text), from, to: self.to() }]))
                    }
                    Err(e) => {
                        self.at = saved;
                        Err(e)
                    }
                }
            }
        }
    }
    /// Returns the index of the token that closes the bracket before `at`.
    fn closing(&self, mut at: usize) -> Result<usize, ErrorResponse> {
        let mut depth = 1;
        loop {
            match &self.tokens[at].kind {
                TokenKind::End => return Err(self.expected("a closing bracket")),
                TokenKind::Mark("(" | "[" | "{") => depth += 1,
                TokenKind::Mark(")" | "]" | "}") => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(at);
            }
            at += 1;
        }
    }
    fn index(&mut self, close: &str) -> Result<Vec<IndexEntry>, ErrorResponse> {
        let mut entries = Vec::new();
        while !self.eat(close) {
            let value = self.expression()?;
            let step = if self.eat(";") { Some(self.expression()?) } else { None };
            entries.push(IndexEntry { value, step });
            if !self.eat(",") {
                self.need(close)?;
                break;
            }
        }
        Ok(entries)
    }
    fn vec(&mut self, close: &str) -> Result<Kind, ErrorResponse> {
        if self.eat(close) {
            return Ok(Kind::List(Vec::new()));
        }
        let first = self.expression()?;
        if self.eat(";") {
            let n = self.expression()?;
            self.need(close)?;
            return Ok(Kind::Repeat(Box::new(first), Box::new(n)));
        }
        let mut list = vec![first];
        if self.eat(",") {
            list.extend(self.list(close)?);
        } else {
            self.need(close)?;
        }
        Ok(Kind::List(list))
    }
    /// Parses `rule!(a + b; a, b => "name")` of the book's rules: the text of the expression, the
    /// expression and the operands.
    fn rule(&mut self, name: Name, close: &str) -> Result<Kind, ErrorResponse> {
        self.at += 1;
        let value = self.expression()?;
        let text = Kind::Text(self.text[value.from..self.to()].into());
        let text = Node { kind: text, from: value.from, to: value.to };
        let mut list = vec![text, value];
        if self.eat(";") {
            loop {
                let from = self.from();
                let operand = self.word("an operand")?;
                list.push(Node { kind: Kind::Name(operand, None), from, to: self.to() });
                if !self.eat(",") {
                    break;
                }
            }
            if self.eat("=>") {
                self.at += 1;
            }
        }
        self.eat(",");
        self.need(close)?;
        Ok(Kind::Macro(name, list))
    }
    /// Parses the words of `assert_collectives!(lowered, AllReduce("X") x 1)`, as text after the
    /// first expression, or the names of `axes!`.
    fn words(&mut self, name: Name, inner: usize) -> Result<Kind, ErrorResponse> {
        let end = self.closing(inner)?;
        self.at = inner;
        let mut list = Vec::new();
        if &*name == "assert_collectives" {
            list.push(self.expression()?);
            self.eat(",");
        }
        let from = self.from();
        let to = self.tokens[end].from;
        let text = self.text[from.min(to)..to].trim().into();
        list.push(Node { kind: Kind::Text(text), from, to });
        self.at = end + 1;
        Ok(Kind::Macro(name, list))
    }
}

/// Returns true for macros whose arguments are expressions.
fn is_known(name: &str) -> bool {
    const KNOWN: &[&str] = &[
        "println",
        "print",
        "eprintln",
        "format",
        "assert",
        "assert_eq",
        "assert_ne",
        "debug_print",
        "write",
        "writeln",
        "panic",
        "debug_assert",
        "unreachable",
        "einsum",
        "matches",
        "todo",
    ];
    KNOWN.contains(&name)
}
