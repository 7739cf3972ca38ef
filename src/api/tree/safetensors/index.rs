//! The names of files of a folder, and the index that says which file has which tensor, both as in
//! Hugging Face's libraries.

use crate::api::array::files::atomic_file::data_error;
use crate::core::{ErrorKind, Fault};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// The name of the index of a folder.
pub(super) const INDEX_NAME: &str = "model.safetensors.index.json";
/// The end of the names of indices.
pub(super) const INDEX_SUFFIX: &str = ".safetensors.index.json";
/// The name of the only file of a folder.
const SINGLE_NAME: &str = "model.safetensors";
/// The end of the names of files of tensors.
pub(super) const SUFFIX: &str = ".safetensors";

/// Returns the name of the k-th of n files.
pub(super) fn part_name(k: usize, n: usize) -> String {
    if n == 1 { SINGLE_NAME.into() } else { format!("model-{:05}-of-{n:05}.safetensors", k + 1) }
}

/// Returns the text of an index: the file of each tensor, and the size of all in bytes.
pub(super) fn index_text(total: usize, files: &BTreeMap<String, String>) -> Result<String, Fault> {
    let index = json!({ "metadata": { "total_size": total }, "weight_map": files });
    let text = serde_json::to_string_pretty(&index);
    Ok(text.map_err(data_error)? + "\n")
}

/// Reads an index: the path of the file of each tensor.
pub(super) fn read_index(path: &Path) -> Result<BTreeMap<String, PathBuf>, Fault> {
    let text = std::fs::read_to_string(path).map_err(data_error)?;
    let index: Value = serde_json::from_str(&text).map_err(|why| {
        fault!(Data, "it is not an index of .safetensors files: {why}").help("copy or save the file again")
    })?;
    let Some(map) = index.get("weight_map").and_then(Value::as_object) else {
        return Err(fault!(Data, "it is not an index of .safetensors files: it has no object `weight_map`"));
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let entry = |(tensor, file): (&String, &Value)| {
        let file = file.as_str().unwrap_or_default();
        let inside =
            !file.is_empty() && Path::new(file).components().all(|c| matches!(c, Component::Normal(_)));
        if !inside {
            let message = format!("`{tensor}` is in {file:?}, which does not lead to a file of the folder");
            return Err(Fault::new(ErrorKind::Data, message)
                .help("write names of files next to the index into `weight_map`"));
        }
        let file = folder.join(file);
        if !file.exists() {
            let message = format!("`{tensor}` is in {}, which does not exist", file.display());
            return Err(Fault::new(ErrorKind::Data, message)
                .help("copy or download the missing file into the folder of the index"));
        }
        Ok((tensor.clone(), file))
    };
    map.iter().map(entry).collect()
}

/// The files from which tensors are read.
pub(super) enum TensorSource {
    /// All tensors of these files.
    Files(Vec<PathBuf>),
    /// The tensors of an index, each from its file.
    Index(PathBuf),
}

/// Finds the files of a path: a file, an index, or a folder.
pub(super) fn find_files(path: &Path) -> Result<TensorSource, Fault> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if name(path).ends_with(".json") {
        return Ok(TensorSource::Index(path.into()));
    }
    if !path.is_dir() {
        return Ok(TensorSource::Files(vec![path.into()]));
    }
    let entries = std::fs::read_dir(path).map_err(data_error)?.map(|entry| entry.map(|entry| entry.path()));
    let mut entries = entries.collect::<std::io::Result<Vec<PathBuf>>>().map_err(data_error)?;
    entries.sort();
    let ending = |end: &str| -> Vec<PathBuf> {
        entries.iter().filter(|path| name(path).ends_with(end)).cloned().collect()
    };
    let (indices, files) = (ending(INDEX_SUFFIX), ending(SUFFIX));
    let usual = indices.iter().find(|path| name(path) == INDEX_NAME);
    match (usual, &indices[..], files.iter().find(|path| name(path) == SINGLE_NAME)) {
        (Some(index), ..) | (None, [index], None) => Ok(TensorSource::Index(index.clone())),
        (None, _, Some(file)) => Ok(TensorSource::Files(vec![file.clone()])),
        (None, [_, _, ..], None) => {
            let names: Vec<String> = indices.iter().map(|path| name(path)).collect();
            Err(fault!(Data, "the folder has several indices: {}", names.join(", "))
                .help("give the path of one of them"))
        }
        (None, [], None) if files.is_empty() => Err(fault!(Data, "the folder has no .safetensors file")
            .help("give a file, an index (`…safetensors.index.json`), or the folder of either")),
        (None, [], None) => {
            let names: Vec<String> = files.iter().map(|path| name(path)).collect();
            check_parts(&names)?;
            Ok(TensorSource::Files(files))
        }
    }
}

/// Returns an error if the names say that there are more files: `model-00001-of-00003.safetensors`.
fn check_parts(names: &[String]) -> Result<(), Fault> {
    for name in names {
        let stem = name.strip_suffix(SUFFIX).unwrap_or(name);
        let Some((start, number)) = stem.rsplit_once("-of-") else { continue };
        let (Some((start, _)), Ok(n)) = (start.rsplit_once('-'), number.parse::<usize>()) else { continue };
        let missing = (1..=n.min(names.len() + 1))
            .map(|k| format!("{start}-{k:0width$}-of-{number}{SUFFIX}", width = number.len()))
            .find(|part| !names.contains(part));
        if let Some(part) = missing {
            return Err(fault!(Data, "the folder has {name}, but not {part}")
                .help("copy or download the missing file into the folder"));
        }
    }
    Ok(())
}
