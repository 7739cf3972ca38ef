//! Parses programs: lines of `let name = …` and an expression, with the syntax of the book.

use crate::error::ErrorResponse;
use atmesh::{Scalar, Spec};

/// The maximum length of a text in bytes, and the maximum depths of brackets and of all nesting.
/// A chain of methods is nested too. The limits are low because parsing and evaluation are
/// recursive, and the stack of a WebAssembly module is small.
const MAX_TEXT_BYTES: usize = 4096;
const MAX_BRACKET_DEPTH: usize = 24;
const MAX_NESTING_DEPTH: usize = 64;

/// An expression, and its position in the text in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl Node {
    /// Returns the depth of nesting.
    fn depth(&self) -> usize {
        let deepest = |nodes: &[Node]| nodes.iter().map(Node::depth).max().unwrap_or(0);
        1 + match &self.kind {
            Kind::Number(_) | Kind::Text(_) | Kind::Name(_) | Kind::Spec(_) | Kind::All => 0,
            Kind::List(list) | Kind::Call(_, list) => deepest(list),
            Kind::Unary(_, of) | Kind::Closure(_, of) => of.depth(),
            Kind::Binary(_, a, b) => a.depth().max(b.depth()),
            Kind::Method { of, args, .. } => of.depth().max(deepest(args)),
            Kind::Block(lets, of) => lets.iter().map(|l| l.1.depth()).max().unwrap_or(0).max(of.depth()),
        }
    }
}

/// The kind of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Number(Scalar),
    Text(String),
    Name(String),
    Spec(Spec),
    /// The range `..`.
    All,
    /// A list `[a, b]` or `(a, b)`.
    List(Vec<Node>),
    Unary(char, Box<Node>),
    Binary(&'static str, Box<Node>, Box<Node>),
    /// A call `f(a, b)`.
    Call(String, Vec<Node>),
    /// A method call `x.f(a, b)`, with the positions of the name and of the closing bracket.
    Method {
        of: Box<Node>,
        name: String,
        at: usize,
        args: Vec<Node>,
        close: usize,
    },
    /// A closure `|x, w| body`.
    Closure(Vec<String>, Box<Node>),
    /// A block `{ let h = …; h }`.
    Block(Vec<(String, Node)>, Box<Node>),
}

/// Parses a program.
pub(crate) fn parse(text: &str) -> Result<Node, ErrorResponse> {
    if text.len() > MAX_TEXT_BYTES {
        let response = syntax_error!("the program has {} bytes, and may have {MAX_TEXT_BYTES}", text.len());
        return Err(response);
    }
    let mut p = Parser { text, at: 0, depth: 0 };
    let node = p.statements(None)?;
    p.blanks();
    match p.rest() {
        "" if node.depth() > MAX_NESTING_DEPTH => Err(syntax_error!(
            "the program is nested more than {MAX_NESTING_DEPTH} levels deep: give parts of it names by `let`"
        )),
        "" => Ok(node),
        _ => Err(p.expected("the end of the program, an operator or a method")),
    }
}

