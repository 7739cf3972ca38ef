//! Checkpoints of training: a folder for each step, written while the program goes on.
//!
//! A step is written into a temporary folder, which gets its name when all of it is on the disk. So
//! a folder with the name of a step is complete, whenever the program ends. A step that is saved
//! again gets a name with a generation, `step-00000100.1`, and replaces the earlier one after it is
//! complete.

use super::files::leaves;
use super::safetensors::{
    LoadCall, LoadFailure, LoadOptions, SaveOptions, TensorFiles, load_tree, pending_tensors,
};
use super::step_folders::{StepFolder, lock, step_folders, step_name, write_step};
use super::{Args, Tree, snapshot};
use crate::api::array::files::atomic_file::data_error;
use crate::api::array::files::peers::{FilePeers, StepFailure};
use crate::core::{Error, Fault, Result, SourceLocation};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread::JoinHandle;

const NEW: &str = "tree::Checkpoints::new";
const SAVE: &str = "tree::Checkpoints::save";
const RESTORE: &str = "tree::Checkpoints::restore";

/// The scheduling priority of the thread that writes. A program that computes on all cores gets
/// about 97 % of the core on which the thread runs.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 15;

/// A folder of checkpoints, one for each saved step of a training run.
///
/// [`save`](Checkpoints::save) returns at once, and a thread writes the arrays, in the layout of
/// [`save_safetensors_with`](super::save_safetensors_with). The program may go on and donate the
/// arrays: their memory is held until it is written. If a program or its machine stops at any
/// moment, no step that was saved before is lost, and [`restore`](Checkpoints::restore) finds the
/// newest one that is complete.
///
/// If arrays are on devices of [several processes](crate::distributed), all of them save and
/// restore together, in a folder that they share. Each writes and reads the blocks of its devices.
/// A step is complete when all processes have written their parts, and a run with another number
/// of processes can restore it.
///
/// ```
/// use atmesh::prelude::*;
/// # let folder = tempfile::tempdir().map_err(atmesh::Error::other)?;
/// let train = |mesh: &Mesh, steps: u64| -> Result<(u64, Array)> {
///     let mut saves = tree::Checkpoints::new(&folder)?.every(10).keep(2);
///     let step = jit(|w: &Array| w * 0.9).donate(0);
///     let (mut w, mut first) = (Array::ones([8]).put(mesh, p!["X"]), 0);
///     if let Some(found) = saves.restore(&w)? {
///         (w, first) = (found.tree, found.step);
///     }
///     for n in first + 1..=steps {
///         w = step.call(w)?;
///         saves.save(n, &w)?; // every 10 steps
///     }
///     saves.wait()?;
///     Ok((first, w))
/// };
/// train(&Mesh::new([("X", 8)])?, 25)?;
/// // the next run begins with the last saved step, on another mesh
/// let (first, w) = train(&Mesh::new([("X", 4)])?, 30)?;
/// assert_eq!((first, type_of(&w).to_string().as_str()), (20, "float32[8@X]"));
/// assert_eq!(tree::Checkpoints::new(&folder)?.steps()?, [20, 30]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("CheckpointManager", "orbax", "AsyncCheckpointer"))]
#[must_use]
pub struct Checkpoints {
    folder: PathBuf,
    every: u64,
    keep: usize,
    /// The locked file, from the first save on.
    lock: Option<File>,
    /// The thread that writes a step.
    saving: Option<JoinHandle<Result<()>>>,
}

/// A restored checkpoint.
///
/// ```
/// use atmesh::prelude::*;
/// # let folder = tempfile::tempdir().map_err(atmesh::Error::other)?;
/// let mut saves = tree::Checkpoints::new(&folder)?;
/// saves.save(7, Array::from([1.0, 2.0]))?;
/// let found = saves.restore(F64.array_type([2]))?.expect("a step is saved");
/// assert_eq!((found.step, found.tree.to_vec::<f64>()?), (7, vec![1.0, 2.0]));
/// assert!(found.skipped.is_empty(), "no later step is damaged");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Restored<T> {
    /// The step that was saved.
    pub step: u64,
    /// The arrays.
    pub tree: T,
    /// The entries of [`SaveOptions::metadata`].
    pub metadata: BTreeMap<String, String>,
    /// The later steps that are not complete, newest first, each with the reason.
    pub skipped: Vec<(u64, Error)>,
}

