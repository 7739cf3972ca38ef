//! Files that several processes write and read together.

use super::error_checks::Unquoted;
use super::results::compare;
use super::soak::runs_all;
use super::supervisor::{Ended, now_ms, wait_all};
use super::{LIMIT, start_with};
use atmesh::Error;
use atmesh::distributed::{Cluster, init};
use atmesh::prelude::*;
use atmesh::runtime::memory_stats;
use atmesh::tree::{Checkpoints, SaveOptions};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

type Model = BTreeMap<&'static str, Array>;

/// The folder of a test, which its processes share.
const FOLDER: &str = "ATMESH_TEST_FOLDER";
/// The number of bytes of a large array.
const BYTES: &str = "ATMESH_TEST_BYTES";

fn folder() -> PathBuf {
    PathBuf::from(std::env::var(FOLDER).unwrap())
}
fn new_folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("atmesh-processes-").tempdir().unwrap()
}
fn variable(folder: &Path) -> (&'static str, String) {
    (FOLDER, folder.display().to_string())
}

/// Returns arrays of many types, on no mesh.
fn model(value: i32) -> Model {
    let integers =
        |shape: &[usize]| Array::arange(0..shape.iter().product::<usize>() as i32).reshape(shape) + value;
    let floats = |shape: &[usize]| integers(shape).astype(F32);
    BTreeMap::from([
        ("bools", integers(&[8, 3]).gt(11)),
        ("columns", floats(&[6, 8])),
        ("complex", floats(&[4]).complex(floats(&[4]))),
        ("empty", Array::zeros([0, 4])),
        ("grid", integers(&[4, 4, 2]).astype(F64)),
        ("key", Key::new(value as u64).array().clone()),
        ("narrow", floats(&[8]).astype(BF16)),
        ("replicated", integers(&[5])),
        ("rows", integers(&[8, 5]).astype(U8)),
        ("scalar", Array::from(value as f32)),
        ("unplaced", integers(&[3]).astype(I64)),
    ])
}
/// Returns the model on a mesh of 4 devices.
fn placed(value: i32) -> Result<Model> {
    let mesh = Mesh::new([("A", 2), ("B", 2)])?;
    let specs = [
        ("bools", p![("A", "B")]),
        ("columns", p![_, ("A", "B")]),
        ("complex", p![("A", "B")]),
        ("empty", p![_, ("A", "B")]),
        ("grid", p!["A", "B"]),
        ("key", p![]),
        ("narrow", p![("B", "A")]),
        ("replicated", p![]),
        ("rows", p!["B"]),
        ("scalar", p![]),
    ];
    let mut all = model(value);
    for (name, spec) in specs {
        let x = all[name].put(&mesh, spec).ready()?;
        all.insert(name, x);
    }
    Ok(all)
}
/// Checks the blocks of this process. It sends no message.
fn check(read: &Model, value: i32) -> Result<()> {
    for (name, one) in &model(value) {
        let words = |x: &Array| match x.dtype() {
            Ok(DType::Key) => Key::from_array(x.clone()).data(),
            _ => x.clone(),
        };
        compare(name, &words(&read[name]), &words(one), &mut BTreeMap::new())?;
    }
    Ok(())
}

/// Saves a model in all forms.
fn save_all(model: &Model, folder: &Path) -> Result<()> {
    tree::save_npy(model, folder.join("tree"))?;
    tree::save_safetensors(model, folder.join("one.safetensors"))?;
    let options = SaveOptions::default().max_file_bytes(100).metadata([("step", 7)]);
    tree::save_safetensors_with(model, folder.join("several"), options)?;
    model["columns"].save_npy(folder.join("columns.npy"))?;
    let mut saves = Checkpoints::new(folder.join("checkpoints"))?.keep(2);
    for step in [1, 2, 3] {
        saves.save(step, model)?;
    }
    saves.wait()
}

