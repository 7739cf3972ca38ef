//! Parses blocks, statements and definitions.

use super::lexer::TokenKind;
use super::{Block, Function, Item, Kind, Name, Node, Parser, Pattern, Statement};
use crate::error::ErrorResponse;
use std::rc::Rc;

impl Parser<'_> {
    /// Parses a block in braces.
    pub(super) fn block(&mut self) -> Result<Rc<Block>, ErrorResponse> {
        self.need("{")?;
        let structs = std::mem::replace(&mut self.structs, true);
        let block = self.deeper(|p| p.block_until(Some("}")))?;
        self.structs = structs;
        Ok(Rc::new(block))
    }
    /// Parses statements up to a mark, or to the end of the text.
    pub(super) fn block_until(&mut self, close: Option<&str>) -> Result<Block, ErrorResponse> {
        let mut statements = Vec::new();
        loop {
            while self.eat(";") {}
            match close {
                Some(close) if self.eat(close) => break,
                None if self.is_end() => break,
                _ if self.is_end() => return Err(self.expected("`}`")),
                _ => {}
            }
            self.attributes()?;
            if let Some(item) = self.item()? {
                statements.push(Statement::Item(item));
                continue;
            }
            if self.eat_word("let") {
                statements.push(self.let_statement()?);
                continue;
            }
            let node = self.statement_expression()?;
            let ends = close.map_or(self.is_end(), |c| self.is(c));
            if ends {
                self.at += usize::from(close.is_some());
                return Ok(Block { statements, value: Some(node) });
            }
            if !self.eat(";") && !is_block_like(&node.kind) {
                return Err(self.expected("`;`, an operator or a method"));
            }
            statements.push(Statement::Expression(node));
        }
        Ok(Block { statements, value: None })
    }
    fn statement_expression(&mut self) -> Result<Node, ErrorResponse> {
        // `if`, `for` and blocks end a statement without a semicolon
        let from = self.at;
        if let Some(node) = self.control()? {
            if !self.is(".") && !self.is("?") {
                return Ok(node);
            }
            self.at = from;
        }
        // in the fields of the page: `name = value` is a `let`
        self.expression()
    }
    fn let_statement(&mut self) -> Result<Statement, ErrorResponse> {
        let pattern = self.pattern()?;
        let ty = if self.eat(":") { Some(self.ty()?) } else { None };
        let value = if self.eat("=") { Some(self.expression()?) } else { None };
        if value.is_none() && !self.is(";") {
            return Err(self.expected("`=`"));
        }
        let other = if self.eat_word("else") { Some(self.block()?) } else { None };
        if !self.eat(";") && !self.is_end() && !self.tokens[self.at - 1..].is_empty() {
            // a line's end is enough in the fields of the page
            let between = &self.text[self.to()..self.from()];
            if !between.contains('\n') {
                return Err(self.expected("`;`"));
            }
        }
        Ok(Statement::Let(pattern, ty, value, other))
    }
    /// Skips attributes: `#[derive(Tree)]`.
    fn attributes(&mut self) -> Result<(), ErrorResponse> {
        while self.is("#") {
            self.at += 1;
            self.eat("!");
            self.need("[")?;
            self.skip_to("[", "]")?;
        }
        Ok(())
    }
    /// Skips to the bracket that closes the one before.
    fn skip_to(&mut self, open: &str, close: &str) -> Result<(), ErrorResponse> {
        let mut depth = 1;
        while depth > 0 {
            if self.is_end() {
                return Err(self.expected(&format!("`{close}`")));
            }
            depth += i32::from(self.is(open)) - i32::from(self.is(close));
            self.at += 1;
        }
        Ok(())
    }
    fn item(&mut self) -> Result<Option<Item>, ErrorResponse> {
        let from = self.at;
        if self.eat_word("pub") && self.eat("(") {
            self.skip_to("(", ")")?;
        }
        let TokenKind::Word(word) = self.kind() else {
            self.at = from;
            return Ok(None);
        };
        let named = matches!(self.ahead(1), TokenKind::Word(_));
        let item = match &**word {
            "fn" if named => {
                self.at += 1;
                Item::Function(Rc::new(self.function()?))
            }
            "const" | "static" if named => {
                self.at += 1;
                self.eat_word("mut");
                let name = self.word("a name")?;
                if self.eat(":") {
                    self.ty()?;
                }
                self.need("=")?;
                let value = self.expression()?;
                self.eat(";");
                Item::Constant(name, value)
            }
            "use" | "type" | "mod" | "extern" if named => self.skipped(Item::Nothing)?,
            "struct" if named => self.skipped(Item::Nothing)?,
            "enum" if named => self.skipped(Item::Nothing)?,
            "trait" if named => self.skipped(Item::Nothing)?,
            "macro_rules" => self.skipped(Item::Nothing)?,
            "impl" => self.methods()?,
            _ => {
                self.at = from;
                return Ok(None);
            }
        };
        Ok(Some(item))
    }
    /// Skips a definition up to its semicolon or closing brace.
    fn skipped(&mut self, item: Item) -> Result<Item, ErrorResponse> {
        let is_use = self.is_word("use");
        while !self.eat(";") {
            if self.is_end() {
                break;
            }
            if self.eat("{") {
                self.skip_to("{", "}")?;
                if is_use {
                    self.eat(";");
                }
                break;
            }
            self.at += 1;
        }
        Ok(item)
    }
    fn methods(&mut self) -> Result<Item, ErrorResponse> {
        self.at += 1;
        if self.eat("<") {
            self.generics()?;
        }
        let mut name = self.ty()?;
        let parts = name.split_once("for").map(|(_, after)| after.to_string());
        if let Some(after) = parts {
            name = after;
        }
        let name: Name = name.split('<').next().unwrap_or_default().trim_start_matches('&').into();
        while !self.is("{") && !self.is_end() {
            self.at += 1;
        }
        self.need("{")?;
        let mut list = Vec::new();
        while !self.eat("}") {
            self.attributes()?;
            match self.item()? {
                Some(Item::Function(f)) => list.push(f),
                Some(_) => {}
                None => return Err(self.expected("a function")),
            }
        }
        Ok(Item::Methods(name, list))
    }
    fn function(&mut self) -> Result<Function, ErrorResponse> {
        let name = self.word("the name of a function")?;
        if self.eat("<") {
            self.generics()?;
        }
        self.need("(")?;
        let mut params = Vec::new();
        while !self.eat(")") {
            self.attributes()?;
            let pattern = self.one_pattern()?;
            let ty = if self.eat(":") { Some(self.ty()?) } else { None };
            params.push((pattern, ty));
            if !self.eat(",") {
                self.need(")")?;
                break;
            }
        }
        let result = if self.eat("->") { Some(self.ty()?) } else { None };
        while !self.is("{") && !self.is_end() {
            self.at += 1; // a `where` clause
        }
        let from = self.from();
        let block = self.block()?;
        let body = Node { kind: Kind::Block(block), from, to: self.to() };
        Ok(Function { name, params, result, body })
    }
    /// Parses a closure from its first `|`.
    pub(super) fn closure(&mut self) -> Result<Kind, ErrorResponse> {
        let mut params: Vec<(Pattern, Option<String>)> = Vec::new();
        if !self.eat("||") {
            self.need("|")?;
            while !self.eat("|") {
                let pattern = self.one_pattern()?;
                let ty = if self.eat(":") { Some(self.ty()?) } else { None };
                params.push((pattern, ty));
                if !self.eat(",") {
                    self.need("|")?;
                    break;
                }
            }
        }
        let result = if self.eat("->") { Some(self.ty()?) } else { None };
        let structs = std::mem::replace(&mut self.structs, true);
        let body = self.deeper(Parser::expression)?;
        self.structs = structs;
        Ok(Kind::Closure(Rc::new(Function { name: "the closure".into(), params, result, body })))
    }
}

/// Returns true for expressions that end a statement without a semicolon.
fn is_block_like(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::Block(_)
            | Kind::If(..)
            | Kind::Match(..)
            | Kind::For(..)
            | Kind::While(..)
            | Kind::Loop(_)
            | Kind::Macro(..)
    )
}
