//! The folders of a [`Checkpoints`](super::Checkpoints): their names, their lock, and how they are
//! written, replaced and removed.

use super::safetensors::{PendingTensor, SaveOptions, write_folder};
use crate::api::array::files::atomic_file::{data_error, share_part, sync_folder};
use crate::api::array::files::peers::{FilePeers, StepFailure};
use crate::core::{Fault, SourceLocation};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::ErrorKind as IoErrorKind;
use std::path::Path;
use tempfile::TempDir;

/// The start of the names of steps.
const PREFIX: &str = "step-";
/// The start and the end of the names of temporary folders.
const TEMPORARY: (&str, &str) = (".step-", ".part");
/// The file that is locked by the program that saves.
const LOCK_NAME: &str = ".lock";
/// The folder of a step: the step, and how many times it was saved before.
pub(super) type StepFolder = (u64, u32);

/// Returns the name of the folder of a step.
pub(super) fn step_name((step, generation): StepFolder) -> String {
    match generation {
        0 => format!("{PREFIX}{step:08}"),
        _ => format!("{PREFIX}{step:08}.{generation}"),
    }
}
fn parse_step_name(name: &str) -> Option<StepFolder> {
    let number = name.strip_prefix(PREFIX)?;
    let (step, generation) = number.split_once('.').unwrap_or((number, "0"));
    let found = (step.parse().ok()?, generation.parse().ok()?);
    // other spellings of a number are not folders of steps
    (step_name(found) == name).then_some(found)
}
/// Returns the complete steps of a folder, the oldest first, with all generations.
pub(super) fn step_folders(folder: &Path) -> Result<Vec<StepFolder>, Fault> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(data_error)? {
        found.extend(entry.map_err(data_error)?.file_name().to_str().and_then(parse_step_name));
    }
    found.sort_unstable();
    Ok(found)
}

/// Locks the folder for this program. `None` if the file system has no locks.
pub(super) fn lock(folder: &Path) -> Result<Option<File>, Fault> {
    let file = File::create(folder.join(LOCK_NAME)).map_err(data_error)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(fault!(Data, "another `Checkpoints` saves into this folder")
            .help("give each training run its own folder, or drop the other one first")),
        Err(TryLockError::Error(why)) if why.kind() == IoErrorKind::Unsupported => Ok(None),
        Err(TryLockError::Error(why)) => Err(data_error(why)),
    }
}

/// Writes a step, which appears in the folder when it is complete, and keeps the newest `keep`
/// steps.
pub(super) fn write_step(
    folder: &Path,
    (step, keep): (u64, usize),
    tensors: Vec<PendingTensor>,
    options: &SaveOptions,
    peers: &mut FilePeers,
    location: SourceLocation,
) -> Result<(), Fault> {
    let mut temporary = None;
    let create = || {
        remove_temporary(folder)?;
        let (start, end) = TEMPORARY;
        let part =
            tempfile::Builder::new().prefix(&format!("{start}{step:08}-")).suffix(end).tempdir_in(folder);
        Ok(temporary.insert(part.map_err(data_error)?).path().to_path_buf())
    };
    let part = share_part(&folder.join(LOCK_NAME), peers, create)?;
    write_folder(&part, tensors, options, peers, location)?;
    let commit = || {
        let earlier = step_folders(folder)?.into_iter().rfind(|(saved, _)| *saved == step);
        let generation = earlier.map_or(0, |(_, generation)| generation + 1);
        std::fs::rename(&part, folder.join(step_name((step, generation)))).map_err(data_error)?;
        // the folder has another name now
        let _ = temporary.take().map(TempDir::keep);
        sync_folder(folder).map_err(data_error)?;
        remove_old_steps(folder, step, keep)?;
        Ok(Vec::new())
    };
    // (the next save removes what one that fails leaves)
    peers.step_of_first(commit).map(drop).map_err(StepFailure::into_fault)
}

/// Removes the folders that a save left when it was interrupted.
fn remove_temporary(folder: &Path) -> Result<(), Fault> {
    let (start, end) = TEMPORARY;
    for entry in std::fs::read_dir(folder).map_err(data_error)? {
        let entry = entry.map_err(data_error)?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(start) && name.ends_with(end)) {
            std::fs::remove_dir_all(entry.path()).map_err(data_error)?;
        }
    }
    Ok(())
}

/// Removes all steps but the newest `keep` ones, and earlier generations; `saved` stays.
fn remove_old_steps(folder: &Path, saved: u64, keep: usize) -> Result<(), Fault> {
    let all = step_folders(folder)?;
    // the last generation of a step comes last
    let newest: BTreeMap<u64, u32> = all.iter().copied().collect();
    let others = newest.keys().rev().filter(|step| **step != saved);
    let kept: Vec<u64> = others.take(keep.saturating_sub(1)).copied().chain([saved]).collect();
    let is_kept = |(step, generation): &StepFolder| kept.contains(step) && newest[step] == *generation;
    for old in all.iter().filter(|found| !is_kept(found)) {
        // a step that is removed in part has no name of a step
        let (start, end) = TEMPORARY;
        let hidden = folder.join(format!("{start}{:08}.{}-old{end}", old.0, old.1));
        std::fs::rename(folder.join(step_name(*old)), &hidden)
            .and_then(|()| std::fs::remove_dir_all(hidden))
            .map_err(data_error)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_steps_are_parsed_as_they_are_written() {
        for found in [(0, 0), (7, 0), (7, 2), (123_456_789, 0), (u64::MAX, u32::MAX)] {
            assert_eq!(parse_step_name(&step_name(found)), Some(found));
        }
        for name in ["step-7", "step-00000007.0", "step-00000007.01", "step--0000007", ".step-00000007", "x"]
        {
            assert_eq!(parse_step_name(name), None, "{name}");
        }
    }
}
