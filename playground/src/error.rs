//! Errors of a program, as the page shows them: a text, and helps, some of which can be applied.

use atmesh::Error;
use serde_json::{Value, json};

/// An error of a program: a title, its position in the text, and helps.
#[derive(Clone, Debug)]
pub(crate) struct ErrorResponse(Box<Parts>);

#[derive(Clone, Debug)]
struct Parts {
    field: &'static str,
    kind: String,
    title: String,
    /// The lines under the title: the types of the operands, with marks.
    beneath: String,
    /// The part of the program that is underlined, in bytes.
    span: Option<(usize, usize)>,
    helps: Vec<(String, Option<String>)>,
    missing: bool,
}

/// Writes an error of the playground's syntax whose title is formatted.
macro_rules! syntax_error {
    ($($title:tt)+) => { $crate::error::ErrorResponse::syntax(format!($($title)+)) };
}

impl ErrorResponse {
    /// Returns an error of the playground's own syntax.
    pub(crate) fn syntax(title: impl Into<String>) -> ErrorResponse {
        ErrorResponse::new("syntax", title.into(), String::new())
    }
    /// Returns an error for what the playground does not run.
    pub(crate) fn refused(title: impl Into<String>) -> ErrorResponse {
        ErrorResponse::new("refused", title.into(), String::new())
    }
    /// Returns an error for a name that the playground does not know.
    pub(crate) fn unknown(title: impl Into<String>) -> ErrorResponse {
        ErrorResponse::new("unknown", title.into(), String::new())
    }
    /// Marks the error as that of a name that the program does not define.
    pub(crate) fn missing(mut self) -> ErrorResponse {
        self.0.missing = true;
        self
    }
    /// Returns true if the program does not define a name.
    pub(crate) fn is_missing(&self) -> bool {
        self.0.missing
    }
    /// Returns the first sentence.
    pub(crate) fn title(&self) -> String {
        self.0.title.clone()
    }
    fn new(kind: &str, title: String, beneath: String) -> ErrorResponse {
        let kind = kind.into();
        ErrorResponse(Box::new(Parts {
            field: "program",
            kind,
            title,
            beneath,
            span: None,
            helps: Vec::new(),
            missing: false,
        }))
    }
    /// Converts an error of the crate, without its helps, which are added separately.
    pub(crate) fn from_error(error: &Error) -> ErrorResponse {
        let Some(d) = error.diagnostics().first() else {
            return ErrorResponse::syntax("an error without words");
        };
        let title =
            if d.op.is_empty() { d.fault.message.clone() } else { format!("{}: {}", d.op, d.fault.message) };
        let mut bare = d.clone();
        (bare.location, bare.fault.help, bare.fault.out_shardings) = (None, Vec::new(), Vec::new());
        bare.related.clear();
        // the lines that the crate prints below the title: the operands and their marks
        let text = Error::from(bare).to_string();
        let beneath: Vec<&str> = text.lines().skip(1).skip_while(|l| l.trim() == "|").collect();
        ErrorResponse::new(d.fault.kind.name(), title, beneath.join("\n"))
    }
    /// Returns the field of the page with the error: `mesh`, `operands`, `program` or `target`.
    pub(crate) fn field(&self) -> &'static str {
        self.0.field
    }
    /// Sets the field of the page with the error.
    pub(crate) fn within(mut self, field: &'static str) -> ErrorResponse {
        self.0.field = field;
        self
    }
    /// Sets the position of the error in the program, in bytes, unless it has one.
    pub(crate) fn at(mut self, from: usize, to: usize) -> ErrorResponse {
        self.0.span.get_or_insert((from, to));
        self
    }
    /// Adds a help; `source` is the text of the field after applying it, if that is possible.
    pub(crate) fn help(mut self, text: impl Into<String>, source: Option<String>) -> ErrorResponse {
        self.0.helps.push((text.into(), source));
        self
    }
    /// Returns the error as JSON for the page; `text` is the text of the field.
    pub(crate) fn json(&self, text: &str) -> Value {
        let helps: Vec<_> =
            self.0.helps.iter().map(|(help, source)| json!({ "text": help, "source": source })).collect();
        json!({ "field": self.0.field, "text": self.text_for(text), "helps": helps })
    }
    /// Returns the text of an error of the crate with the location and the line of this program.
    pub(crate) fn as_printed(&self, printed: &str, text: &str) -> String {
        let Some((from, _)) = self.0.span.filter(|s| s.0 <= s.1 && s.1 <= text.len()) else {
            return crate::lines::located(printed);
        };
        let start = text[..from].rfind('\n').map_or(0, |n| n + 1);
        let end = text[from..].find('\n').map_or(text.len(), |n| from + n);
        let line = text[..from].matches('\n').count() + 1;
        let column = text[start..from].chars().count();
        let marks = text[from..self.0.span.map_or(from, |s| s.1).clamp(from, end)].chars().count().max(1);
        let pad = " ".repeat(line.to_string().len());
        let head = printed.lines().take_while(|l| !l.trim_start().starts_with("-->"));
        let head: Vec<&str> = head.take_while(|l| !l.trim_start().starts_with("= ")).collect();
        let mut out = head.join("\n");
        out += &format!("\n{pad} --> main.rs:{line}:{}\n{pad} |\n", column + 1);
        out +=
            &format!("{line} | {}\n{pad} | {}{}", &text[start..end], " ".repeat(column), "^".repeat(marks));
        let rest: Vec<&str> = printed.lines().skip_while(|l| !l.trim_start().starts_with("= ")).collect();
        if !rest.is_empty() {
            let rest = rest.iter().map(|l| match l.trim_start().starts_with("= ") {
                true => format!("{pad} {}", l.trim_start()),
                false => l.to_string(),
            });
            out += &format!("\n{pad} |\n{}", rest.collect::<Vec<_>>().join("\n"));
        }
        crate::lines::located(&out)
    }
    /// Formats the title, the source line with the error underlined, and the operands.
    fn text_for(&self, text: &str) -> String {
        let mut out = format!("error[{}]: {}\n", self.0.kind, self.0.title);
        let inside = |at: usize| at <= text.len() && text.is_char_boundary(at);
        if let Some((from, to)) = self.0.span.filter(|s| inside(s.0) && inside(s.1)) {
            let start = text[..from].rfind('\n').map_or(0, |n| n + 1);
            let end = text[from..].find('\n').map_or(text.len(), |n| from + n);
            let marks = text[from..to.clamp(from, end)].chars().count().max(1);
            let (blanks, marks) = (" ".repeat(text[start..from].chars().count()), "^".repeat(marks));
            out += &format!(" |\n | {}\n | {blanks}{marks}\n", &text[start..end]);
        }
        if !self.0.beneath.is_empty() {
            out += &format!(" |\n{}\n", self.0.beneath);
        }
        out
    }
}
