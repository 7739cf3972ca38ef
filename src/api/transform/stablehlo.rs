//! Export of traced functions as StableHLO: as text, or as a folder of files.

use super::stages::Traced;
use crate::api::{array::Array, trace::pipeline, tree::Tree};
use crate::core::{ArrayType, DType, Result, Scalar, ScalarElement, SourceLocation, types::with_dtype};
use crate::xla::stablehlo::{self, ModuleInput, Options};
use std::fmt;

/// The maximum size of a captured array that becomes a constant of the module, in bytes.
const MAX_CONSTANT_BYTES: usize = 1 << 10;

/// A StableHLO module with Shardy shardings, which XLA compiles for CPUs, GPUs and TPUs.
///
/// [`Traced::to_stablehlo`] creates it. Small captured arrays are constants of the module, larger
/// ones are further arguments. `Display` prints its text.
#[derive(Clone, Debug)]
pub struct StableHlo {
    text: String,
    devices: usize,
    arguments: Vec<Port>,
    results: Vec<Port>,
    captures: Vec<Array>,
}

/// An argument or result of a StableHLO module.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "json", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Port {
    /// The path in the tree of arguments or results; `capture0` and so on for captured arrays.
    pub name: String,
    /// The type in the traced program.
    #[cfg_attr(
        feature = "json",
        serde(rename = "type", serialize_with = "super::stablehlo_files::write_type")
    )]
    pub ty: ArrayType,
    /// The tensor type in the module: `tensor<8x4xf32>`. A key is two words, `tensor<2xui32>`.
    pub tensor: String,
    /// The sharding in the module. `None` if the program is unplaced.
    pub sharding: Option<String>,
    /// True if the memory may be overwritten.
    pub donated: bool,
    /// The file of the folder that holds a captured array. `None` for other arguments and results.
    pub file: Option<String>,
}

impl<I: Tree, O: Tree> Traced<I, O> {
    /// Exports the program as a StableHLO module, with source locations.
    ///
    /// Arguments, results and every value on explicit axes have shardings.
    ///
    /// # Errors
    /// Returns an error, with the user's source location, for an unevenly sharded argument or
    /// result (XLA splits evenly), for prints, for custom operations, and for anything else that
    /// XLA cannot express.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 8)])?;
    /// let (x, w) = (Array::ones([32]).put(&mesh, p!["X"]), Array::ones([32, 4]));
    /// let layer = jit(|x: &Array, w: &Array| x.dot(w).tanh());
    /// let module = layer.trace((&x, &w))?.to_stablehlo()?;
    /// assert!(module.text().contains("sdy.mesh @mesh = <[\"X\"=8]>"));
    /// assert!(module.text().contains("stablehlo.dot_general"));
    /// assert_eq!(module.arguments()[0].sharding.as_deref(), Some("<@mesh, [{\"X\"}]>"));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn to_stablehlo(&self) -> Result<StableHlo> {
        self.stablehlo(Options::default().locations(true), std::panic::Location::caller())
    }
    /// Exports the program with these [options](Options).
    ///
    /// The options select which values have a sharding annotation, and whether the module has
    /// source locations.
    #[track_caller]
    pub fn to_stablehlo_with(&self, options: Options) -> Result<StableHlo> {
        self.stablehlo(options, std::panic::Location::caller())
    }
    fn stablehlo(&self, options: Options, location: SourceLocation) -> Result<StableHlo> {
        let program = pipeline::place(self.program(), &[])?;
        let (names, results) = self.paths();
        let (donated, captures) = self.donated_and_captures();
        let (mut given, mut kept) = (Vec::new(), Vec::new());
        for (k, donated) in donated.iter().enumerate() {
            let capture = k.checked_sub(names.len()).map(|k| &captures[k]);
            given.push(match capture {
                Some(a) if is_small(a) => ModuleInput::Constant(constant_elements(a, location)?),
                Some(a) => {
                    kept.push(a.clone());
                    ModuleInput::Argument { donated: *donated }
                }
                None => ModuleInput::Argument { donated: *donated },
            });
        }
        let module = stablehlo::write(&program, &given, options)
            .map_err(|e| e.with_location("to_stablehlo", location))?;
        let (mut arguments, mut shardings) = (Vec::new(), module.arguments.into_iter());
        for (k, given) in given.iter().enumerate() {
            let ModuleInput::Argument { donated } = given else { continue };
            let ty = program.ty(program.inputs[k]).clone();
            let capture = arguments.len().checked_sub(names.len()).map(|n| format!("capture{n}"));
            arguments.push(Port {
                name: capture.clone().unwrap_or_else(|| names[k].clone()),
                tensor: stablehlo::boundary_type(&ty),
                ty,
                sharding: shardings.next().flatten(),
                donated: *donated,
                file: capture.map(|name| format!("{name}.npy")),
            });
        }
        let results = results.into_iter().zip(program.output_types()).zip(module.results);
        let results = results.map(|((name, ty), sharding)| Port {
            name,
            tensor: stablehlo::boundary_type(&ty),
            ty,
            sharding,
            donated: false,
            file: None,
        });
        let devices = program.mesh.as_ref().map_or(1, |m| m.size());
        Ok(StableHlo { text: module.text, devices, arguments, results: results.collect(), captures: kept })
    }
}

impl StableHlo {
    /// Returns the module's text.
    pub fn text(&self) -> &str {
        &self.text
    }
    /// Returns the number of devices that the module is for.
    pub fn devices(&self) -> usize {
        self.devices
    }
    /// Returns the arguments: the leaves of the function's arguments, then captured arrays.
    pub fn arguments(&self) -> &[Port] {
        &self.arguments
    }
    /// Returns the results, in order: the leaves of the function's result.
    pub fn results(&self) -> &[Port] {
        &self.results
    }
    /// Returns the captured arrays that are arguments, in order.
    pub fn captures(&self) -> &[Array] {
        &self.captures
    }
}
impl fmt::Display for StableHlo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns true if a captured array is written as a constant.
fn is_small(a: &Array) -> bool {
    a.type_ref().is_ok_and(|ty| ty.nbytes() <= MAX_CONSTANT_BYTES && ty.dtype != DType::Key)
}
/// Returns the elements of an array.
fn constant_elements(a: &Array, location: SourceLocation) -> Result<Vec<Scalar>> {
    let slab = a.host_data("to_stablehlo", location)?;
    Ok(with_dtype!(a.dtype()?, T => slab.elements::<T>().iter().map(|x| x.to_scalar()).collect()))
}
