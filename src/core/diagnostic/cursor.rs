//! A cursor over text, for recursive-descent parsers.

use super::Fault;

/// A position in a text.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    /// The whole text.
    text: &'a str,
    /// The number of bytes before the position.
    position: usize,
    /// True if tokens may be preceded by white space.
    blanks: bool,
    /// Makes the fault for a position where something else was expected.
    make_fault: fn(&Cursor<'a>, &str) -> Fault,
}

impl<'a> Cursor<'a> {
    /// Creates a cursor at the start of a text.
    ///
    /// If `blanks` is true, tokens may be preceded by white space. `make_fault` makes the fault for
    /// a position where something else was expected.
    pub(crate) fn new(text: &'a str, blanks: bool, make_fault: fn(&Cursor<'a>, &str) -> Fault) -> Cursor<'a> {
        Cursor { text, position: 0, blanks, make_fault }
    }
    /// Returns the whole text.
    pub(crate) fn text(&self) -> &'a str {
        self.text
    }
    /// Returns the text after this position.
    pub(crate) fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }
    /// Returns the number of bytes before this position.
    pub(crate) fn bytes(&self) -> usize {
        self.position
    }
    /// Returns the number of characters before this position.
    pub(crate) fn chars(&self) -> usize {
        self.text[..self.position].chars().count()
    }
    /// Returns the fault that `what` was expected here.
    pub(crate) fn expected(&self, what: &str) -> Fault {
        (self.make_fault)(self, what)
    }
    fn skip_blanks(&mut self) {
        if self.blanks {
            self.position += self.rest().len() - self.rest().trim_start().len();
        }
    }
    /// Skips `token` if it comes next, and returns true if it did.
    pub(crate) fn eat(&mut self, token: &str) -> bool {
        self.skip_blanks();
        let found = self.rest().starts_with(token);
        self.position += if found { token.len() } else { 0 };
        found
    }
    /// Skips `token`, which must come next.
    pub(crate) fn expect(&mut self, token: &str) -> Result<(), Fault> {
        if self.eat(token) { Ok(()) } else { Err(self.expected(&format!("`{token}`"))) }
    }
    /// Takes and returns the following characters that satisfy `keep`.
    pub(crate) fn take(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let word = &rest[..rest.find(|c| !keep(c)).unwrap_or(rest.len())];
        self.position += word.len();
        word
    }
    /// Takes and returns the text up to `end`, and skips `end`.
    /// Returns `None` and does not move if `end` does not occur.
    pub(crate) fn until(&mut self, end: &str) -> Option<&'a str> {
        let (word, _) = self.rest().split_once(end)?;
        self.position += word.len() + end.len();
        Some(word)
    }
    /// Returns an error if text remains.
    pub(crate) fn end(&self) -> Result<(), Fault> {
        let rest = if self.blanks { self.rest().trim() } else { self.rest() };
        if rest.is_empty() { Ok(()) } else { Err(self.expected("the end")) }
    }
}
