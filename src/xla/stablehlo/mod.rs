//! Writes programs as StableHLO modules with Shardy shardings, for XLA on CPUs, GPUs and TPUs.
//!
//! A primitive is written through its loop nests: an access becomes slices, pads and
//! concatenations; scalar code becomes elementwise operations; reductions and contractions become
//! `reduce` and `dot_general`. No code here depends on a particular primitive, so a new primitive
//! needs no changes in this folder. A primitive may return a
//! [`NamedOp`](crate::ir::program::NamedOp), such as a sort, which is then written as a more
//! specific StableHLO operation.
//!
//! Arguments, results and requested shardings are annotated, and so is every value over explicit
//! axes ([`Annotate`] selects this). XLA receives the shardings of the types and decides the rest.
//!
//! ```
//! use atmesh::prelude::*;
//! let text = jit(|x: &Array| x.sin()).trace(F32.array_type([4]))?.to_stablehlo()?.to_string();
//! assert!(text.contains("stablehlo.sine"));
//! # Ok::<(), atmesh::Error>(())
//! ```

mod access;
mod code;
mod control;
mod equations;
mod gather_scatter;
mod loop_nests;
mod manual;
mod named_ops;
mod narrow;
mod ragged_dot;
mod rounding;
mod shardings;
mod syntax;
mod unused;
mod writer;

pub use shardings::Annotate;
#[cfg(feature = "xla")]
pub(crate) use syntax::tensor;

use crate::core::{ArrayType, DType, Error, ErrorKind, Fault, Result, Scalar};
use crate::ir::program::{Input, Placement, Program};
use shardings::{UnevenPolicy, mesh_name};
use std::fmt::Write;
#[cfg(not(feature = "xla"))]
use syntax::tensor;
use syntax::{list, quoted};
use writer::{Ssa, Writer};

/// The result of writing one operation.
type FaultResult<T> = std::result::Result<T, Fault>;

fn unsupported(what: impl Into<String>) -> Fault {
    Fault::new(ErrorKind::Unsupported, what)
}

/// Options for writing a program as StableHLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Options {
    /// The values that get sharding annotations. Defaults to [`Annotate::Explicit`].
    pub shardings: Annotate,
    /// True if operations carry the user's source locations. Defaults to `false`.
    pub locations: bool,
}

impl Options {
    setters! {
        /// Sets which values get sharding annotations.
        pub fn shardings(shardings: Annotate) = shardings: shardings;
        /// Sets whether operations carry the user's source locations.
        pub fn locations(locations: bool) = locations: locations;
    }
}

/// A StableHLO module, and the shardings of its arguments and results.
pub(crate) struct StableHloModule {
    /// The text of the module.
    pub(crate) text: String,
    /// The Shardy sharding of each argument and result in the text; `None` without a mesh.
    pub(crate) arguments: Vec<Option<String>>,
    pub(crate) results: Vec<Option<String>>,
}

/// The way in which an input of the program enters the module.
pub(crate) enum ModuleInput {
    /// An argument of the module.
    Argument {
        /// True if the module may overwrite the argument's memory.
        donated: bool,
    },
    /// A constant with these elements.
    Constant(Vec<Scalar>),
}

/// Returns the type of a value at the boundary of the module: a PRNG key is a pair of 32-bit words.
pub(crate) fn boundary_type(ty: &ArrayType) -> String {
    match ty.dtype {
        DType::Key => tensor(DType::U32, &[&ty.shape[..], &[2]].concat()),
        d => tensor(d, &ty.shape),
    }
}

