//! What is wrong with a program, as the page shows it: a text, and helps of which those that are source can be applied.

use atmesh::Error;
use serde_json::{Value, json};

/// The program cannot be typed: what is wrong, where, and what to write instead.
#[derive(Clone, Debug)]
pub(crate) struct Refusal(Box<Parts>);

#[derive(Clone, Debug)]
struct Parts {
    field: &'static str,
    kind: String,
    title: String,
    /// What stands beneath: types of operands, with marks.
    beneath: String,
    /// The part of the program that is underlined.
    span: Option<(usize, usize)>,
    helps: Vec<(String, Option<String>)>,
}

impl Refusal {
    /// One of the playground's own language.
    pub(crate) fn syntax(title: impl Into<String>) -> Refusal {
        Refusal::new("syntax", title.into(), String::new())
    }
    fn new(kind: &str, title: String, beneath: String) -> Refusal {
        let kind = kind.into();
        Refusal(Box::new(Parts { field: "program", kind, title, beneath, span: None, helps: Vec::new() }))
    }
    /// One of the crate's, without its helps, which [`crate::mend`] adds.
    pub(crate) fn of(error: &Error) -> Refusal {
        let Some(d) = error.diagnostics().first() else { return Refusal::syntax("an error without words") };
        let title =
            if d.op.is_empty() { d.fault.message.clone() } else { format!("{}: {}", d.op, d.fault.message) };
        let mut bare = d.clone();
        (bare.place, bare.fault.help, bare.fault.choices) = (None, Vec::new(), Vec::new());
        bare.related.clear();
        // the crate's own lines below the title: the operands and their marks
        let text = Error::from(bare).to_string();
        let beneath: Vec<&str> = text.lines().skip(1).skip_while(|l| l.trim() == "|").collect();
        Refusal::new(d.fault.kind.name(), title, beneath.join("\n"))
    }
    /// The field of the page in which it is: `mesh`, `operands`, `program`, `target`.
    pub(crate) fn field(&self) -> &'static str {
        self.0.field
    }
    /// The same, in this field.
    pub(crate) fn within(mut self, field: &'static str) -> Refusal {
        self.0.field = field;
        self
    }
    /// The same, about these bytes of the program, if it is not about others already.
    pub(crate) fn at(mut self, from: usize, to: usize) -> Refusal {
        self.0.span.get_or_insert((from, to));
        self
    }
    /// The same, with one more help; `source` is what the field holds once it is applied.
    pub(crate) fn help(mut self, text: impl Into<String>, source: Option<String>) -> Refusal {
        self.0.helps.push((text.into(), source));
        self
    }
    /// As the page reads it. `text`: what the field holds.
    pub(crate) fn json(&self, text: &str) -> Value {
        let helps: Vec<_> =
            self.0.helps.iter().map(|(help, source)| json!({ "text": help, "source": source })).collect();
        json!({ "field": self.0.field, "text": self.told(text), "helps": helps })
    }
    /// The title, the line at fault underlined, the operands.
    fn told(&self, text: &str) -> String {
        let mut told = format!("error[{}]: {}\n", self.0.kind, self.0.title);
        let inside = |at: usize| at <= text.len() && text.is_char_boundary(at);
        if let Some((from, to)) = self.0.span.filter(|s| inside(s.0) && inside(s.1)) {
            let start = text[..from].rfind('\n').map_or(0, |n| n + 1);
            let end = text[from..].find('\n').map_or(text.len(), |n| from + n);
            let marks = text[from..to.clamp(from, end)].chars().count().max(1);
            let (blanks, marks) = (" ".repeat(text[start..from].chars().count()), "^".repeat(marks));
            told += &format!(" |\n | {}\n | {blanks}{marks}\n", &text[start..end]);
        }
        if !self.0.beneath.is_empty() {
            told += &format!(" |\n{}\n", self.0.beneath);
        }
        told
    }
}