impl<T> Restored<T> {
    /// Returns an entry of the metadata as a value, such as an offset in the data.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// # let folder = tempfile::tempdir().map_err(atmesh::Error::other)?;
    /// let mut saves = tree::Checkpoints::new(&folder)?;
    /// saves.save_with(1, Array::ones([2]), [("offset", 1000)])?;
    /// let found = saves.restore(F32.array_type([2]))?.expect("a step is saved");
    /// assert_eq!(found.value::<usize>("offset")?, 1000);
    /// assert!(found.value::<usize>("epoch").is_err());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn value<V: FromStr>(&self, name: &str) -> Result<V> {
        let location = Location::caller();
        let error = |fault| Error::new(fault, "tree::Restored::value", Vec::new(), Some(location));
        let Some(text) = self.metadata.get(name) else {
            let names: Vec<&str> = self.metadata.keys().map(String::as_str).collect();
            return Err(error(
                fault!(Data, "step {} has no entry `{name}`", self.step)
                    .help(format!("its entries are {}", names.join(", ")))
                    .help(format!("save it: `saves.save_with(step, &tree, [({name:?}, value)])`")),
            ));
        };
        text.parse().map_err(|_| {
            let wanted = std::any::type_name::<V>();
            error(
                fault!(Data, "the entry `{name}` of step {} is {text:?}, not a {wanted}", self.step)
                    .help("read it as the type that was saved"),
            )
        })
    }
}

