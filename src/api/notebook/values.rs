//! The forms of each kind of value.

use super::{HTML, MimeBundle, NotebookDisplay, SVG, html};
use crate::api::array::{Array, Shard};
use crate::api::display::{LineChart, MovementDiagram, Picture};
use crate::api::transform::{Explanation, Lowered, StableHlo, Traced};
use crate::api::tree::{Path, Summary, Tree, TypeOf, summary};
#[cfg(feature = "typed")]
use crate::api::typed::MeshOf;
use crate::core::{ArrayType, Axes, Axis, DType, Error, Mesh, Result, Shape, Sharding, Spec};
use crate::exec::engine::ExecutionReport;
use crate::ir::program::Program;
use crate::partition::plan::{Comparison, Plan, Sweep, Timeline};
use crate::partition::{Collectives, Memory, SpmdProgram};
use std::fmt;

/// The maximum number of devices of a mesh that is drawn.
const MAX_DRAWN_DEVICES: usize = 64;
/// The maximum number of arrays of a tree that show their elements.
const MAX_SHOWN_LEAVES: usize = 8;
/// The longer side of a picture of blocks, in pixels.
const SIDE_PX: f64 = 260.0;

/// Values that show the text that they print.
macro_rules! shown_as_text {
    ($([$($of:tt)*] $Type:ty),* $(,)?) => {$(
        impl<$($of)*> NotebookDisplay for $Type {
            fn mime_bundle(&self) -> MimeBundle {
                let text = self.to_string();
                let html = html::preformatted(&text);
                MimeBundle::new(text).with(HTML, html)
            }
        }
    )*};
}
shown_as_text! {
    [] Axis, [] Axes, [] Spec, [] DType, [] Shape, [] TypeOf, [] Program, [] SpmdProgram,
    [I, O] Traced<I, O>, [I, O] Lowered<I, O>, [] StableHlo, [] Explanation, [] Memory, [] Plan,
    [] Timeline, [] Comparison, [C: fmt::Debug] Sweep<C>, [] ExecutionReport,
}

/// Returns the picture of a value on several devices, folded.
fn folded_picture(mesh: &Mesh, picture: &Picture) -> String {
    match mesh.size() {
        devices @ 2..=MAX_DRAWN_DEVICES => {
            html::folded(&format!("on {devices} devices"), &picture.to_svg_sized(SIDE_PX))
        }
        _ => String::new(),
    }
}

fn error_bundle(error: &Error) -> MimeBundle {
    let text = error.to_string();
    let html = html::error(&text);
    MimeBundle::new(text).with(HTML, html)
}

impl NotebookDisplay for Error {
    fn mime_bundle(&self) -> MimeBundle {
        error_bundle(self)
    }
}

impl<T: NotebookDisplay> NotebookDisplay for Result<T> {
    fn mime_bundle(&self) -> MimeBundle {
        self.as_ref().map_or_else(error_bundle, T::mime_bundle)
    }
}

/// Returns the forms of an array; `name` precedes its type.
fn array_bundle(name: &str, a: &Array) -> MimeBundle {
    let ty = match a.ty() {
        Ok(ty) => ty,
        Err(error) => return error_bundle(&error),
    };
    let (head, values) = (format!("{name}{ty}"), a.to_string());
    let picture = ty.mesh.as_ref().map(|mesh| folded_picture(mesh, &a.visualize()));
    let html = html::caption(&head) + &html::preformatted(&values) + &picture.unwrap_or_default();
    MimeBundle::new(format!("{head}\n{values}")).with(HTML, html)
}

/// Returns the forms of several values, one below the other.
fn stacked(bundles: impl IntoIterator<Item = MimeBundle>) -> MimeBundle {
    let (mut text, mut html) = (String::new(), String::new());
    for bundle in bundles {
        text += &format!("{}\n", bundle.get(super::TEXT).unwrap_or_default());
        html += &format!("{}\n", bundle.get(HTML).unwrap_or_default());
    }
    MimeBundle::new(text).with(HTML, html)
}