/// The processes save a model, and read it again.
pub(crate) fn save() -> Result<()> {
    let cluster = init()?;
    let model = placed(5)?;
    save_all(&model, &folder().join("together"))?;
    println!("saved");
    check_all(&folder().join("together"))?;
    // a step that is damaged is skipped by all
    if cluster.process() == 0 {
        let file = folder().join("together/checkpoints/step-00000003/model.safetensors");
        let mut bytes = std::fs::read(&file).map_err(Error::other)?;
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(file, bytes).map_err(Error::other)?;
    }
    cluster.barrier("a step is damaged")?;
    let mut saves = Checkpoints::new(folder().join("together/checkpoints"))?;
    let found = saves.restore(&placed(0)?)?.expect("a complete step");
    assert_eq!((found.step, found.skipped.len()), (2, 1));
    check(&found.tree, 5)?;
    errors(&cluster)?;
    cluster.barrier("the end")
}

/// Reads a model from files of all forms.
fn check_all(folder: &Path) -> Result<()> {
    let like = placed(0)?;
    check(&tree::load_npy(&like, folder.join("tree"))?, 5)?;
    check(&tree::load_safetensors(&like, folder.join("one.safetensors"))?, 5)?;
    check(&tree::load_safetensors(&like, folder.join("several"))?, 5)?;
    let mut saves = Checkpoints::new(folder.join("checkpoints"))?;
    check(&saves.restore_step(3, &like)?.tree, 5)?;
    let found = saves.restore(&like)?.expect("a complete step");
    assert_eq!((found.step, saves.steps()?), (3, vec![2, 3]));
    check(&found.tree, 5)?;
    let mesh = Mesh::new([("X", 4)])?;
    let columns = Array::load_npy_to(folder.join("columns.npy"), &mesh, p![_, "X"])?;
    compare("columns", &columns, &model(5)["columns"], &mut BTreeMap::new())
}

/// Errors of one process are errors of all.
fn errors(cluster: &Cluster) -> Result<()> {
    let model = placed(5)?;
    let error = tree::save_safetensors(&model, folder().join("nowhere/x.safetensors")).unwrap_err();
    assert!(cluster.process() == 0 || error.unquoted().contains("process 0 ("), "{error}");
    // an integer that does not fit, in the block of one process
    let mesh = Mesh::new([("X", 4)])?;
    let large = Array::from([1, 2, 3, 1 << 20]).put(&mesh, p!["X"]);
    let file = folder().join("large.safetensors");
    tree::save_safetensors(&large, &file)?;
    let like = Array::zeros(U8.array_type([4])).put(&mesh, p!["X"]);
    let options = tree::LoadOptions::default().cast();
    let error = tree::load_safetensors_with(&like, &file, options).unwrap_err().unquoted();
    assert!(error.contains("an element of int32 does not fit into uint8"), "{error}");
    let last = cluster.processes() - 1;
    assert!(cluster.process() == last || error.contains(&format!("process {last} (")), "{error}");
    // a file that is not there
    let error = Array::load_npy_to(folder().join("no.npy"), &mesh, p!["X"]).unwrap_err().unquoted();
    assert!(error.contains("no.npy"), "{error}");
    Ok(())
}

/// Other processes, or one, read the files.
pub(crate) fn load() -> Result<()> {
    let _cluster = init()?;
    check_all(&folder().join("alone"))
}

fn same_files(a: &Path, b: &Path) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir(a).unwrap() {
        let path = entry.unwrap().path();
        let other = b.join(path.file_name().unwrap());
        match path.is_dir() {
            true => count += same_files(&path, &other),
            false => {
                assert!(
                    std::fs::read(&path).unwrap() == std::fs::read(&other).unwrap(),
                    "{}",
                    path.display()
                );
                count += 1;
            }
        }
    }
    assert_eq!(std::fs::read_dir(a).unwrap().count(), std::fs::read_dir(b).unwrap().count());
    count
}

