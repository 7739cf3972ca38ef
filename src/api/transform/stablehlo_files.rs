//! Export of StableHLO modules as a folder of files.

use super::stablehlo::{Port, StableHlo};
use crate::api::array::files::atomic_file;
use crate::core::{ArrayType, Error, Result};
use crate::partition::machine::to_json_lines;
use serde::{Serialize, Serializer};
use std::panic::Location;
use std::path::Path;

/// The table of arguments and results in `program.json`.
#[derive(Serialize)]
struct PortTable<'a> {
    devices: usize,
    arguments: &'a [Port],
    results: &'a [Port],
}

/// Writes the type of an argument or a result as text.
pub(super) fn write_type<S: Serializer>(ty: &ArrayType, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(ty)
}

impl StableHlo {
    /// Writes the module and its captured arrays into a folder.
    ///
    /// The files are `program.mlir`, `program.json` (a table of arguments and results) and
    /// `capture0.npy`, `capture1.npy`, … Each file is written under a temporary name and renamed,
    /// the module last, so a folder with `program.mlir` is complete.
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
        let (location, folder) = (Location::caller(), folder.as_ref());
        let failed = |path: &Path, why: std::io::Error| {
            let fault = fault!(Data, "{}: {why}", path.display());
            Error::new(fault, "save", Vec::new(), Some(location))
        };
        let table = to_json_lines(&PortTable {
            devices: self.devices(),
            arguments: self.arguments(),
            results: self.results(),
        });
        let mut files = Vec::new();
        for (port, a) in self.arguments().iter().filter(|p| p.file.is_some()).zip(self.captures()) {
            files.push((port.file.clone().unwrap_or_default(), a.npy_bytes_raw("save", location)?));
        }
        files.push(("program.json".into(), table.into_bytes()));
        files.push(("program.mlir".into(), self.text().into()));
        std::fs::create_dir_all(folder).map_err(|why| failed(folder, why))?;
        for (name, bytes) in files {
            let path = folder.join(name);
            atomic_file::write_atomically(&path, &bytes).map_err(|why| failed(&path, why))?;
        }
        Ok(())
    }
}
