//! Parses expressions.

use super::lexer::TokenKind;
use super::{Arm, Kind, MethodCall, Name, Node, Parser};
use crate::error::ErrorResponse;

/// The binary operators by precedence, lowest first.
const LEVELS: &[&[&str]] = &[
    &["||"],
    &["&&"],
    &["==", "!=", "<", ">", "<=", ">="],
    &["|"],
    &["^"],
    &["&"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];
/// The operators that assign.
const ASSIGN: &[(&str, Option<&str>)] = &[
    ("=", None),
    ("+=", Some("+")),
    ("-=", Some("-")),
    ("*=", Some("*")),
    ("/=", Some("/")),
    ("%=", Some("%")),
    ("&=", Some("&")),
    ("|=", Some("|")),
    ("^=", Some("^")),
];

impl Parser<'_> {
    /// Parses an expression.
    pub(super) fn expression(&mut self) -> Result<Node, ErrorResponse> {
        self.deeper(|p| {
            let left = p.range()?;
            let Some((mark, op)) = ASSIGN.iter().find(|(mark, _)| p.is(mark)) else { return Ok(left) };
            p.need(mark)?;
            let right = p.expression()?;
            let (from, to) = (left.from, right.to);
            let op = op.map(|o| LEVELS.concat().into_iter().find(|l| *l == o).unwrap_or("+"));
            Ok(Node { kind: Kind::Assign(op, Box::new(left), Box::new(right)), from, to })
        })
    }
    fn range(&mut self) -> Result<Node, ErrorResponse> {
        if self.is("..") || self.is("..=") {
            let from = self.from();
            let start = Node { kind: Kind::Tuple(Vec::new()), from, to: from };
            let mut node = self.range_after(start)?;
            if let Kind::Range(start, ..) = &mut node.kind {
                *start = None;
            }
            return Ok(node);
        }
        let left = self.level(0)?;
        if self.is("..") || self.is("..=") { self.range_after(left) } else { Ok(left) }
    }
    /// Parses the rest of a range after its start.
    pub(super) fn range_after(&mut self, start: Node) -> Result<Node, ErrorResponse> {
        let through = self.is("..=");
        self.at += 1;
        let ends = match self.kind() {
            TokenKind::End => true,
            TokenKind::Mark(m) => matches!(*m, ")" | "]" | "}" | "," | ";" | "=>" | "{"),
            _ => false,
        };
        let end = if ends { None } else { Some(Box::new(self.level(0)?)) };
        let (from, to) = (start.from, self.to());
        Ok(Node { kind: Kind::Range(Some(Box::new(start)), end, through), from, to })
    }
    fn level(&mut self, level: usize) -> Result<Node, ErrorResponse> {
        let Some(operators) = LEVELS.get(level) else { return self.prefix() };
        let mut left = self.level(level + 1)?;
        loop {
            let Some(op) = operators.iter().find(|op| self.is(op)) else { return Ok(left) };
            // `a || b` where an operand is expected is a closure; here it is an operator
            self.at += 1;
            let right = self.level(level + 1)?;
            let (from, to) = (left.from, right.to);
            left = Node { kind: Kind::Binary(op, Box::new(left), Box::new(right)), from, to };
        }
    }
    /// Parses signs and references before an operand.
    pub(super) fn prefix(&mut self) -> Result<Node, ErrorResponse> {
        let from = self.from();
        for sign in ["-", "!", "*"] {
            if self.eat(sign) {
                let of = self.deeper(Parser::prefix)?;
                let to = of.to;
                if sign == "*" {
                    return Ok(of);
                }
                let kind = match (sign, of.kind) {
                    ("-", Kind::Int(n, ty)) => Kind::Int(-n, ty),
                    ("-", Kind::Float(x, ty)) => Kind::Float(-x, ty),
                    (_, kind) => {
                        let sign = if sign == "-" { '-' } else { '!' };
                        Kind::Unary(sign, Box::new(Node { kind, from: of.from, to }))
                    }
                };
                return Ok(Node { kind, from, to });
            }
        }
        if self.eat("&") || self.eat("&&") {
            self.eat_word("mut");
            return self.deeper(Parser::prefix);
        }
        self.postfix()
    }
    fn postfix(&mut self) -> Result<Node, ErrorResponse> {
        let mut node = self.primary()?;
        let mut links = 0;
        loop {
            let from = node.from;
            let kind = if self.eat("?") {
                Kind::Try(Box::new(node))
            } else if self.is("(") && !matches!(node.kind, Kind::Block(_) | Kind::If(..) | Kind::Match(..)) {
                self.at += 1;
                Kind::Call(Box::new(node), self.list(")")?)
            } else if self.is("[") && !matches!(node.kind, Kind::Block(_)) {
                self.at += 1;
                let at = self.inside(Parser::expression)?;
                self.need("]")?;
                Kind::Element(Box::new(node), Box::new(at))
            } else if self.eat_word("as") {
                Kind::Cast(Box::new(node), self.cast_type()?)
            } else if self.eat(".") {
                self.member(node)?
            } else {
                self.depth -= links;
                return Ok(node);
            };
            node = Node { kind, from, to: self.to() };
            self.depth += 1;
            links += 1;
            self.deeper(|_| Ok(()))?;
        }
    }
    fn member(&mut self, of: Node) -> Result<Kind, ErrorResponse> {
        match *self.kind() {
            TokenKind::Int(n, _) => {
                self.at += 1;
                return Ok(Kind::Field(Box::new(of), n.to_string().into()));
            }
            // `t.0.1` is read as a number
            TokenKind::Float(..) => {
                let token = &self.tokens[self.at];
                let text = self.text[token.from..token.to].to_string();
                self.at += 1;
                let (a, b) = text.split_once('.').unwrap_or((&text, "0"));
                let (from, to) = (of.from, self.to());
                let first = Node { kind: Kind::Field(Box::new(of), a.into()), from, to };
                return Ok(Kind::Field(Box::new(first), b.into()));
            }
            _ => {}
        }
        let at = self.from();
        let name = self.word("the name of a method")?;
        let mut generics = None;
        if self.is("::") && matches!(self.ahead(1), TokenKind::Mark("<")) {
            self.at += 2;
            generics = Some(self.generics()?);
        }
        if !self.eat("(") {
            return Ok(Kind::Field(Box::new(of), name));
        }
        let args = self.list(")")?;
        let close = self.to() - 1;
        Ok(Kind::Method(Box::new(MethodCall { of, name: name.to_string(), generics, at, args, close })))
    }
    /// Parses expressions separated by commas, up to the closing bracket.
    pub(super) fn list(&mut self, close: &str) -> Result<Vec<Node>, ErrorResponse> {
        self.inside(|p| {
            let mut list = Vec::new();
            while !p.eat(close) {
                list.push(p.expression()?);
                if !p.eat(",") {
                    p.need(close)?;
                    break;
                }
            }
            Ok(list)
        })
    }
    /// Parses what stands in brackets, where `Name {` starts a struct.
    fn inside<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, ErrorResponse>,
    ) -> Result<T, ErrorResponse> {
        let structs = std::mem::replace(&mut self.structs, true);
        let made = parse(self);
        self.structs = structs;
        made
    }
    /// Parses `if`, `match`, a loop or a block, if one starts here.
    pub(super) fn control(&mut self) -> Result<Option<Node>, ErrorResponse> {
        let from = self.from();
        if matches!(self.kind(), TokenKind::Lifetime) && matches!(self.ahead(1), TokenKind::Mark(":")) {
            self.at += 2;
        }
        let kind = if self.is("{") {
            Kind::Block(self.block()?)
        } else if self.eat_word("unsafe") {
            return Err(
                syntax_error!("`unsafe` code needs a compiler: it runs natively only").at(from, self.to())
            );
        } else if self.eat_word("if") {
            self.if_after()?
        } else if self.eat_word("match") {
            self.match_after()?
        } else if self.eat_word("for") {
            let pattern = self.pattern()?;
            if !self.eat_word("in") {
                return Err(self.expected("`in`"));
            }
            let over = self.head()?;
            Kind::For(pattern, Box::new(over), self.block()?)
        } else if self.eat_word("while") {
            let condition = self.condition()?;
            Kind::While(Box::new(condition), self.block()?)
        } else if self.eat_word("loop") {
            Kind::Loop(self.block()?)
        } else {
            return Ok(None);
        };
        Ok(Some(Node { kind, from, to: self.to() }))
    }
    /// Parses an expression that is followed by a block.
    fn head(&mut self) -> Result<Node, ErrorResponse> {
        let structs = std::mem::replace(&mut self.structs, false);
        let node = self.expression();
        self.structs = structs;
        node
    }
    fn condition(&mut self) -> Result<Node, ErrorResponse> {
        let structs = std::mem::replace(&mut self.structs, false);
        let node = self.expression();
        self.structs = structs;
        node
    }
    fn if_after(&mut self) -> Result<Kind, ErrorResponse> {
        let condition = self.condition()?;
        let then = self.block()?;
        let mut other = None;
        if self.eat_word("else") {
            let from = self.from();
            let kind =
                if self.eat_word("if") { self.deeper(Parser::if_after)? } else { Kind::Block(self.block()?) };
            other = Some(Box::new(Node { kind, from, to: self.to() }));
        }
        Ok(Kind::If(Box::new(condition), then, other))
    }
    fn match_after(&mut self) -> Result<Kind, ErrorResponse> {
        let value = self.head()?;
        self.need("{")?;
        let mut arms = Vec::new();
        let structs = std::mem::replace(&mut self.structs, true);
        while !self.eat("}") {
            let pattern = self.pattern()?;
            let guard = if self.eat_word("if") { Some(self.expression()?) } else { None };
            self.need("=>")?;
            let value = match self.control()? {
                Some(node) if !self.is(".") => node,
                _ => self.expression()?,
            };
            arms.push(Arm { pattern, guard, value });
            self.eat(",");
        }
        self.structs = structs;
        Ok(Kind::Match(Box::new(value), arms))
    }
    fn primary(&mut self) -> Result<Node, ErrorResponse> {
        let from = self.from();
        if let Some(node) = self.control()? {
            return Ok(node);
        }
        let kind = match self.kind() {
            TokenKind::Int(n, ty) => self.literal(Kind::Int(*n, *ty)),
            TokenKind::Float(x, ty) => self.literal(Kind::Float(*x, *ty)),
            TokenKind::Text(text) => self.literal(Kind::Text(text.clone())),
            TokenKind::Char(c) => self.literal(Kind::Char(*c)),
            TokenKind::Mark("(") => {
                self.at += 1;
                let mut list = self.list(")")?;
                let comma = self.text[..self.to() - 1].trim_end().ends_with(',');
                match list.pop() {
                    // the brackets stay part of the text that an error underlines
                    Some(one) if list.is_empty() && !comma => one.kind,
                    last => Kind::Tuple(list.into_iter().chain(last).collect()),
                }
            }
            TokenKind::Mark("[") => {
                self.at += 1;
                self.array()?
            }
            TokenKind::Mark("|" | "||") => self.closure()?,
            TokenKind::Word(_) => self.word_expression()?,
            TokenKind::Mark("<") => {
                return Err(
                    syntax_error!("a path like `<T as Trait>::f` needs a compiler").at(from, from + 1)
                );
            }
            _ => return Err(self.expected("an operand, a number, a bracket or a function")),
        };
        Ok(Node { kind, from, to: self.to() })
    }
    fn literal(&mut self, kind: Kind) -> Kind {
        self.at += 1;
        kind
    }
    /// Parses a list after its bracket, or `[value; n]`.
    fn array(&mut self) -> Result<Kind, ErrorResponse> {
        if self.eat("]") {
            return Ok(Kind::List(Vec::new()));
        }
        let first = self.inside(Parser::expression)?;
        if self.eat(";") {
            let n = self.inside(Parser::expression)?;
            self.need("]")?;
            return Ok(Kind::Repeat(Box::new(first), Box::new(n)));
        }
        let mut list = vec![first];
        if self.eat(",") {
            list.extend(self.list("]")?);
        } else {
            self.need("]")?;
        }
        Ok(Kind::List(list))
    }
    fn word_expression(&mut self) -> Result<Kind, ErrorResponse> {
        if self.eat_word("move") {
            return self.closure();
        }
        if self.eat_word("return") {
            let ends = matches!(self.kind(), TokenKind::Mark(";" | "}" | ",") | TokenKind::End);
            return Ok(Kind::Return(if ends { None } else { Some(Box::new(self.expression()?)) }));
        }
        if self.eat_word("break") || self.eat_word("continue") {
            let is_break = matches!(&self.tokens[self.at - 1].kind, TokenKind::Word(w) if &**w == "break");
            if matches!(self.kind(), TokenKind::Lifetime) {
                self.at += 1;
            }
            return Ok(if is_break { Kind::Break } else { Kind::Continue });
        }
        if self.is_word("true") || self.is_word("false") {
            let value = self.is_word("true");
            return Ok(self.literal(Kind::Bool(value)));
        }
        if self.eat_word("let") {
            let pattern = self.pattern()?;
            self.need("=")?;
            // `&&` after a `let` starts the next condition
            let value = self.level(2)?;
            return Ok(Kind::Let(pattern, Box::new(value)));
        }
        let from = self.from();
        let (name, generics) = self.path()?;
        if self.is("!") && matches!(self.ahead(1), TokenKind::Mark("(" | "[" | "{")) {
            self.at += 1;
            return self.macro_call(name, from);
        }
        if self.structs && self.is("{") && self.starts_struct(&name) {
            return self.struct_after(name);
        }
        Ok(Kind::Name(name, generics))
    }
    fn starts_struct(&self, name: &str) -> bool {
        let last = name.rsplit("::").next().unwrap_or(name);
        let field = matches!(self.ahead(1), TokenKind::Word(_))
            && matches!(self.ahead(2), TokenKind::Mark(":" | "," | "}"));
        let rest = matches!(self.ahead(1), TokenKind::Mark(".." | "}"));
        last.starts_with(char::is_uppercase) && (field || rest)
    }
    fn struct_after(&mut self, name: Name) -> Result<Kind, ErrorResponse> {
        self.need("{")?;
        let (mut fields, mut base) = (Vec::new(), None);
        while !self.eat("}") {
            if self.eat("..") {
                base = Some(Box::new(self.expression()?));
                self.need("}")?;
                break;
            }
            let from = self.from();
            let field = self.word("the name of a field")?;
            let value = match self.eat(":") {
                true => self.inside(Parser::expression)?,
                false => Node { kind: Kind::Name(field.clone(), None), from, to: self.to() },
            };
            fields.push((field, value));
            if !self.eat(",") {
                self.need("}")?;
                break;
            }
        }
        Ok(Kind::Struct(name, fields, base))
    }
    /// Parses a name, which may contain `::` and generic arguments.
    pub(super) fn path(&mut self) -> Result<(Name, Option<String>), ErrorResponse> {
        let mut name = self.word("a name")?.to_string();
        let mut generics = None;
        while self.is("::") {
            match self.ahead(1) {
                TokenKind::Word(w) => {
                    name = format!("{name}::{w}");
                    self.at += 2;
                }
                TokenKind::Mark("<") => {
                    self.at += 2;
                    generics = Some(self.generics()?);
                }
                _ => break,
            }
        }
        let name = name.strip_prefix("crate::show::").unwrap_or(&name);
        let name = name.strip_prefix("atmesh::").unwrap_or(name).into();
        Ok((name, generics))
    }
}