/// A tree shows the path, the type and the elements of each array, or a table of its arrays if
/// there are many. A tree without arrays shows nothing.
impl<T: Tree> NotebookDisplay for T {
    fn mime_bundle(&self) -> MimeBundle {
        let mut leaves: Vec<(String, &Array)> = Vec::new();
        self.visit(&mut Path::named(), &mut |path, a| leaves.push((path.to_string(), a)));
        let name = |path: &str| if path.is_empty() { String::new() } else { format!("{path}: ") };
        match &leaves[..] {
            [] => MimeBundle::default(),
            [(path, a)] => array_bundle(&name(path), a),
            some if some.len() <= MAX_SHOWN_LEAVES => {
                stacked(some.iter().map(|(path, a)| array_bundle(&name(path), a)))
            }
            many => summary(many.iter().map(|(_, a)| (*a).clone()).collect::<Vec<_>>())
                .map(|mut table| {
                    table.rows.iter_mut().zip(many).for_each(|(row, (path, _))| row.path = path.clone());
                    table
                })
                .mime_bundle(),
        }
    }
}

impl NotebookDisplay for Summary {
    fn mime_bundle(&self) -> MimeBundle {
        MimeBundle::new(self.to_string()).with(HTML, html::table(&self.lines(), Summary::is_number))
    }
}

impl NotebookDisplay for Collectives {
    fn mime_bundle(&self) -> MimeBundle {
        let (rows, is_number) = self.cells();
        let mut html = String::new();
        if !self.is_empty() {
            html = html::table(&rows, |column| is_number[column]);
        }
        html += &html::caption(&self.summary_line());
        MimeBundle::new(self.to_string()).with(HTML, html)
    }
}

impl NotebookDisplay for ArrayType {
    fn mime_bundle(&self) -> MimeBundle {
        let text = self.to_string();
        let picture = self.mesh.as_ref().map(|mesh| folded_picture(mesh, &Picture::from_type(self)));
        let html = html::caption(&text) + &picture.unwrap_or_default();
        MimeBundle::new(text).with(HTML, html)
    }
}

/// A sharding shows which devices hold each block of an array.
impl NotebookDisplay for Sharding {
    fn mime_bundle(&self) -> MimeBundle {
        let blocks = |axes: &Axes| axes.iter().map(|a| self.mesh.extent(a)).product();
        let shape: Vec<usize> = self.spec.dims().iter().map(blocks).collect();
        let text = self.to_string();
        let html = html::caption(&text) + &folded_picture(&self.mesh, &Picture::new(shape, self));
        MimeBundle::new(text).with(HTML, html)
    }
}

/// A mesh shows the position of each device.
impl NotebookDisplay for Mesh {
    fn mime_bundle(&self) -> MimeBundle {
        let text = self.to_string();
        let axes = self.axis_names();
        let shape: Vec<usize> = axes.iter().map(|a| self.extent(*a)).collect();
        let spec = Spec::from_dims(axes.iter().map(|a| Axes::from(*a)).collect());
        let picture = Picture::new(shape, &Sharding { mesh: self.clone(), spec });
        let mut html = html::caption(&text);
        if (2..=MAX_DRAWN_DEVICES).contains(&self.size()) {
            html += &picture.to_svg_sized(SIDE_PX);
        }
        MimeBundle::new(text).with(HTML, html)
    }
}

#[cfg(feature = "typed")]
impl<M> NotebookDisplay for MeshOf<M> {
    fn mime_bundle(&self) -> MimeBundle {
        (**self).mime_bundle()
    }
}

/// The shards of an array show the block of each device.
impl NotebookDisplay for Vec<Shard> {
    fn mime_bundle(&self) -> MimeBundle {
        let index = |shard: &Shard| {
            let ranges: Vec<String> = shard.index.iter().map(|r| format!("{}:{}", r.start, r.end)).collect();
            format!("{} [{}]: ", shard.device, ranges.join(", "))
        };
        stacked(self.iter().map(|shard| array_bundle(&index(shard), &shard.data)))
    }
}

/// Without blocks (of a value with an error, or on too many devices), a picture shows its notes.
impl NotebookDisplay for Picture {
    fn mime_bundle(&self) -> MimeBundle {
        let text = self.to_string();
        if self.has_blocks() {
            return MimeBundle::new(text).with(SVG, self.to_svg_sized(SIDE_PX));
        }
        let html = html::preformatted(&text);
        MimeBundle::new(text).with(HTML, html)
    }
}

impl NotebookDisplay for MovementDiagram {
    fn mime_bundle(&self) -> MimeBundle {
        MimeBundle::new(self.to_string()).with(SVG, self.to_svg("data movement"))
    }
}

impl NotebookDisplay for LineChart {
    fn mime_bundle(&self) -> MimeBundle {
        MimeBundle::new(self.to_string()).with(SVG, self.to_svg())
    }
}
