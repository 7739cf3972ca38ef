//! A token reader with errors at source positions.

use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};
use std::iter::Peekable;
use std::str::FromStr;

/// An error at a token.
pub(crate) struct Fail(Span, String);
pub(crate) type Result<A> = std::result::Result<A, Fail>;

pub(crate) fn fail<A>(at: Span, why: impl Into<String>) -> Result<A> {
    Err(Fail(at, why.into()))
}

/// The tokens to read, and the position of the last token read.
pub(crate) struct Input {
    tokens: Peekable<std::vec::IntoIter<TokenTree>>,
    last: Span,
}
impl Input {
    /// Reads tokens. Invisible groups, which contain `macro_rules!` captures such as `$n:literal`,
    /// count as their contents.
    pub(crate) fn new(tokens: TokenStream, last: Span) -> Input {
        fn flat(tokens: TokenStream, into: &mut Vec<TokenTree>) {
            for token in tokens {
                match token {
                    TokenTree::Group(g) if g.delimiter() == Delimiter::None => flat(g.stream(), into),
                    token => into.push(token),
                }
            }
        }
        let mut all = Vec::new();
        flat(tokens, &mut all);
        Input::of(all, last)
    }
    fn of(tokens: Vec<TokenTree>, last: Span) -> Input {
        Input { tokens: tokens.into_iter().peekable(), last }
    }
    pub(crate) fn peek(&mut self) -> Option<&TokenTree> {
        self.tokens.peek()
    }
    pub(crate) fn next(&mut self) -> Option<TokenTree> {
        let token = self.tokens.next();
        if let Some(t) = &token {
            self.last = t.span();
        }
        token
    }
    /// Returns the position for an error about the next token: that token, or the last one.
    pub(crate) fn here(&mut self) -> Span {
        let last = self.last;
        self.peek().map_or(last, TokenTree::span)
    }
    pub(crate) fn sees(&mut self, c: char) -> bool {
        matches!(self.peek(), Some(TokenTree::Punct(p)) if p.as_char() == c)
    }
    pub(crate) fn sees_word(&mut self, word: &str) -> bool {
        matches!(self.peek(), Some(TokenTree::Ident(i)) if i.to_string() == word)
    }
    /// Takes the punctuation character if it is next.
    pub(crate) fn takes(&mut self, c: char) -> bool {
        let found = self.sees(c);
        if found {
            self.next();
        }
        found
    }
    pub(crate) fn is_empty(&mut self) -> bool {
        self.peek().is_none()
    }
    /// Requires the end or a comma.
    pub(crate) fn comma(&mut self, expected: &str) -> Result<()> {
        match self.next() {
            None => Ok(()),
            Some(TokenTree::Punct(p)) if p.as_char() == ',' => Ok(()),
            Some(t) => fail(t.span(), format!("expected {expected}")),
        }
    }
    pub(crate) fn end(&mut self, what: &str) -> Result<()> {
        match self.next() {
            None => Ok(()),
            Some(t) => fail(t.span(), format!("expected {what} and nothing more")),
        }
    }
    /// Takes all tokens up to and including the punctuation character.
    ///
    /// Returns the tokens before it, and true if it was there.
    pub(crate) fn until(&mut self, c: char) -> (Input, bool) {
        let mut part = Vec::new();
        while !self.is_empty() && !self.sees(c) {
            part.extend(self.next());
        }
        let last = self.last;
        let found = self.takes(c);
        (Input::of(part, last), found)
    }
    pub(crate) fn rest(&mut self) -> Code {
        let mut code = Code::default();
        code.extend(std::iter::from_fn(|| self.next()));
        code
    }
}