#[test]
fn files_of_several_processes_are_those_of_one() {
    let folder = new_folder();
    for (processes, devices) in [(2, 2), (4, 1)] {
        let _ = std::fs::remove_dir_all(folder.path().join("together"));
        let _ = std::fs::remove_dir_all(folder.path().join("alone"));
        let Some(all) = start_with("save", processes, devices, &[variable(folder.path())]) else { return };
        save_all(&placed(5).unwrap(), &folder.path().join("alone")).unwrap();
        all.iter().for_each(|process| process.wait_for("saved"));
        wait_all(all, LIMIT).iter().for_each(Ended::assert_success);
        // (the children damage a file after they have compared it)
        let _ = std::fs::remove_dir_all(folder.path().join("together/checkpoints/step-00000003"));
        let alone = folder.path().join("alone");
        std::fs::rename(alone.join("checkpoints/step-00000003"), folder.path().join("step")).unwrap();
        let count = same_files(&folder.path().join("together"), &alone);
        assert!(count > 20, "{count}");
        std::fs::rename(folder.path().join("step"), alone.join("checkpoints/step-00000003")).unwrap();
        let Some(all) = start_with("load", processes, devices, &[variable(folder.path())]) else { return };
        wait_all(all, LIMIT).iter().for_each(Ended::assert_success);
    }
}

/// Saves steps until another process dies.
pub(crate) fn save_until_it_fails() -> Result<()> {
    let _cluster = init()?;
    let mesh = Mesh::new([("X", 3)])?;
    let file = folder().join("model.safetensors");
    let mut saves = Checkpoints::new(folder().join("checkpoints"))?.keep(2);
    for step in 1.. {
        let x = Array::full([3, 1 << 18], step).astype(I32).put(&mesh, p!["X"]);
        tree::save_safetensors(&x, &file)?;
        saves.save(step as u64, &x)?;
        println!("saved {step}");
    }
    Ok(())
}

/// Returns the names of the entries of a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    entries.map(|name| name.into_string().unwrap()).collect()
}

#[test]
fn a_death_while_saving_leaves_the_file_before() {
    for rank in [0, 1, 2] {
        let folder = new_folder();
        let Some(mut all) = start_with("save until killed", 3, 1, &[variable(folder.path())]) else { return };
        all.iter().for_each(|process| process.wait_for("saved 2"));
        // in the middle of a save
        let is_part = |name: &str| name.starts_with("model.safetensors") && name.ends_with(".part");
        let has_part = || names(folder.path()).iter().any(|name| is_part(name));
        let end = Instant::now() + LIMIT;
        while !has_part() {
            assert!(Instant::now() < end);
        }
        let victim = all.remove(rank);
        let name = format!("pid {}) is gone", victim.pid());
        let killed = now_ms();
        victim.kill();
        for ended in wait_all(all, LIMIT) {
            let (time, error) = ended.error();
            assert!(error.contains(&name), "{error}");
            assert!(time.saturating_sub(killed) < 2000, "{} ms: {error}", time - killed);
        }
        // process 0 may die before it has named its temporary file
        assert!(rank == 0 || !has_part(), "{:?}", names(folder.path()));
        // one process reads what they have left
        let value = |x: &Array| {
            let all = x.to_vec::<i32>().unwrap();
            assert!(all.len() == 3 << 18 && all.iter().all(|x| *x == all[0]));
            all[0]
        };
        let read = tree::read_safetensors(folder.path().join("model.safetensors")).unwrap();
        let saved = value(&read["array"]);
        let like = I32.array_type([3, 1 << 18]);
        let found = Checkpoints::new(folder.path().join("checkpoints")).unwrap().restore(like).unwrap();
        let found = found.expect("a complete step");
        assert_eq!((value(&found.tree) as u64, found.skipped.len()), (found.step, 0));
        println!("the file has step {saved}, the last checkpoint is step {}", found.step);
        assert!(saved >= 2 && found.step >= 1 && found.step as i32 >= saved - 2);
    }
}

