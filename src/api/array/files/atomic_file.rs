//! Files that are replaced when their new contents are complete, and regular files that are read.

use super::peers::{FilePeers, StepFailure};
use crate::core::{Fault, diagnostic};
use std::fs::{File, Permissions};
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// The maximum number of symbolic links from a path to its file, as on Linux.
const MAX_LINKS: usize = 40;

/// Replaces a file atomically: writes a temporary file in the same directory and renames it.
///
/// Concurrent writers of one file do not disturb each other; the last one wins.
#[cfg(feature = "json")]
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut part = PartFile::create(path)?;
    std::io::Write::write_all(part.part.as_file_mut(), bytes)?;
    part.commit()
}

/// A temporary file that replaces a file when it is complete.
///
/// A symbolic link is followed, so that it stays a link, and an existing file keeps its
/// permissions. A temporary file that is dropped is removed.
struct PartFile {
    part: NamedTempFile,
    target: PathBuf,
    permissions: Option<Permissions>,
}
impl PartFile {
    /// # Errors
    /// The path exists and is not a regular file, or no file can be created next to it.
    fn create(path: &Path) -> Result<PartFile> {
        let target = follow_links(path)?;
        let permissions = match std::fs::metadata(&target) {
            Ok(known) if known.is_file() => Some(known.permissions()),
            Ok(_) => {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "it is not a regular file, so it is not replaced",
                ));
            }
            Err(why) if why.kind() == ErrorKind::NotFound => None,
            Err(why) => return Err(why),
        };
        let part =
            temporary_names(&target, ".part").make_in(parent(&target), |path| File::create_new(path))?;
        Ok(PartFile { part, target, permissions })
    }
    /// Gives the file its name when all of it is on the disk.
    fn commit(self) -> Result<()> {
        if let Some(permissions) = self.permissions {
            self.part.as_file().set_permissions(permissions)?;
        }
        self.part.as_file().sync_all()?;
        self.part.persist(&self.target).map_err(|failed| failed.error)?;
        Ok(())
    }
}

/// Replaces a file by what all processes write into a temporary file, whose path `write` receives.
///
/// `write` takes the same steps in all processes.
pub(crate) fn replace_file(
    path: &Path,
    peers: &mut FilePeers,
    write: impl FnOnce(&Path, &mut FilePeers) -> std::result::Result<(), Fault>,
) -> std::result::Result<(), Fault> {
    let mut part = None;
    let create = || {
        let made = part.insert(PartFile::create(path).map_err(data_error)?);
        Ok(made.part.path().to_path_buf())
    };
    let temporary = share_part(path, peers, create)?;
    let commit = || match part.take() {
        Some(part) => part.commit().map(|()| Vec::new()).map_err(data_error),
        None => Ok(Vec::new()),
    };
    let written = write(&temporary, peers)
        .and_then(|()| peers.step_of_first(commit).map(drop).map_err(StepFailure::into_fault));
    if written.is_err() && !peers.is_first() {
        // process 0 may be gone
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// Lets process 0 create a temporary file or folder next to `path`, and returns its path when all
/// processes see it.
pub(crate) fn share_part(
    path: &Path,
    peers: &mut FilePeers,
    create: impl FnOnce() -> std::result::Result<PathBuf, Fault>,
) -> std::result::Result<PathBuf, Fault> {
    let mut own = None;
    let create = || {
        let made = own.insert(create()?);
        Ok(made.file_name().unwrap_or_default().to_string_lossy().into_owned().into_bytes())
    };
    let name = peers.step_of_first(create).map_err(StepFailure::into_fault)?;
    let find = || match own {
        Some(part) => Ok(part),
        None => Ok(parent(&follow_links(path)?).join(&*String::from_utf8_lossy(&name))),
    };
    let part = find().map_err(|why: Error| data_error(why));
    let is_there = || match &part {
        Ok(part) if part.exists() => Ok(part.clone()),
        Ok(part) => Err(data_error(format!("{} is not there", part.display()))
            .help("save to a file system that all processes share, by one path")),
        Err(fault) => Err(fault.clone()),
    };
    peers.agree(is_there()).map_err(StepFailure::into_fault)
}

/// Opens a temporary file that several processes write; the first one creates it.
pub(crate) fn open_part(path: &Path) -> Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).open(path)
}

/// Makes sure that the names in a folder survive a crash of the system, where that is possible.
pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Follows symbolic links from a path to the path that they lead to, which need not exist.
pub(crate) fn follow_links(path: &Path) -> Result<PathBuf> {
    let mut at = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let Ok(next) = std::fs::read_link(&at) else { return Ok(at) };
        at = parent(&at).join(next);
    }
    Err(Error::new(ErrorKind::InvalidInput, "there are too many symbolic links"))
}

/// Returns the names of temporary files and directories that replace `path`.
///
/// They are made next to it, so that they are on the same file system.
pub(crate) fn temporary_names<'a>(path: &'a Path, suffix: &'a str) -> tempfile::Builder<'a, 'a> {
    let mut names = tempfile::Builder::new();
    names.prefix(path.file_name().unwrap_or_default()).suffix(suffix);
    names
}

/// Returns the directory of a path.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// Opens a regular file; returns it and its length in bytes.
pub(crate) fn open_regular(path: &Path) -> std::result::Result<(File, u64), Fault> {
    // check before opening: opening a pipe blocks until there is a writer
    let known = std::fs::metadata(path).map_err(data_error)?;
    if !known.is_file() {
        let fault = data_error("it is not a regular file, so its length is not known");
        return Err(
            fault.help("read it by other means, and make the array of a `Vec`: `Array::from(numbers)`")
        );
    }
    let file = File::open(path).map_err(data_error)?;
    let length = file.metadata().map_err(data_error)?.len();
    Ok((file, length))
}

/// Returns a data error with this message.
pub(crate) fn data_error(why: impl std::fmt::Display) -> Fault {
    Fault::new(diagnostic::ErrorKind::Data, why.to_string())
}
