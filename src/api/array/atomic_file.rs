//! Files that are replaced atomically, and regular files that are read.

use crate::core::{Fault, diagnostic};
use std::fs::File;
use std::io::{Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};

/// The maximum number of symbolic links from a path to its file, as on Linux.
const MAX_LINKS: usize = 40;

/// Replaces a file atomically: writes a temporary file in the same directory and renames it.
///
/// A symbolic link is followed, so that it stays a link, and an existing file keeps its
/// permissions. Concurrent writers of one file do not disturb each other; the last one wins.
///
/// # Errors
/// The path exists and is not a regular file, or writing fails.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    write_atomically_with(path, |file| file.write_all(bytes))
}

/// Replaces a file atomically, as [`write_atomically`] does, by what `write` writes.
pub(crate) fn write_atomically_with(path: &Path, write: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
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
    let mut part =
        temporary_names(&target, ".part").make_in(parent(&target), |path| File::create_new(path))?;
    write(part.as_file_mut())?;
    if let Some(permissions) = permissions {
        part.as_file().set_permissions(permissions)?;
    }
    part.as_file().sync_all()?;
    part.persist(&target).map_err(|failed| failed.error)?;
    Ok(())
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