/// Writes a program whose values all have placements.
/// `given` says how each input of the program enters the module.
pub(crate) fn write(program: &Program, given: &[ModuleInput], options: Options) -> Result<StableHloModule> {
    let mut w = Writer::new(options);
    let (mut heads, mut arguments, mut inputs) = (Vec::new(), Vec::new(), Vec::new());
    for (v, given) in program.inputs.iter().zip(given) {
        let info = &program.vars[v.index()];
        let ModuleInput::Argument { donated } = given else {
            inputs.push(Ssa::named(String::new(), &info.ty));
            continue;
        };
        let at =
            boundary_sharding(&mut w, program, &info.ty, info.placement.as_ref(), heads.len(), "argument")?;
        let mut attributes = Vec::new();
        attributes.extend(donated.then(|| "jax.buffer_donor = true".to_string()));
        attributes.extend(at.iter().map(|at| format!("sdy.sharding = #sdy.sharding{at}")));
        let attributes =
            if attributes.is_empty() { String::new() } else { format!(" {{{}}}", attributes.join(", ")) };
        let name = format!("%arg{}", heads.len());
        heads.push(format!("{name}: {}{attributes}", boundary_type(&info.ty)));
        arguments.push(at);
        inputs.push(Ssa::named(name, &info.ty));
    }
    for (k, given) in given.iter().enumerate() {
        let ty = program.ty(program.inputs[k]);
        match given {
            ModuleInput::Constant(values) => inputs[k] = w.dense(ty.dtype.storage(), values, &ty.shape),
            ModuleInput::Argument { .. } if ty.dtype == DType::Key => {
                inputs[k] = w.key_from_words(&inputs[k])
            }
            ModuleInput::Argument { .. } => {}
        }
    }
    let mut outs = w.body(program, &inputs)?;
    let (mut results, mut shown) = (Vec::new(), Vec::new());
    for (k, (out, x)) in program.outputs.iter().zip(&mut outs).enumerate() {
        let ty = program.input_type(out);
        let placement = match out {
            Input::Var(v) => program.vars[v.index()].placement.as_ref(),
            Input::Lit(_) => None,
        };
        let at = boundary_sharding(&mut w, program, &ty, placement, k, "result")?;
        if ty.dtype == DType::Key {
            *x = w.words_from_key(x);
        }
        let attributes =
            at.iter().map(|at| format!(" {{sdy.sharding = #sdy.sharding{at}}}")).collect::<String>();
        shown.push(format!("{}{attributes}", boundary_type(&ty)));
        results.push(at);
    }
    w.terminator("return", &outs);
    let mut text = String::from("module @atmesh {\n");
    for (k, mesh) in w.meshes.iter().enumerate() {
        let axes = mesh.axis_names().iter().zip(mesh.axis_sizes());
        let axes = axes.map(|(a, n)| format!("{}={n}", quoted(a.name())));
        let _ = writeln!(text, "  sdy.mesh @{} = <{}>", mesh_name(k), list(axes));
    }
    let _ = writeln!(text, "  func.func public @main({}) -> ({}) {{", heads.join(", "), shown.join(", "));
    text += &unused::without_unused(&w.out);
    text += "  }\n}\n";
    Ok(StableHloModule { text, arguments, results })
}

/// Returns the sharding of an argument or a result. Partial values are summed at the boundary.
fn boundary_sharding(
    w: &mut Writer,
    program: &Program,
    ty: &ArrayType,
    placement: Option<&Placement>,
    k: usize,
    what: &str,
) -> Result<Option<String>> {
    let Some(mesh) = ty.mesh.as_ref().or(program.mesh.as_ref()) else { return Ok(None) };
    let error = |fault| Error::new(fault, format!("to_stablehlo, {what} {k}"), vec![ty.to_string()], None);
    let mut at = placement.cloned().unwrap_or_default();
    at.partial.clear();
    let mut text = w.placement(mesh, &at, ty, UnevenPolicy::Reject).map_err(error)?;
    if ty.dtype == DType::Key {
        // the two words of a key are not sharded
        let end = text.rfind(']').unwrap_or(text.len());
        text.insert_str(end, if ty.rank() == 0 { "{}" } else { ", {}" });
    }
    Ok(Some(text))
}

impl Writer {
    /// Joins the two words of a key to its storage type, ui64.
    fn key_from_words(&mut self, x: &Ssa) -> Ssa {
        let shape = x.shape.clone();
        let pair: Vec<usize> = [&shape[..], &[2]].concat();
        let words = Ssa { dtype: DType::U32, shape: pair.clone(), ..x.clone() };
        let mut halves = Vec::new();
        for k in 0..2 {
            let mut bounds: Vec<[i64; 3]> = pair.iter().map(|n| [0, *n as i64, 1]).collect();
            bounds[shape.len()] = [k, k + 1, 1];
            let half = self.slice(&words, &bounds);
            halves.push(self.reshape(&half, &shape));
        }
        self.join_words(&halves[1], &halves[0])
    }
    /// Splits keys into their two words.
    fn words_from_key(&mut self, x: &Ssa) -> Ssa {
        let (high, low) = self.split_words(x);
        let mut shape = x.shape.clone();
        shape.push(1);
        let (high, low) = (self.reshape(&high, &shape), self.reshape(&low, &shape));
        self.concatenate(&[low, high], x.shape.len())
    }
}
