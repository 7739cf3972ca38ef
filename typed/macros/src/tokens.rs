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
    tokens: Peekable<proc_macro::token_stream::IntoIter>,
    last: Span,
}
impl Input {
    pub(crate) fn new(tokens: TokenStream, last: Span) -> Input {
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
        (Input::new(part.into_iter().collect(), last), found)
    }
    pub(crate) fn rest(&mut self) -> TokenStream {
        std::iter::from_fn(|| self.next()).collect()
    }
}

/// Takes the library's path off, and runs `f`. An error becomes `compile_error!` at its token.
pub(crate) fn run(input: TokenStream, f: impl Fn(&mut Input) -> Result<TokenStream>) -> TokenStream {
    let mut tokens = flat(input).into_iter();
    let Some(TokenTree::Group(library)) = tokens.next() else {
        return error(Fail(Span::call_site(), "call it as `atmesh::typed` exports it".into()));
    };
    match f(&mut Input::new(tokens.collect(), Span::call_site())) {
        Ok(made) => finish(made, &library.stream()),
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
/// Unwraps the invisible groups that contain `macro_rules!` captures (`$n:literal`).
fn flat(tokens: TokenStream) -> TokenStream {
    let one = |t: TokenTree| -> TokenStream {
        match t {
            TokenTree::Group(g) if g.delimiter() == Delimiter::None => flat(g.stream()),
            TokenTree::Group(g) => group(g.delimiter(), flat(g.stream()), g.span()),
            t => t.into(),
        }
    };
    tokens.into_iter().flat_map(one).collect()
}
/// Replaces `LIB` by the library's path.
fn finish(tokens: TokenStream, library: &TokenStream) -> TokenStream {
    let one = |t: TokenTree| -> TokenStream {
        match t {
            TokenTree::Ident(i) if i.to_string() == "LIB" => library.clone(),
            TokenTree::Group(g) => group(g.delimiter(), finish(g.stream(), library), g.span()),
            t => t.into(),
        }
    };
    tokens.into_iter().flat_map(one).collect()
}

pub(crate) fn group(delimiter: Delimiter, tokens: TokenStream, span: Span) -> TokenStream {
    let mut group = Group::new(delimiter, tokens);
    group.set_span(span);
    TokenTree::Group(group).into()
}
pub(crate) fn tuple(tokens: TokenStream) -> TokenStream {
    group(Delimiter::Parenthesis, tokens, Span::call_site())
}
/// Parses code that names the library as `LIB`.
pub(crate) fn code(text: &str) -> TokenStream {
    TokenStream::from_str(text).expect("the macros write well-formed code")
}
/// Parses code in which each word of `names` is replaced by the given identifier, with its span.
pub(crate) fn code_with(text: &str, names: &[(&str, &Ident)]) -> TokenStream {
    fn put(tokens: TokenStream, names: &[(&str, &Ident)]) -> TokenStream {
        let one = |t: TokenTree| -> TokenTree {
            match t {
                TokenTree::Ident(i) => {
                    let word = i.to_string();
                    let known = names.iter().find(|n| n.0 == word);
                    TokenTree::Ident(known.map_or(i, |n| n.1.clone()))
                }
                TokenTree::Group(g) => {
                    let mut made = Group::new(g.delimiter(), put(g.stream(), names));
                    made.set_span(g.span());
                    TokenTree::Group(made)
                }
                t => t,
            }
        };
        tokens.into_iter().map(one).collect()
    }
    put(code(text), names)
}
