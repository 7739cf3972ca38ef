//! Traced functions as StableHLO: the text, what goes in and out, and a folder of it.

use super::compiled::Traced;
use crate::array::{Array, npy};
use crate::diagnostic::{Error, ErrorKind, Fault, Place, Result};
use crate::export::{self, Given, Options};
use crate::plan::quoted as json;
use crate::trace::stages;
use crate::tree::{Path as TreePath, Tree};
use crate::types::{ArrayType, DType, Number, Scalar, with_dtype};
use std::fmt;
use std::path::Path;

/// Captured arrays of at most so many bytes are constants of the module.
const SMALL: usize = 1 << 10;

/// A program as a StableHLO module with Shardy's shardings, which XLA compiles for CPUs, GPUs and TPUs. It prints as its text.
///
/// Made by [`Traced::to_stablehlo`]. Arrays that the function captures are constants where they are small, else further arguments.
#[derive(Clone, Debug)]
pub struct StableHlo {
    text: String,
    devices: usize,
    arguments: Vec<Port>,
    results: Vec<Port>,
    captures: Vec<Array>,
}

/// What goes into a module, or comes out of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Port {
    /// Its place in the tree of arguments or of results; of a captured array `capture0`.
    pub name: String,
    /// Its type, as the program has it.
    pub ty: ArrayType,
    /// How it is written in the module: `tensor<8x4xf32>`. A key is two words, `tensor<2xui32>`.
    pub tensor: String,
    /// Its sharding, as the module has it; nothing where the program is on no mesh.
    pub sharding: Option<String>,
    /// Whether its memory may be written over.
    pub donated: bool,
    /// The file of the folder that holds it: of captured arrays.
    pub file: Option<String>,
}

