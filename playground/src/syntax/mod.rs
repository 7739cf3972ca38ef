//! Programs as trees: the subset of Rust that the playground reads.
//!
//! [`parse`] reads a whole file, or the statements of a function's body. Types are read and kept as
//! text: programs are evaluated without type inference, and a type matters only where it decides a
//! value (`to_vec::<f32>()`, `0.5f32`, `let x: f32`).

mod expression;
mod item;
mod lexer;
mod macros;
mod pattern;
mod spec;

pub(crate) use spec::spec;

use crate::error::ErrorResponse;
use std::rc::Rc;
use std::sync::Arc;

/// A name or a text of the program. Trees of arrays hold names, and are sent between threads.
pub(crate) type Name = Arc<str>;

/// An expression, and its position in the text in bytes.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// The type of a number, where the program states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumType {
    /// Not stated: `i32` or `f64`, or what the operand next to it has.
    Open,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    I128,
    U8,
    U16,
    U32,
    U64,
    Usize,
    /// `usize`, as an entry of a shape, which is printed without blanks.
    Extent,
}

impl NumType {
    /// Returns the type with this name.
    pub(crate) fn named(name: &str) -> Option<NumType> {
        Some(match name {
            "f32" => NumType::F32,
            "f64" => NumType::F64,
            "i8" => NumType::I8,
            "i16" => NumType::I16,
            "i32" => NumType::I32,
            "i64" | "isize" => NumType::I64,
            "i128" | "u128" => NumType::I128,
            "u8" => NumType::U8,
            "u16" => NumType::U16,
            "u32" => NumType::U32,
            "u64" => NumType::U64,
            "usize" => NumType::Usize,
            _ => return None,
        })
    }
}

/// The kind of an expression.
#[derive(Debug)]
pub(crate) enum Kind {
    Int(i128, NumType),
    Float(f64, NumType),
    Bool(bool),
    Text(Name),
    Char(char),
    /// A name or a path, `x` or `Mesh::new`, with the text of its last generic arguments.
    Name(Name, Option<String>),
    /// A spec `p![..]`, as text: names in it may be constants.
    Spec(String),
    /// An index `ix![..]`.
    Index(Vec<IndexEntry>),
    Tuple(Vec<Node>),
    List(Vec<Node>),
    /// `[value; n]`.
    Repeat(Box<Node>, Box<Node>),
    /// `Net { up, down: 1.0, ..base }`.
    Struct(Name, Vec<(Name, Node)>, Option<Box<Node>>),
    Unary(char, Box<Node>),
    Binary(&'static str, Box<Node>, Box<Node>),
    /// `a = b`, or `a += b` with the operator `+`.
    Assign(Option<&'static str>, Box<Node>, Box<Node>),
    Range(Option<Box<Node>>, Option<Box<Node>>, bool),
    Call(Box<Node>, Vec<Node>),
    Method(Box<MethodCall>),
    Field(Box<Node>, Name),
    Element(Box<Node>, Box<Node>),
    Try(Box<Node>),
    Cast(Box<Node>, String),
    Closure(Rc<Function>),
    Block(Rc<Block>),
    /// A condition `let pattern = value` of `if` or `while`.
    Let(Pattern, Box<Node>),
    If(Box<Node>, Rc<Block>, Option<Box<Node>>),
    Match(Box<Node>, Vec<Arm>),
    For(Pattern, Box<Node>, Rc<Block>),
    While(Box<Node>, Rc<Block>),
    Loop(Rc<Block>),
    Return(Option<Box<Node>>),
    Break,
    Continue,
    /// A macro with the expressions in its brackets.
    Macro(Name, Vec<Node>),
}

/// A method call `x.f::<T>(a, b)`, with the positions of the name and of the closing bracket.
#[derive(Debug)]
pub(crate) struct MethodCall {
    pub(crate) of: Node,
    pub(crate) name: String,
    pub(crate) generics: Option<String>,
    pub(crate) at: usize,
    pub(crate) args: Vec<Node>,
    pub(crate) close: usize,
}

/// An entry of `ix![..]`: a range with a step, or an expression.
#[derive(Debug)]
pub(crate) struct IndexEntry {
    pub(crate) value: Node,
    pub(crate) step: Option<Node>,
}

/// A function or a closure.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: Name,
    pub(crate) params: Vec<(Pattern, Option<String>)>,
    /// The text of the type of the result.
    pub(crate) result: Option<String>,
    pub(crate) body: Node,
}

/// A block of statements; its value is that of the last expression.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) statements: Vec<Statement>,
    pub(crate) value: Option<Node>,
}

/// A statement.
#[derive(Debug)]
pub(crate) enum Statement {
    /// `let pattern: type = value else { .. };`.
    Let(Pattern, Option<String>, Option<Node>, Option<Rc<Block>>),
    Expression(Node),
    Item(Item),
}

