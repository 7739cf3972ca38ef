//! Reading text from the front: what comes next, or the fault that something else was expected.

use super::Fault;

/// A place in a text.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    blanks: bool,
    refuse: fn(&Cursor<'a>, &str) -> Fault,
}

impl<'a> Cursor<'a> {
    /// The beginning of a text. `blanks`: those before what is next are passed over. `refuse` makes the fault that something was expected
    /// at a place.
    pub(crate) fn new(text: &'a str, blanks: bool, refuse: fn(&Cursor<'a>, &str) -> Fault) -> Cursor<'a> {
        Cursor { text, at: 0, blanks, refuse }
    }
    /// The whole text.
    pub(crate) fn text(&self) -> &'a str {
        self.text
    }
    /// What comes after this place.
    pub(crate) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }
    /// How many bytes come before this place.
    pub(crate) fn bytes(&self) -> usize {
        self.at
    }
    /// How many characters come before this place.
    pub(crate) fn chars(&self) -> usize {
        self.text[..self.at].chars().count()
    }
    /// The fault that something is expected here.
    pub(crate) fn expected(&self, what: &str) -> Fault {
        (self.refuse)(self, what)
    }
    fn pass_blanks(&mut self) {
        if self.blanks {
            self.at += self.rest().len() - self.rest().trim_start().len();
        }
    }
    /// Whether this comes next; then it is passed.
    pub(crate) fn eat(&mut self, token: &str) -> bool {
        self.pass_blanks();
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }
    /// Passes what has to come next.
    pub(crate) fn need(&mut self, token: &str) -> Result<(), Fault> {
        if self.eat(token) { Ok(()) } else { Err(self.expected(&format!("`{token}`"))) }
    }
    /// Passes the characters from here that are such.
    pub(crate) fn take(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let word = &rest[..rest.find(|c| !keep(c)).unwrap_or(rest.len())];
        self.at += word.len();
        word
    }
    /// Passes everything up to `end`, and that; `None`, and stays, where it does not come.
    pub(crate) fn until(&mut self, end: &str) -> Option<&'a str> {
        let (word, _) = self.rest().split_once(end)?;
        self.at += word.len() + end.len();
        Some(word)
    }
    /// Refuses what comes after the end.
    pub(crate) fn end(&self) -> Result<(), Fault> {
        let rest = if self.blanks { self.rest().trim() } else { self.rest() };
        if rest.is_empty() { Ok(()) } else { Err(self.expected("the end")) }
    }
}