impl<I: Tree, O: Tree> Traced<I, O> {
    /// The program as a StableHLO module, with shardings of arguments, results and every value on explicit axes.
    ///
    /// An uneven dimension of an argument or a result is refused (XLA splits evenly), and so are prints, operations of one's own and
    /// what else XLA has no words for, at the user's line.
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
    /// [`Traced::to_stablehlo`] with other [options](Options): which values say where they are, and whether lines are told.
    #[track_caller]
    pub fn to_stablehlo_with(&self, options: Options) -> Result<StableHlo> {
        self.stablehlo(options, std::panic::Location::caller())
    }
    fn stablehlo(&self, options: Options, place: Place) -> Result<StableHlo> {
        let program = stages::place(self.program(), &[])?;
        let (names, results) = self.paths();
        let (donated, captures) = self.given();
        let (mut given, mut kept) = (Vec::new(), Vec::new());
        for (k, donated) in donated.iter().enumerate() {
            let capture = k.checked_sub(names.len()).map(|k| &captures[k]);
            given.push(match capture {
                Some(a) if small(a) => Given::Constant(numbers(a, place)?),
                Some(a) => {
                    kept.push(a.clone());
                    Given::Argument { donated: *donated }
                }
                None => Given::Argument { donated: *donated },
            });
        }
        let module =
            export::write(&program, &given, options).map_err(|e| e.located("to_stablehlo", place))?;
        let (mut arguments, mut shardings) = (Vec::new(), module.arguments.into_iter());
        for (k, given) in given.iter().enumerate() {
            let Given::Argument { donated } = given else { continue };
            let ty = program.ty(program.inputs[k]).clone();
            let capture = arguments.len().checked_sub(names.len()).map(|n| format!("capture{n}"));
            arguments.push(Port {
                name: capture.clone().unwrap_or_else(|| names[k].clone()),
                tensor: export::outside(&ty),
                ty,
                sharding: shardings.next().flatten(),
                donated: *donated,
                file: capture.map(|name| format!("{name}.npy")),
            });
        }
        let results = results.into_iter().zip(program.output_types()).zip(module.results);
        let results = results.map(|((name, ty), sharding)| Port {
            name,
            tensor: export::outside(&ty),
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
    /// The module.
    pub fn text(&self) -> &str {
        &self.text
    }
    /// How many devices it is for.
    pub fn devices(&self) -> usize {
        self.devices
    }
    /// What goes in, in order: the leaves of the arguments, then captured arrays.
    pub fn arguments(&self) -> &[Port] {
        &self.arguments
    }
    /// What comes out, in order: the leaves of the results.
    pub fn results(&self) -> &[Port] {
        &self.results
    }
    /// The captured arrays that are arguments, in order.
    pub fn captures(&self) -> &[Array] {
        &self.captures
    }
    /// Writes a folder: `program.mlir`, `program.json` (a table of arguments and results) and `capture0.npy`, … Each file is written
    /// beside its place and moved there, the module last, so that a folder with `program.mlir` is whole.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let folder = std::env::temp_dir().join(format!("atmesh-step-{}", std::process::id()));
    /// let w = Array::ones([64, 64]);
    /// jit(|x: &Array| x.dot(&w)).trace(Array::ones([64]))?.to_stablehlo()?.save(&folder)?;
    /// assert!(folder.join("program.mlir").exists() && folder.join("capture0.npy").exists());
    /// # std::fs::remove_dir_all(&folder).map_err(atmesh::Error::other)?;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<()> {
        let (place, folder) = (std::panic::Location::caller(), folder.as_ref());
        let failed = |path: &Path, why: std::io::Error| {
            let fault = Fault::new(ErrorKind::Data, format!("{}: {why}", path.display()));
            Error::at(fault, "save", Vec::new(), Some(place))
        };
        let table = format!(
            "{{\n \"devices\": {},\n \"arguments\": {},\n \"results\": {}\n}}\n",
            self.devices,
            table(&self.arguments),
            table(&self.results)
        );
        let mut files = Vec::new();
        for (port, a) in self.arguments.iter().filter(|p| p.file.is_some()).zip(&self.captures) {
            files.push((port.file.clone().unwrap_or_default(), a.words_npy("save", place)?));
        }
        files.push(("program.json".into(), table.into_bytes()));
        files.push(("program.mlir".into(), self.text.clone().into_bytes()));
        std::fs::create_dir_all(folder).map_err(|why| failed(folder, why))?;
        for (name, bytes) in files {
            let path = folder.join(name);
            npy::replace(&path, &bytes).map_err(|why| failed(&path, why))?;
        }
        Ok(())
    }
}
impl fmt::Display for StableHlo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Rows of a table as JSON.
fn table(ports: &[Port]) -> String {
    let maybe = |text: &Option<String>| text.as_ref().map_or("null".into(), |t| json(t));
    let row = |p: &Port| {
        format!(
            "\n  {{\"name\": {}, \"type\": {}, \"tensor\": {}, \"sharding\": {}, \"donated\": {}, \"file\": {}}}",
            json(&p.name),
            json(&p.ty.to_string()),
            json(&p.tensor),
            maybe(&p.sharding),
            p.donated,
            maybe(&p.file)
        )
    };
    format!("[{}\n ]", ports.iter().map(row).collect::<Vec<_>>().join(","))
}
/// Whether a captured array is written as a constant.
fn small(a: &Array) -> bool {
    a.type_ref().is_ok_and(|ty| ty.nbytes() <= SMALL && ty.dtype != DType::Key)
}
/// Its elements.
fn numbers(a: &Array, place: Place) -> Result<Vec<Scalar>> {
    let slab = a.numbers("to_stablehlo", place)?;
    Ok(with_dtype!(a.dtype()?, T => slab.elements::<T>().iter().map(|x| x.scalar()).collect()))
}

/// The paths of a tree's leaves.
pub(super) fn paths<T: Tree>(tree: &T) -> Vec<String> {
    let mut names = Vec::new();
    tree.visit(&mut TreePath::named(), &mut |path, _| names.push(path.to_string()));
    names
}