/// Parses a spec such as `p!["X", _]`, `"X", _` or `X, _`, with sets of axes after a semicolon.
pub(crate) fn spec(text: &str) -> Result<Spec, String> {
    let inner = text.trim();
    let inner = inner.strip_prefix("p!").map_or(inner, str::trim);
    let inner = inner.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(inner);
    let mut out = String::from("p![");
    let mut chars = inner.char_indices().peekable();
    while let Some((i, c)) = chars.next() {
        if !(c.is_alphanumeric() || c == '_') {
            if c == '"' {
                // copy a name in quotes unchanged
                let end = inner[i + 1..].find('"').map_or(inner.len(), |n| i + n + 2);
                out += &inner[i..end];
                while chars.peek().is_some_and(|(k, _)| *k < end) {
                    chars.next();
                }
            } else {
                out.push(c);
            }
            continue;
        }
        let mut end = i + c.len_utf8();
        while let Some((k, c)) = chars.next_if(|(_, c)| c.is_alphanumeric() || *c == '_') {
            end = k + c.len_utf8();
        }
        let word = &inner[i..end];
        let label = matches!(word, "U" | "R") && inner[end..].trim_start().starts_with(':');
        if label || word == "_" { out += word } else { out += &format!("\"{word}\"") }
    }
    out.push(']');
    // the first line is the error; an example of a spec follows as the help
    out.parse::<Spec>()
        .map_err(|e| e.diagnostics().first().map_or_else(String::new, |d| d.fault.message.clone()))
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

/// The binary operators by precedence, lowest first; longer ones precede their prefixes.
const LEVELS: &[&[&str]] = &[&["|"], &["^"], &["&"], &["<<", ">>"], &["+", "-"], &["*", "/", "%"]];

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }
    fn blanks(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            let skip = rest.len() - trimmed.len();
            let comment =
                if trimmed.starts_with("//") { trimmed.find('\n').unwrap_or(trimmed.len()) } else { 0 };
            self.at += skip + comment;
            if comment == 0 {
                return;
            }
        }
    }
    fn eat(&mut self, what: &str) -> bool {
        self.blanks();
        let found = self.rest().starts_with(what);
        self.at += if found { what.len() } else { 0 };
        found
    }
    fn need(&mut self, what: &str) -> Result<(), ErrorResponse> {
        if self.eat(what) { Ok(()) } else { Err(self.expected(&format!("`{what}`"))) }
    }
    fn expected(&self, what: &str) -> ErrorResponse {
        let found = match self.rest().chars().next() {
            Some(c) => format!("`{c}`"),
            None => "the end".into(),
        };
        let wide = self.rest().chars().next().map_or(0, char::len_utf8);
        syntax_error!("{what} is expected here, not {found}").at(self.at, self.at + wide)
    }
    /// Parses a name, which may contain `::`.
    fn name(&mut self) -> Option<String> {
        self.blanks();
        let rest = self.rest();
        if !rest.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            return None;
        }
        let word = |t: &str| t.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(t.len());
        let mut end = word(rest);
        while let Some(more) = rest[end..].strip_prefix("::").filter(|t| word(t) > 0) {
            end += 2 + word(more);
        }
        let name = rest[..end].to_string();
        self.at += end;
        Some(name)
    }
    /// Parses the start of a statement `let name = …` or `name = …`, and returns the name.
    fn binding(&mut self) -> Result<Option<String>, ErrorResponse> {
        let start = self.at;
        let mut name = self.name();
        let let_ = name.as_deref() == Some("let");
        if let_ {
            name = self.name();
            if name.is_none() {
                return Err(self.expected("a name"));
            }
        }
        if name.is_some() && self.eat("=") {
            return Ok(name);
        }
        if let_ {
            return Err(self.expected("`=`"));
        }
        self.at = start;
        Ok(None)
    }
    fn statements(&mut self, until: Option<&str>) -> Result<Node, ErrorResponse> {
        let mut lets = Vec::new();
        self.blanks();
        let from = self.at;
        while let Some(name) = self.binding()? {
            lets.push((name, self.expression()?));
            self.eat(";");
            self.blanks();
        }
        if self.rest().is_empty() || until.is_some_and(|u| self.rest().starts_with(u)) {
            return Err(self.expected("an expression, the program's result,"));
        }
        let value = self.expression()?;
        self.eat(";");
        if lets.is_empty() {
            return Ok(value);
        }
        Ok(Node { from, to: value.to, kind: Kind::Block(lets, Box::new(value)) })
    }
    fn expression(&mut self) -> Result<Node, ErrorResponse> {
        self.depth += 1;
        if self.depth > MAX_BRACKET_DEPTH {
            return Err(syntax_error!("this is nested in more than {MAX_BRACKET_DEPTH} brackets")
                .at(self.at, self.at));
        }
        let node = self.level(0);
        self.depth -= 1;
        node
    }
    fn level(&mut self, level: usize) -> Result<Node, ErrorResponse> {
        let Some(operators) = LEVELS.get(level) else { return self.prefix() };
        let mut left = self.level(level + 1)?;
        loop {
            self.blanks();
            let Some(op) = operators.iter().find(|op| self.rest().starts_with(**op)) else { return Ok(left) };
            self.at += op.len();
            let right = self.level(level + 1)?;
            let (from, to) = (left.from, right.to);
            left = Node { kind: Kind::Binary(op, Box::new(left), Box::new(right)), from, to };
        }
    }
    fn prefix(&mut self) -> Result<Node, ErrorResponse> {
        self.blanks();
        let mut signs = Vec::new();
        while let Some(c) = self.rest().chars().next().filter(|c| matches!(c, '-' | '!' | '&' | '*')) {
            self.at += 1;
            signs.push((c, self.at - 1));
            self.blanks();
        }
        let mut node = self.postfix()?;
        for (c, at) in signs.into_iter().rev().filter(|(c, _)| matches!(c, '-' | '!')) {
            let to = node.to;
            node = Node { kind: Kind::Unary(c, Box::new(node)), from: at, to };
        }
        Ok(node)
    }
    fn postfix(&mut self) -> Result<Node, ErrorResponse> {
        let mut node = self.primary()?;
        loop {
            if self.eat("?") {
                continue;
            }
            self.blanks();
            if !self.rest().starts_with('.') || self.rest().starts_with("..") {
                return Ok(node);
            }
            self.at += 1;
            self.blanks();
            let at = self.at;
            let Some(name) = self.name() else { return Err(self.expected("the name of a method")) };
            self.need("(")?;
            let args = self.list(")")?;
            let (from, to) = (node.from, self.at);
            let kind = Kind::Method { of: Box::new(node), name, at, args, close: to - 1 };
            node = Node { kind, from, to };
        }
    }
    /// Parses expressions separated by commas, up to the closing bracket.
    fn list(&mut self, close: &str) -> Result<Vec<Node>, ErrorResponse> {
        let mut list = Vec::new();
        while !self.eat(close) {
            list.push(self.expression()?);
            if !self.eat(",") {
                self.need(close)?;
                break;
            }
        }
        Ok(list)
    }
    fn primary(&mut self) -> Result<Node, ErrorResponse> {
        self.blanks();
        let from = self.at;
        let kind = match self.rest().chars().next() {
            Some('0'..='9') => self.number()?,
            Some('"') => {
                let Some(end) = self.rest()[1..].find('"') else {
                    return Err(self.expected("a closing `\"`"));
                };
                let text = self.rest()[1..=end].to_string();
                self.at += end + 2;
                Kind::Text(text)
            }
            Some('[') => {
                self.at += 1;
                Kind::List(self.list("]")?)
            }
            Some('{') => {
                self.at += 1;
                let node = self.statements(Some("}"))?;
                self.need("}")?;
                node.kind
            }
            Some('(') => {
                self.at += 1;
                let inner = self.at;
                let mut list = self.list(")")?;
                let tuple = self.text[inner..self.at - 1].trim_end().ends_with(',');
                match list.pop() {
                    Some(one) if list.is_empty() && !tuple => one.kind,
                    last => Kind::List(list.into_iter().chain(last).collect()),
                }
            }
            Some('|') => self.closure()?,
            _ if self.rest().starts_with("..") => {
                self.at += 2;
                Kind::All
            }
            _ if self.rest().starts_with("p![") => {
                let Some(end) = self.rest().find(']') else {
                    return Err(self.expected("a spec that ends in `]`"));
                };
                let to = from + end + 1;
                let spec = spec(&self.text[from..to]).map_err(|e| ErrorResponse::syntax(e).at(from, to))?;
                self.at = to;
                Kind::Spec(spec)
            }
            _ => {
                let Some(name) = self.name() else {
                    return Err(self.expected("an operand, a number, a bracket or a function"));
                };
                match self.eat("(") {
                    true => Kind::Call(name, self.list(")")?),
                    false => {
                        // blanks that are not followed by a bracket belong to the next token
                        self.at = from + name.len();
                        Kind::Name(name)
                    }
                }
            }
        };
        Ok(Node { kind, from, to: self.at })
    }
    fn closure(&mut self) -> Result<Kind, ErrorResponse> {
        self.need("|")?;
        let mut params = Vec::new();
        while !self.eat("|") {
            let Some(name) = self.name() else { return Err(self.expected("the name of a parameter")) };
            params.push(name);
            // the type of a parameter is ignored
            if self.eat(":") {
                self.eat("&");
                self.name();
            }
            if !self.eat(",") {
                self.need("|")?;
                break;
            }
        }
        Ok(Kind::Closure(params, Box::new(self.expression()?)))
    }
    fn number(&mut self) -> Result<Kind, ErrorResponse> {
        let (from, rest) = (self.at, self.rest());
        let digits = |t: &str| t.find(|c: char| !(c.is_ascii_digit() || c == '_')).unwrap_or(t.len());
        let mut end = digits(rest);
        let mut whole = true;
        if rest[end..].starts_with('.') && rest[end + 1..].starts_with(|c: char| c.is_ascii_digit()) {
            end += 1 + digits(&rest[end + 1..]);
            whole = false;
        } else if rest[end..].starts_with('.')
            && !rest[end + 1..].starts_with(|c: char| c == '.' || c.is_alphabetic())
        {
            end += 1;
            whole = false;
        }
        if let Some(power) = rest[end..].strip_prefix(['e', 'E']) {
            let sign = power.len() - power.trim_start_matches(['-', '+']).len();
            let n = digits(&power[sign..]);
            if n > 0 {
                end += 1 + sign + n;
                whole = false;
            }
        }
        let text = rest[..end].replace('_', "");
        let suffix = ["f32", "f64", "i32", "i64", "usize"].into_iter().find(|s| rest[end..].starts_with(s));
        self.at += end + suffix.map_or(0, str::len);
        let out_of_range = || syntax_error!("`{text}` is not a numeric type").at(from, from + end);
        Ok(Kind::Number(match whole && !suffix.is_some_and(|s| s.starts_with('f')) {
            true => Scalar::Int(text.parse::<i64>().map_err(|_| out_of_range())?.into()),
            false => Scalar::Float(text.parse().map_err(|_| out_of_range())?),
        }))
    }
}
