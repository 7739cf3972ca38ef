//! Parses patterns, and skips types, whose text is kept.

use super::lexer::TokenKind;
use super::{Kind, Node, Parser, Pattern};
use crate::error::ErrorResponse;
use std::rc::Rc;

impl Parser<'_> {
    /// Parses a pattern with alternatives.
    pub(super) fn pattern(&mut self) -> Result<Pattern, ErrorResponse> {
        self.eat("|");
        let first = self.one_pattern()?;
        if !self.is("|") {
            return Ok(first);
        }
        let mut all = vec![first];
        while self.eat("|") {
            all.push(self.one_pattern()?);
        }
        Ok(Pattern::Either(all))
    }
    /// Parses a pattern without alternatives, such as a parameter of a closure.
    pub(super) fn one_pattern(&mut self) -> Result<Pattern, ErrorResponse> {
        while self.eat("&") || self.eat("&&") || self.eat_word("ref") || self.eat_word("mut") {}
        if self.eat("(") {
            let (mut list, comma) = self.patterns(")")?;
            return Ok(match (list.len(), comma) {
                (1, false) => list.remove(0),
                _ => Pattern::Tuple(list),
            });
        }
        if self.eat("[") {
            return Ok(Pattern::List(self.patterns("]")?.0));
        }
        if self.eat("..") {
            return Ok(Pattern::Rest);
        }
        match self.kind() {
            TokenKind::Word(_) if !self.is_word("true") && !self.is_word("false") => self.named_pattern(),
            _ => {
                let literal = self.prefix()?;
                let literal = match self.is("..=") || self.is("..") {
                    true => self.range_after(literal)?,
                    false => literal,
                };
                Ok(Pattern::Literal(Rc::new(literal)))
            }
        }
    }
    fn named_pattern(&mut self) -> Result<Pattern, ErrorResponse> {
        let from = self.from();
        let (name, _) = self.path()?;
        if &*name == "_" {
            return Ok(Pattern::Any);
        }
        if self.eat("@") {
            return Ok(Pattern::Bound(name, Box::new(self.one_pattern()?)));
        }
        if self.eat("(") {
            return Ok(Pattern::Call(name, self.patterns(")")?.0));
        }
        if self.is("{") && name.starts_with(char::is_uppercase) {
            self.at += 1;
            return self.struct_pattern();
        }
        // a constant or a variant
        if name.contains("::") || (name.starts_with(char::is_uppercase) && name.len() > 1) {
            let kind = Kind::Name(name, None);
            return Ok(Pattern::Literal(Rc::new(Node { kind, from, to: self.to() })));
        }
        Ok(Pattern::Name(name))
    }
    fn struct_pattern(&mut self) -> Result<Pattern, ErrorResponse> {
        let mut fields = Vec::new();
        while !self.eat("}") {
            if self.eat("..") {
                continue;
            }
            self.eat_word("ref");
            self.eat_word("mut");
            let field = self.word("the name of a field")?;
            let pattern = if self.eat(":") { self.pattern()? } else { Pattern::Name(field.clone()) };
            fields.push((field, pattern));
            if !self.eat(",") {
                self.need("}")?;
                break;
            }
        }
        Ok(Pattern::Struct(fields))
    }
    /// Parses patterns up to a closing bracket; says whether a comma precedes it.
    fn patterns(&mut self, close: &str) -> Result<(Vec<Pattern>, bool), ErrorResponse> {
        let (mut list, mut comma) = (Vec::new(), false);
        while !self.eat(close) {
            list.push(self.deeper(Parser::pattern)?);
            comma = self.eat(",");
            if !comma {
                self.need(close)?;
                break;
            }
        }
        Ok((list, comma))
    }
    /// Skips a type, and returns its text without blanks.
    pub(super) fn ty(&mut self) -> Result<String, ErrorResponse> {
        let from = self.at;
        let mut depth = 0i32;
        loop {
            match self.kind() {
                TokenKind::End => break,
                TokenKind::Mark("<" | "(" | "[") => depth += 1,
                TokenKind::Mark(")" | "]" | ">") if depth == 0 => break,
                TokenKind::Mark(">>") if depth >= 2 => depth -= 2,
                TokenKind::Mark(">" | ")" | "]") => depth -= 1,
                TokenKind::Mark("," | ";" | "=" | "{" | "}" | "|" | "=>") if depth == 0 => break,
                TokenKind::Word(w) if depth == 0 && matches!(&**w, "where" | "else") => break,
                TokenKind::Word(_) | TokenKind::Lifetime | TokenKind::Mark(_) => {}
                TokenKind::Int(..) if depth > 0 => {}
                _ => break,
            }
            self.at += 1;
        }
        if from == self.at {
            return Err(self.expected("a type"));
        }
        let words = self.tokens[from..self.at].iter().map(|t| &self.text[t.from..t.to]);
        Ok(words.collect())
    }
    /// Skips the type after `as`, which ends before an operator.
    pub(super) fn cast_type(&mut self) -> Result<String, ErrorResponse> {
        Ok(self.path()?.0.to_string())
    }
    /// Parses generic arguments after `<`, and returns their text.
    pub(super) fn generics(&mut self) -> Result<String, ErrorResponse> {
        let from = self.at;
        let mut depth = 1i32;
        while depth > 0 {
            match self.kind() {
                TokenKind::End => return Err(self.expected("`>`")),
                TokenKind::Mark("<") => depth += 1,
                TokenKind::Mark(">") => depth -= 1,
                TokenKind::Mark(">>") => depth -= 2,
                _ => {}
            }
            self.at += 1;
        }
        let words = self.tokens[from..self.at].iter().map(|t| &self.text[t.from..t.to]);
        let text: String = words.collect();
        Ok(text.strip_suffix('>').unwrap_or(&text).to_string())
    }
}