/// Returns the number of rows and columns of a large array.
fn large_size() -> usize {
    let bytes: f64 = std::env::var(BYTES).unwrap().parse().unwrap();
    (bytes / 4.0).sqrt() as usize
}
/// Returns the elements of a block of the large array: the row plus the column, modulo a prime.
fn large_block(index: &[std::ops::Range<usize>]) -> Array {
    let (rows, columns) = (index[0].clone(), index[1].clone());
    let mut elements = Vec::with_capacity(rows.len() * columns.len());
    for row in rows.clone() {
        elements.extend(columns.clone().map(|column| ((row + column) % 8191) as f32));
    }
    // `Array::from` copies the elements, which are not counted as memory of arrays
    Array::from(elements).reshape([rows.len(), columns.len()])
}
/// Measures the memory of arrays while `f` runs, and prints it as a part of this process's share.
fn measured<R>(what: &str, share: usize, f: impl FnOnce() -> Result<R>) -> Result<R> {
    atmesh::runtime::trim();
    let before = memory_stats().bytes_in_use;
    let (done, watched) = (std::sync::atomic::AtomicBool::new(false), std::sync::atomic::Ordering::Relaxed);
    let started = Instant::now();
    let (result, peak) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut peak = 0;
            while !done.load(watched) {
                peak = peak.max(memory_stats().bytes_in_use);
                std::thread::sleep(Duration::from_micros(200));
            }
            peak
        });
        let result = f();
        done.store(true, watched);
        (result, watch.join().unwrap())
    });
    let (time, part) = (started.elapsed().as_secs_f64(), (peak - before.min(peak)) as f64 / share as f64);
    println!("memory of {what}: {part:.3} of the share, {time:.1} s");
    result
}

/// Saves a large array by rows and by columns.
pub(crate) fn save_much() -> Result<()> {
    let cluster = init()?;
    let n = large_size();
    let mesh = Mesh::new([("X", cluster.devices())])?;
    for (name, spec) in [("rows", p!["X"]), ("columns", p![_, "X"])] {
        let share = n * n * 4 / cluster.processes();
        let file = folder().join(format!("{name}.safetensors"));
        let sharding = Sharding::new(&mesh, spec, &[n, n])?;
        measured(&format!("from_fn and saving by {name}"), share, || {
            let x = Array::from_fn([n, n], &sharding, large_block)?;
            tree::save_safetensors(&x, file)
        })?;
    }
    cluster.barrier("the end")
}
/// Loads the arrays by rows and by columns, and compares them.
pub(crate) fn load_much() -> Result<()> {
    let cluster = init()?;
    let n = large_size();
    let mesh = Mesh::new([("X", cluster.devices())])?;
    let share = n * n * 4 / cluster.processes();
    for (name, spec) in [("rows", p!["X"]), ("columns", p![_, "X"]), ("rows", p![_, "X"])] {
        let file = folder().join(format!("{name}.safetensors"));
        let like = F32.array_type([n, n]).on(&mesh, spec);
        let options = tree::LoadOptions::default();
        let read = measured(&format!("loading {name} as {spec}"), share, || {
            tree::load_safetensors_with(like, file, options)
        })?;
        for shard in read.shards()? {
            let (data, index) = (shard.data.view::<f32>()?, &shard.index);
            let columns = index[1].len();
            let is_right = |(k, x): (usize, &f32)| {
                let (row, column) = (index[0].start + k / columns, index[1].start + k % columns);
                *x == ((row + column) % 8191) as f32
            };
            assert!(data.iter().enumerate().step_by(997).all(is_right));
        }
    }
    cluster.barrier("the end")
}

#[test]
fn a_process_has_the_memory_of_its_share_only() {
    let folder = new_folder();
    let bytes = if runs_all() { 1 << 30 } else { 1 << 28 };
    let more = [variable(folder.path()), (BYTES, bytes.to_string())];
    for (role, processes, devices) in [("save much", 4, 1), ("load much", 2, 2)] {
        let Some(all) = start_with(role, processes, devices, &more) else { return };
        for ended in wait_all(all, LIMIT * if runs_all() { 10 } else { 1 }) {
            ended.assert_success();
            for line in ended.stdout.lines().filter_map(|line| line.split_once("memory of ")) {
                let line = line.1;
                println!("{line}");
                let part: f64 = line.split_once(": ").unwrap().1.split(' ').next().unwrap().parse().unwrap();
                assert!((0.4..1.15).contains(&part), "{line}");
            }
        }
    }
}
