//! How values show themselves in a Jupyter notebook.
//!
//! The Rust kernel [`evcxr`](https://github.com/evcxr/evcxr) shows the last expression of a cell by
//! calling its method `evcxr_display`, which prints the value in one or more MIME types.
//! [`NotebookDisplay`] has this method, and the prelude imports it: arrays, trees of arrays, types,
//! meshes, shardings, reports, plans, pictures, charts and errors show themselves. `notebooks/` of
//! the repository has notebooks to start from.
//!
//! ```
//! use atmesh::prelude::*;
//! let mesh = Mesh::new([("X", 2)])?;
//! let shown = mesh.mime_bundle();
//! assert_eq!(shown.get("text/plain"), Some("Mesh(X: 2)"));
//! # Ok::<(), atmesh::Error>(())
//! ```

mod html;
mod values;

use std::fmt;
use std::io::Write;

/// A value that shows itself in a notebook.
///
/// An [`Array`](crate::Array) shows its type, its elements (long ones abbreviated) and, if it is
/// sharded, a picture to unfold of the devices that hold each block; an array with an error shows
/// the error. A tree shows its arrays; a program, a report or a plan shows its text or its table,
/// and a picture or a chart shows its SVG image.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 2)])?;
/// let x = Array::arange(0..4).put(&mesh, p!["X"]);
/// let shown = x.mime_bundle();
/// assert_eq!(shown.get("text/plain"), Some("int32[4@X]\n[0 1 2 3]"));
/// assert!(shown.get("text/html").is_some_and(|html| html.contains("<svg")));
/// x.evcxr_display(); // the kernel calls this if the last line of a cell is `x`
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// Implement it for a type of yours to show more than its `Debug` form:
///
/// ```
/// use atmesh::notebook::MimeBundle;
/// use atmesh::prelude::*;
/// struct Loss(f32);
/// impl NotebookDisplay for Loss {
///     fn mime_bundle(&self) -> MimeBundle {
///         let text = format!("loss: {:.3}", self.0);
///         let html = format!("<b>{text}</b>");
///         MimeBundle::new(text).with("text/html", html)
///     }
/// }
/// assert_eq!(Loss(0.25).mime_bundle().get("text/html"), Some("<b>loss: 0.250</b>"));
/// ```
#[doc(alias("jupyter", "evcxr", "_repr_html_", "_repr_mimebundle_"))]
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not show itself in a notebook",
    note = "end the cell with `println!` of the value, or implement `NotebookDisplay` for its type"
)]
pub trait NotebookDisplay {
    /// Returns the forms of the value. A notebook shows the richest one that it can.
    fn mime_bundle(&self) -> MimeBundle;
    /// Prints the forms of the value to stdout as the kernel `evcxr` reads them.
    ///
    /// Write errors are ignored.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// // the kernel calls this method if the last line of a cell is the value
    /// Array::ones([2]).evcxr_display();
    /// ```
    fn evcxr_display(&self) {
        // one write, so that no other thread prints in between
        let _ = std::io::stdout().lock().write_all(self.mime_bundle().to_string().as_bytes());
    }
}

/// The forms of a value in several MIME types, such as `text/plain` and `text/html`.
///
/// It prints in the display protocol of the kernel `evcxr`:
///
/// ```
/// use atmesh::notebook::MimeBundle;
/// let bundle = MimeBundle::new("1 < 2").with("text/html", "<b>1 &lt; 2</b>");
/// let expected = "\
/// EVCXR_BEGIN_CONTENT text/plain
/// 1 < 2
/// EVCXR_END_CONTENT
/// EVCXR_BEGIN_CONTENT text/html
/// <b>1 &lt; 2</b>
/// EVCXR_END_CONTENT
/// ";
/// assert_eq!(bundle.to_string(), expected);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MimeBundle {
    forms: Vec<(&'static str, String)>,
}

/// The MIME types of the forms.
const TEXT: &str = "text/plain";
const HTML: &str = "text/html";
const SVG: &str = "image/svg+xml";

impl MimeBundle {
    /// Creates a bundle with one form: plain text. An empty bundle is `MimeBundle::default()`.
    ///
    /// ```
    /// use atmesh::notebook::MimeBundle;
    /// assert_eq!(MimeBundle::new("done\n").get("text/plain"), Some("done"));
    /// ```
    pub fn new(text: impl Into<String>) -> MimeBundle {
        MimeBundle::default().with(TEXT, text)
    }
    /// Adds a form, or replaces the one of this type. Blanks at the end are removed.
    ///
    /// ```
    /// use atmesh::notebook::MimeBundle;
    /// let bundle = MimeBundle::new("a dot").with("image/svg+xml", "<svg/>");
    /// assert_eq!(bundle.get("image/svg+xml"), Some("<svg/>"));
    /// ```
    #[must_use]
    pub fn with(mut self, mime_type: &'static str, content: impl Into<String>) -> MimeBundle {
        let content = content.into().trim_end().to_string();
        self.forms.retain(|(other, _)| *other != mime_type);
        self.forms.push((mime_type, content));
        self
    }
    /// Returns the form of a MIME type.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let bundle = Array::from(1.5f32).mime_bundle();
    /// assert_eq!(bundle.get("text/plain"), Some("float32[]\n1.5"));
    /// assert_eq!(bundle.get("image/png"), None);
    /// ```
    pub fn get(&self, mime_type: &str) -> Option<&str> {
        self.forms.iter().find(|(other, _)| *other == mime_type).map(|(_, content)| content.as_str())
    }
}

/// The line that ends a form.
const END: &str = "EVCXR_END_CONTENT";

/// Prints each form between two lines of the display protocol of `evcxr`.
impl fmt::Display for MimeBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (mime_type, content) in &self.forms {
            writeln!(f, "EVCXR_BEGIN_CONTENT {mime_type}")?;
            for line in content.lines() {
                // a line of the content must not end the form
                let indent = if line == END { " " } else { "" };
                writeln!(f, "{indent}{line}")?;
            }
            writeln!(f, "{END}")?;
        }
        Ok(())
    }
}