/// Takes the library's path off, and runs `f`. An error becomes `compile_error!` at its token.
pub(crate) fn run(input: TokenStream, f: impl Fn(&mut Input) -> Result<Code>) -> TokenStream {
    let mut input = Input::new(input, Span::call_site());
    let Some(TokenTree::Group(library)) = input.next() else {
        return error(Fail(Span::call_site(), "call it as `atmesh::typed` exports it".into()));
    };
    input.last = Span::call_site();
    match f(&mut input) {
        Ok(made) => made.stream(&library.stream().into_iter().collect::<Vec<_>>()),
        Err(why) => error(why),
    }
}
fn error(Fail(at, why): Fail) -> TokenStream {
    let mut text = Literal::string(&why);
    text.set_span(at);
    let mut argument = Group::new(Delimiter::Brace, TokenTree::Literal(text).into());
    argument.set_span(at);
    let mut bang = Punct::new('!', Spacing::Alone);
    bang.set_span(at);
    let name = Ident::new("compile_error", at);
    [TokenTree::Ident(name), TokenTree::Punct(bang), TokenTree::Group(argument)].into_iter().collect()
}
/// Code that a macro writes.
///
/// rustc receives it in one call for each group. To parse the text as a [`TokenStream`] takes
/// longer: rustc adds a source file for each text, and each operation on a stream is a call.
#[derive(Clone, Default)]
pub(crate) struct Code(Vec<Tree>);
#[derive(Clone)]
enum Tree {
    Token(TokenTree),
    Group(Delimiter, Code, Span),
    /// The library's path, written `LIB`.
    Library,
}
impl Code {
    /// Appends code.
    pub(crate) fn push(&mut self, more: Code) {
        self.0.extend(more.0);
    }
    /// Returns this code followed by `more`.
    pub(crate) fn then(mut self, more: Code) -> Code {
        self.push(more);
        self
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Returns this code between delimiters.
    pub(crate) fn group(self, delimiter: Delimiter, span: Span) -> Code {
        Code(vec![Tree::Group(delimiter, self, span)])
    }
    fn stream(self, library: &[TokenTree]) -> TokenStream {
        let mut tokens = Vec::with_capacity(self.0.len());
        for tree in self.0 {
            match tree {
                Tree::Token(token) => tokens.push(token),
                Tree::Library => tokens.extend_from_slice(library),
                Tree::Group(delimiter, code, span) => {
                    let mut group = Group::new(delimiter, code.stream(library));
                    group.set_span(span);
                    tokens.push(TokenTree::Group(group));
                }
            }
        }
        tokens.into_iter().collect()
    }
}
impl Extend<TokenTree> for Code {
    fn extend<I: IntoIterator<Item = TokenTree>>(&mut self, tokens: I) {
        self.0.extend(tokens.into_iter().map(Tree::Token));
    }
}
impl From<&Ident> for Code {
    fn from(name: &Ident) -> Code {
        Code(vec![Tree::Token(TokenTree::Ident(name.clone()))])
    }
}
/// Prints the tokens with a space after each, to compare them.
impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|tree| match tree {
            Tree::Token(token) => write!(f, "{token} "),
            Tree::Group(_, code, _) => write!(f, "({code}) "),
            Tree::Library => f.write_str("LIB "),
        })
    }
}

pub(crate) fn tuple(code: Code) -> Code {
    code.group(Delimiter::Parenthesis, Span::call_site())
}
/// Reads code that names the library as `LIB`.
pub(crate) fn code(text: &str) -> Code {
    code_with(text, &[])
}
/// Reads code in which each word of `names` stands for the given code.
pub(crate) fn code_with(text: &str, names: &[(&str, &Code)]) -> Code {
    let mut rest = text;
    let code = read(&mut rest, names);
    assert!(rest.is_empty(), "the macros write well-formed code");
    code
}
/// Reads code up to a closing delimiter, or to the end.
fn read(rest: &mut &str, names: &[(&str, &Code)]) -> Code {
    let here = Span::call_site();
    let mut code = Code::default();
    loop {
        *rest = rest.trim_start();
        let Some(c) = rest.chars().next() else { return code };
        let length = |part: fn(char) -> bool| rest.find(|c| !part(c)).unwrap_or(rest.len());
        let (token, length) = match c {
            ')' | ']' | '}' => return code,
            '(' | '[' | '{' => {
                *rest = &rest[1..];
                let inner = read(rest, names);
                assert!(!rest.is_empty(), "the macros close what they open");
                *rest = &rest[1..];
                let delimiter = match c {
                    '(' => Delimiter::Parenthesis,
                    '[' => Delimiter::Bracket,
                    _ => Delimiter::Brace,
                };
                code.push(inner.group(delimiter, here));
                continue;
            }
            '"' => {
                let (literal, length) = string(rest);
                (TokenTree::Literal(literal), length)
            }
            '0'..='9' => {
                let length = length(|c| c.is_ascii_digit());
                let number = rest[..length].parse().expect("the macros write numbers of 64 bits");
                (TokenTree::Literal(Literal::u64_unsuffixed(number)), length)
            }
            _ if c.is_alphanumeric() || c == '_' => {
                let length = length(|c| c.is_alphanumeric() || c == '_');
                let word = &rest[..length];
                *rest = &rest[length..];
                match names.iter().find(|n| n.0 == word) {
                    Some((_, known)) => code.push((*known).clone()),
                    None if word == "LIB" => code.0.push(Tree::Library),
                    None => code.0.push(Tree::Token(TokenTree::Ident(Ident::new(word, here)))),
                }
                continue;
            }
            _ => {
                let joint = c == '\'' || rest[1..].starts_with(['>', ':', '<', '=']);
                let spacing = if joint { Spacing::Joint } else { Spacing::Alone };
                (TokenTree::Punct(Punct::new(c, spacing)), 1)
            }
        };
        *rest = &rest[length..];
        code.0.push(Tree::Token(token));
    }
}
/// Reads a string at the beginning of `text`. Returns its literal, and its length in the text.
fn string(text: &str) -> (Literal, usize) {
    let mut escaped = false;
    let end = text[1..].find(|c| match (escaped, c) {
        (false, '"') => true,
        (before, c) => {
            escaped = !before && c == '\\';
            false
        }
    });
    let inner = &text[1..1 + end.expect("the macros end strings")];
    let literal = if inner.contains('\\') {
        Literal::from_str(&text[..inner.len() + 2]).expect("Rust's own escapes")
    } else {
        Literal::string(inner)
    };
    (literal, inner.len() + 2)
}