/// An arm of a `match`.
#[derive(Debug)]
pub(crate) struct Arm {
    pub(crate) pattern: Pattern,
    pub(crate) guard: Option<Node>,
    pub(crate) value: Node,
}

/// A pattern.
#[derive(Clone, Debug)]
pub(crate) enum Pattern {
    Any,
    Rest,
    Name(Name),
    /// `name @ pattern`.
    Bound(Name, Box<Pattern>),
    Literal(Rc<Node>),
    Tuple(Vec<Pattern>),
    List(Vec<Pattern>),
    /// `Some(p)`, `Ok(p)`, `Static(p)`.
    Call(Name, Vec<Pattern>),
    Struct(Vec<(Name, Pattern)>),
    Either(Vec<Pattern>),
}

/// A definition.
#[derive(Debug)]
pub(crate) enum Item {
    Function(Rc<Function>),
    /// The functions of an `impl`, by the name of the type.
    Methods(Name, Vec<Rc<Function>>),
    Constant(Name, Node),
    /// A definition that has no effect here: `use`, `type`, `struct`, `mod`. What uses one that the
    /// playground cannot read, such as an `enum`, is refused.
    Nothing,
}

/// A program.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) block: Rc<Block>,
}

/// The maximum length of a text in bytes, and the maximum depth of nesting.
/// A chain of methods is nested too. The limits are low because parsing and evaluation are
/// recursive, and the stack of a WebAssembly module is small.
pub(crate) const MAX_TEXT_BYTES: usize = 1 << 16;
const MAX_NESTING_DEPTH: usize = 64;

/// Parses a program.
pub(crate) fn parse(text: &str) -> Result<Program, ErrorResponse> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(syntax_error!("the program has {} bytes, and may have {MAX_TEXT_BYTES}", text.len()));
    }
    let mut parser = Parser { text, tokens: lexer::tokens(text)?, at: 0, depth: 0, structs: true };
    let block = parser.block_until(None)?;
    Ok(Program { block: Rc::new(block) })
}

/// The state of parsing: the tokens, the next one, and the depth of nesting.
struct Parser<'a> {
    text: &'a str,
    tokens: Vec<lexer::Token>,
    at: usize,
    depth: usize,
    /// Whether `Name {` starts a struct; it does not in the head of `if`, `for` and `match`.
    structs: bool,
}

use lexer::TokenKind;

impl Parser<'_> {
    fn kind(&self) -> &TokenKind {
        &self.tokens[self.at].kind
    }
    fn from(&self) -> usize {
        self.tokens[self.at].from
    }
    /// Returns the end of the last token that was read.
    fn to(&self) -> usize {
        if self.at == 0 { 0 } else { self.tokens[self.at - 1].to }
    }
    fn is(&self, mark: &str) -> bool {
        matches!(self.kind(), TokenKind::Mark(m) if *m == mark)
    }
    fn is_word(&self, word: &str) -> bool {
        matches!(self.kind(), TokenKind::Word(w) if &**w == word)
    }
    fn ahead(&self, n: usize) -> &TokenKind {
        let last = self.tokens.len() - 1;
        &self.tokens[(self.at + n).min(last)].kind
    }
    fn is_end(&self) -> bool {
        matches!(self.kind(), TokenKind::End)
    }
    fn eat(&mut self, mark: &str) -> bool {
        let found = self.is(mark);
        self.at += usize::from(found);
        found
    }
    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.at += usize::from(found);
        found
    }
    fn need(&mut self, mark: &str) -> Result<(), ErrorResponse> {
        // `>>` closes two generic lists, `||` is an empty list of parameters, `&&` is two references
        if self.eat(mark) { Ok(()) } else { Err(self.expected(&format!("`{mark}`"))) }
    }
    fn word(&mut self, what: &str) -> Result<Name, ErrorResponse> {
        match self.kind() {
            TokenKind::Word(w) => {
                let word = w.clone();
                self.at += 1;
                Ok(word)
            }
            _ => Err(self.expected(what)),
        }
    }
    fn expected(&self, what: &str) -> ErrorResponse {
        let token = &self.tokens[self.at];
        let found = match self.text[token.from..].chars().next() {
            Some(c) if !self.is_end() => format!("`{c}`"),
            _ => "the end".into(),
        };
        let wide = self.text[token.from..].chars().next().map_or(0, char::len_utf8);
        syntax_error!("{what} is expected here, not {found}").at(token.from, token.from + wide)
    }
    /// Runs `parse` one level deeper.
    fn deeper<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, ErrorResponse>,
    ) -> Result<T, ErrorResponse> {
        self.depth += 1;
        if self.depth > MAX_NESTING_DEPTH {
            let say = "the program is nested more than 64 levels deep: give parts of it names by `let`";
            return Err(ErrorResponse::syntax(say).at(self.from(), self.from()));
        }
        let made = parse(self);
        self.depth -= 1;
        made
    }
}