impl Checkpoints {
    /// Opens a folder of checkpoints, which is created if it does not exist.
    ///
    /// Every step is saved and kept, unless [`every`](Checkpoints::every) or
    /// [`keep`](Checkpoints::keep) says otherwise.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// # let folder = tempfile::tempdir().map_err(atmesh::Error::other)?;
    /// let mut saves = tree::Checkpoints::new(folder.path().join("runs/7"))?;
    /// assert!(saves.save(0, Array::ones([2]))?, "every step is saved");
    /// assert!(saves.restore(F32.array_type([2]))?.is_some());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn new(folder: impl AsRef<Path>) -> Result<Checkpoints> {
        let (location, folder) = (Location::caller(), folder.as_ref());
        std::fs::create_dir_all(folder).map_err(|why| in_folder(data_error(why), folder, NEW, location))?;
        Ok(Checkpoints { folder: folder.into(), every: 1, keep: usize::MAX, lock: None, saving: None })
    }
    /// Saves only the steps that are multiples of `n`; [`save`](Checkpoints::save) does nothing for
    /// others.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// # let folder = tempfile::tempdir().map_err(atmesh::Error::other)?;
    /// let mut saves = tree::Checkpoints::new(&folder)?.every(500);
    /// assert!(!saves.save(501, Array::ones([2]))? && saves.save(1000, Array::ones([2]))?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "save_interval_steps")]
    pub fn every(self, n: u64) -> Checkpoints {
        self.with(|saves| saves.every = n.max(1))
    }
    /// Keeps the `n` newest steps, at least one, and removes older ones after each save.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// # let folder = tempfile::tempdir().map_err(atmesh::Error::other)?;
    /// let mut saves = tree::Checkpoints::new(&folder)?.keep(2);
    /// for step in 1..=4 {
    ///     saves.save(step, Array::ones([2]))?;
    /// }
    /// saves.wait()?;
    /// assert_eq!(saves.steps()?, [3, 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "max_to_keep")]
    pub fn keep(self, n: usize) -> Checkpoints {
        self.with(|saves| saves.keep = n.max(1))
    }
    fn with(mut self, set: impl FnOnce(&mut Checkpoints)) -> Checkpoints {
        set(&mut self);
        self
    }
    /// Begins to save the arrays of a tree as a step, and returns true; false if this step is not
    /// [saved](Checkpoints::every).
    ///
    /// The tree may be a tuple of references: `saves.save(step, (&model, &state))`. If an earlier
    /// step is still being written, this waits for it.
    ///
    /// # Errors
    /// The earlier save failed, an array cannot be saved, or another program saves into the folder.
    /// [`wait`](Checkpoints::wait) returns the error of the last save.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// # let folder = tempfile::tempdir().map_err(atmesh::Error::other)?;
    /// let mut saves = tree::Checkpoints::new(&folder)?;
    /// let (model, state) = (Array::ones([8]), Array::zeros([8]));
    /// assert!(saves.save(100, (&model, &state))?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn save(&mut self, step: u64, tree: impl Args) -> Result<bool> {
        self.save_at(step, tree, SaveOptions::default(), Location::caller())
    }
    /// Saves as [`save`](Checkpoints::save) does, with metadata and other options.
    ///
    /// The metadata are plain values, which [`Restored::value`] returns:
    /// `saves.save_with(step, &model, [("offset", offset)])`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// # let folder = tempfile::tempdir().map_err(atmesh::Error::other)?;
    /// let mut saves = tree::Checkpoints::new(&folder)?;
    /// saves.save_with(7, Array::ones([2]), [("epoch", 3)])?;
    /// let found = saves.restore(F32.array_type([2]))?.expect("a step is saved");
    /// assert_eq!(found.metadata["epoch"], "3");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn save_with(&mut self, step: u64, tree: impl Args, options: impl Into<SaveOptions>) -> Result<bool> {
        self.save_at(step, tree, options.into(), Location::caller())
    }
    fn save_at(
        &mut self,
        step: u64,
        tree: impl Args,
        options: SaveOptions,
        location: SourceLocation,
    ) -> Result<bool> {
        if !step.is_multiple_of(self.every) {
            return Ok(false);
        }
        self.wait()?;
        let tree = tree.into_tree();
        let op = format!("{SAVE} of step {step}");
        let mut peers = FilePeers::of_arrays(&leaves(&tree), &op, &self.folder, location)?;
        let locked = match self.lock.is_none() && peers.is_first() {
            true => lock(&self.folder).map(|lock| self.lock = lock),
            false => Ok(()),
        };
        let failed = |why: StepFailure<Fault>| in_folder(why.into_fault(), &self.folder, SAVE, location);
        peers.agree(locked).map_err(failed)?;
        let tensors = pending_tensors(&snapshot(&tree), &options, location)?;
        let (folder, keep) = (self.folder.clone(), self.keep);
        let write = move || {
            lower_priority();
            let written = write_step(&folder, (step, keep), tensors, &options, &mut peers, location);
            written.map_err(|fault| {
                let message = format!("step {step}: {}", fault.message);
                in_folder(Fault { message, ..fault }, &folder, SAVE, location)
            })
        };
        let thread = std::thread::Builder::new().name("atmesh checkpoint".into()).spawn(write);
        self.saving = Some(thread.map_err(|why| in_folder(data_error(why), &self.folder, SAVE, location))?);
        Ok(true)
    }
    /// Waits until the last save is complete, and returns its error.
    ///
    /// Dropping the value waits too, and prints an error to stderr.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// # let folder = tempfile::tempdir().map_err(atmesh::Error::other)?;
    /// let mut saves = tree::Checkpoints::new(&folder)?;
    /// saves.save(7, Array::ones([2]))?;
    /// saves.wait()?; // now the step is on the disk
    /// assert!(saves.path(7)?.is_dir());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("wait_until_finished", "finish"))]
    pub fn wait(&mut self) -> Result<()> {
        let Some(thread) = self.saving.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(Error::internal("the thread that saves has panicked")))
    }
    /// Returns the steps that are saved, the oldest first.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// # let folder = tempfile::tempdir().map_err(atmesh::Error::other)?;
    /// let mut saves = tree::Checkpoints::new(&folder)?.every(100);
    /// for step in 0..250 {
    ///     saves.save(step, Array::ones([2]))?;
    /// }
    /// saves.wait()?;
    /// assert_eq!(saves.steps()?, [0, 100, 200]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "all_steps")]
    #[track_caller]
    pub fn steps(&self) -> Result<Vec<u64>> {
        let location = Location::caller();
        let all = step_folders(&self.folder);
        let all =
            all.map_err(|fault| in_folder(fault, &self.folder, "tree::Checkpoints::steps", location))?;
        let mut steps: Vec<u64> = all.iter().map(|(step, _)| *step).collect();
        steps.dedup();
        Ok(steps)
    }
    /// Returns the folder of a step, for [`load_safetensors_with`](super::load_safetensors_with).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// # let folder = tempfile::tempdir().map_err(atmesh::Error::other)?;
    /// let mut saves = tree::Checkpoints::new(&folder)?;
    /// saves.save(7, Array::ones([2]))?;
    /// saves.wait()?;
    /// assert_eq!(tree::read_safetensors(saves.path(7)?)?["array"].to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn path(&self, step: u64) -> Result<PathBuf> {
        self.path_at(step, "tree::Checkpoints::path", Location::caller())
    }
    fn path_at(&self, step: u64, op: &str, location: SourceLocation) -> Result<PathBuf> {
        Ok(self.folder.join(step_name(self.find_step(step, op, location)?)))
    }
    /// Returns the last generation of a step.
    fn find_step(&self, step: u64, op: &str, location: SourceLocation) -> Result<StepFolder> {
        let failed = |fault| in_folder(fault, &self.folder, op, location);
        let all = step_folders(&self.folder).map_err(failed)?;
        all.iter().rfind(|(saved, _)| *saved == step).copied().ok_or_else(|| {
            let steps: Vec<String> = all.iter().map(|(step, _)| step.to_string()).collect();
            let steps = if steps.is_empty() { "none".into() } else { steps.join(", ") };
            failed(fault!(Data, "step {step} is not saved").help(format!("the saved steps are {steps}")))
        })
    }
    /// Restores the newest complete step; `None` if no step is saved.
    ///
    /// The tree has the paths and types of `like`, whose leaves may be types, and each array is
    /// placed like that leaf, on any mesh. Steps that are damaged are skipped, and
    /// [`Restored::skipped`] says why.
    ///
    /// # Errors
    /// The arrays of the step have other paths or types than `like`, or there are steps and none is
    /// complete.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// # let folder = tempfile::tempdir().map_err(atmesh::Error::other)?;
    /// let mut saves = tree::Checkpoints::new(&folder)?;
    /// saves.save(3, Array::ones([8]))?;
    /// assert_eq!(saves.restore(F32.array_type([8]))?.map(|found| found.step), Some(3));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn restore<L: Args>(&mut self, like: L) -> Result<Option<Restored<L::Owned>>> {
        let location = Location::caller();
        self.wait()?;
        let like = like.into_tree();
        let failed = |fault| in_folder(fault, &self.folder, RESTORE, location);
        let mut peers = FilePeers::of_arrays(&leaves(&like), RESTORE, &self.folder, location)?;
        let all = self.agree_on_steps(&mut peers).map_err(failed)?;
        let mut skipped = Vec::new();
        for found in all.into_iter().rev() {
            match self.read_step(found, &like, &mut peers, location) {
                Ok(restored) => return Ok(Some(Restored { skipped, ..restored })),
                Err(LoadFailure::Mismatch(error)) => return Err(error),
                Err(LoadFailure::Damaged(error)) => skipped.push((found.0, error)),
            }
        }
        if skipped.is_empty() {
            return Ok(None);
        }
        let fault = fault!(Data, "none of the {} saved steps is complete", skipped.len())
            .help("to begin anew, save into another folder, or remove these");
        Err(Error::combine([failed(fault)].into_iter().chain(skipped.into_iter().map(|s| s.1))))
    }
    /// Restores this step, even if later ones are saved.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// # let folder = tempfile::tempdir().map_err(atmesh::Error::other)?;
    /// let mut saves = tree::Checkpoints::new(&folder)?;
    /// saves.save(1, Array::from([1, 1]))?;
    /// saves.save(2, Array::from([2, 2]))?;
    /// assert_eq!(saves.restore_step(1, I32.array_type([2]))?.tree.to_vec::<i32>()?, [1, 1]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn restore_step<L: Args>(&mut self, step: u64, like: L) -> Result<Restored<L::Owned>> {
        let location = Location::caller();
        self.wait()?;
        let like = like.into_tree();
        let op = format!("{RESTORE} of step {step}");
        let mut peers = FilePeers::of_arrays(&leaves(&like), &op, &self.folder, location)?;
        let found = self.find_step(step, RESTORE, location);
        let found = peers.agree(found).map_err(|why| why.into_error(RESTORE, location))?;
        self.read_step(found, &like, &mut peers, location).map_err(LoadFailure::into_error)
    }
    /// Returns the complete steps that process 0 sees, the oldest first.
    fn agree_on_steps(&self, peers: &mut FilePeers) -> Result<Vec<StepFolder>, Fault> {
        let list = || {
            let all = step_folders(&self.folder)?;
            let bytes = |(step, generation): &StepFolder| {
                [&step.to_le_bytes()[..], &generation.to_le_bytes()].concat()
            };
            Ok(all.iter().flat_map(bytes).collect())
        };
        let bytes = peers.step_of_first(list).map_err(StepFailure::into_fault)?;
        let (all, _) = bytes.as_chunks::<12>();
        let step = |bytes: &[u8; 12]| {
            let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
            (number(&bytes[..8]), number(&bytes[8..]) as u32)
        };
        Ok(all.iter().map(step).collect())
    }
    fn read_step<T: Tree>(
        &self,
        found: StepFolder,
        like: &T,
        peers: &mut FilePeers,
        location: SourceLocation,
    ) -> Result<Restored<T>, LoadFailure> {
        let open = || TensorFiles::try_open(&self.folder.join(step_name(found)));
        let call = LoadCall { op: RESTORE, location };
        let (tree, metadata) = load_tree(open, peers, like, &LoadOptions::default(), call)?;
        let metadata = metadata.into_iter().filter(|(name, _)| name != "format").collect();
        Ok(Restored { step: found.0, tree, metadata, skipped: Vec::new() })
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        if let Err(error) = self.wait() {
            eprintln!("{error}");
        }
    }
}
impl fmt::Debug for Checkpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checkpoints({}, every {}", self.folder.display(), self.every)?;
        if self.keep < usize::MAX {
            write!(f, ", the last {}", self.keep)?;
        }
        f.write_str(")")
    }
}

fn in_folder(fault: Fault, folder: &Path, op: &str, location: SourceLocation) -> Error {
    let message = format!("{}: {}", folder.display(), fault.message);
    Error::new(Fault { message, ..fault }, op, Vec::new(), Some(location))
}

/// Lets the threads that compute run first.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    {
        // on Linux a priority is that of a thread; without permission it stays as it was
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
    }
}
