//! Programs as StableHLO modules with Shardy's shardings, which XLA compiles for CPUs, GPUs and TPUs.
//!
//! What is written are a primitive's sentences: reads are slices, pads and concatenations, code is elementwise operations, folds and
//! products have words of their own. So no primitive is named here, and a new one can be written as it is. Those that StableHLO has a better
//! word for say so ([`Familiar`](crate::program::Familiar)).
//!
//! Arguments, results and what a program asks for carry their shardings, and so does every value on explicit axes ([`Shardings`]): XLA is
//! told what the types say, and decides the rest.

mod code;
mod control;
mod equations;
mod familiar;
mod manual;
mod reads;
mod seek;
mod sentences;
mod shardings;
mod text;
mod writer;

pub use shardings::Shardings;

use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::program::{Input, Placement, Program};
use crate::types::{ArrayType, DType, Scalar};
use shardings::{Uneven, mesh_name};
use std::fmt::Write;
use text::{list, quoted, tensor};
use writer::{Ssa, Writer};

/// What one operation makes.
type Out<T> = std::result::Result<T, Fault>;

fn unsupported(what: impl Into<String>) -> Fault {
    Fault::new(ErrorKind::Unsupported, what)
}

/// How a program is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Options {
    /// Which values say where they are.
    pub shardings: Shardings,
    /// Whether operations say which of the user's lines they are of.
    pub locations: bool,
}

impl Options {
    /// With these values saying where they are.
    pub fn shardings(self, shardings: Shardings) -> Options {
        Options { shardings, ..self }
    }
    /// With the user's lines, or without.
    pub fn locations(self, locations: bool) -> Options {
        Options { locations, ..self }
    }
}

/// A module, and where its arguments and results are.
pub(crate) struct Module {
    pub(crate) text: String,
    /// The sharding of each argument that there is, and of each result, as the module says it.
    pub(crate) arguments: Vec<Option<String>>,
    pub(crate) results: Vec<Option<String>>,
}

/// What becomes of an input of a program.
pub(crate) enum Given {
    /// An argument of the module; whether its memory may be written over.
    Argument {
        /// Whether.
        donated: bool,
    },
    /// These numbers.
    Constant(Vec<Scalar>),
}

/// How a type is at the boundary: keys are pairs of words.
pub(crate) fn outside(ty: &ArrayType) -> String {
    match ty.dtype {
        DType::Key => tensor(DType::U32, &[&ty.shape[..], &[2]].concat()),
        d => tensor(d, &ty.shape),
    }
}

/// Writes a program of which every value is placed. `given` says what becomes of each input.
pub(crate) fn write(program: &Program, given: &[Given], options: Options) -> Result<Module> {
    let mut w = Writer::new(options);
    let (mut heads, mut arguments, mut inputs) = (Vec::new(), Vec::new(), Vec::new());
    for (v, given) in program.inputs.iter().zip(given) {
        let info = &program.vars[v.index()];
        let Given::Argument { donated } = given else {
            inputs.push(Ssa::named(String::new(), &info.ty));
            continue;
        };
        let at = boundary(&mut w, program, &info.ty, info.placement.as_ref(), heads.len(), "argument")?;
        let mut said = Vec::new();
        said.extend(donated.then(|| "jax.buffer_donor = true".to_string()));
        said.extend(at.iter().map(|at| format!("sdy.sharding = #sdy.sharding{at}")));
        let said = if said.is_empty() { String::new() } else { format!(" {{{}}}", said.join(", ")) };
        let name = format!("%arg{}", heads.len());
        heads.push(format!("{name}: {}{said}", outside(&info.ty)));
        arguments.push(at);
        inputs.push(Ssa::named(name, &info.ty));
    }
    for (k, given) in given.iter().enumerate() {
        let ty = program.ty(program.inputs[k]);
        match given {
            Given::Constant(values) => inputs[k] = w.dense(ty.dtype.storage(), values, &ty.shape),
            Given::Argument { .. } if ty.dtype == DType::Key => inputs[k] = w.key(&inputs[k]),
            Given::Argument { .. } => {}
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
        let at = boundary(&mut w, program, &ty, placement, k, "result")?;
        if ty.dtype == DType::Key {
            *x = w.words(x);
        }
        let said = at.iter().map(|at| format!(" {{sdy.sharding = #sdy.sharding{at}}}")).collect::<String>();
        shown.push(format!("{}{said}", outside(&ty)));
        results.push(at);
    }
    w.ret("return", &outs);
    let mut text = String::from("module @atmesh {\n");
    for (k, mesh) in w.meshes.iter().enumerate() {
        let axes = mesh.axis_names().iter().zip(mesh.axis_sizes());
        let axes = axes.map(|(a, n)| format!("{}={n}", quoted(a.name())));
        let _ = writeln!(text, "  sdy.mesh @{} = <{}>", mesh_name(k), list(axes));
    }
    let _ = writeln!(text, "  func.func public @main({}) -> ({}) {{", heads.join(", "), shown.join(", "));
    text += &w.out;
    text += "  }\n}\n";
    Ok(Module { text, arguments, results })
}

/// Where an argument or a result is; sums are made there.
fn boundary(
    w: &mut Writer,
    program: &Program,
    ty: &ArrayType,
    placement: Option<&Placement>,
    k: usize,
    what: &str,
) -> Result<Option<String>> {
    let Some(mesh) = ty.mesh.as_ref().or(program.mesh.as_ref()) else { return Ok(None) };
    let refused = |fault| Error::at(fault, format!("to_stablehlo, {what} {k}"), vec![ty.to_string()], None);
    let mut at = placement.cloned().unwrap_or_default();
    at.partial.clear();
    let mut text = w.placement(mesh, &at, ty, Uneven::Refused).map_err(refused)?;
    if ty.dtype == DType::Key {
        // the words of a key are together
        let end = text.rfind(']').unwrap_or(text.len());
        text.insert_str(end, if ty.rank() == 0 { "{}" } else { ", {}" });
    }
    Ok(Some(text))
}

impl Writer {
    /// A key of its two words.
    fn key(&mut self, x: &Ssa) -> Ssa {
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
        self.joined(&halves[1], &halves[0])
    }
    /// The two words of a key.
    fn words(&mut self, x: &Ssa) -> Ssa {
        let (high, low) = self.halves(x);
        let mut shape = x.shape.clone();
        shape.push(1);
        let (high, low) = (self.reshape(&high, &shape), self.reshape(&low, &shape));
        self.concatenate(&[low, high], x.shape.len())
    }
}
