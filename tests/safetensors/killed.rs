//! Programs that are killed while they save, and the memory that a save takes. Both run in a child
//! process: the same test, with `ATMESH_CHECKPOINTS_CHILD` set.

use crate::{Scratch, soak};
use atmesh::Args;
use atmesh::prelude::*;
use atmesh::runtime::memory_stats;
use atmesh::tree::{Checkpoints, SaveOptions};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CHILD: &str = "ATMESH_CHECKPOINTS_CHILD";
const NUM_ELEMENTS: usize = 50_000;

/// Starts a test of this program in a child process.
fn child(test: &str, folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}
fn types() -> Vec<Array> {
    vec![F32.array_type([NUM_ELEMENTS]).into_tree(); 3]
}

/// Trains until it is killed: all elements are the number of the step.
fn train(folder: &Path) {
    let mut saves = Checkpoints::new(folder).unwrap().keep(2);
    let step = jit(|w: Vec<Array>| tree::map(&w, |w| w + 1.0)).donate(0);
    let (mut w, mut n) = ((0..3).map(|_| Array::zeros([NUM_ELEMENTS])).collect::<Vec<_>>(), 0);
    if let Some(found) = saves.restore(types()).unwrap() {
        (w, n) = (found.tree, found.step);
    }
    loop {
        n += 1;
        w = step.call(w).unwrap();
        let options = SaveOptions::default().max_file_bytes(8 * NUM_ELEMENTS).metadata([("offset", 10 * n)]);
        saves.save_with(n, &w, options).unwrap();
    }
}

/// After each kill there is a complete step, no older than the last one that was found.
#[test]
fn a_killed_program_leaves_a_complete_step() {
    if let Some(folder) = std::env::var_os(CHILD) {
        return train(Path::new(&folder));
    }
    let folder = Scratch::new("killed");
    let mut rng = fastrand::Rng::with_seed(7);
    let (mut last, mut interrupted) = (0, 0);
    for _ in 0..if soak::runs_all() { 100 } else { 4 } {
        let mut running = child("killed::a_killed_program_leaves_a_complete_step", &folder.0);
        let mut saves = Checkpoints::new(&folder).unwrap();
        let started = Instant::now();
        while saves.steps().unwrap().last().is_none_or(|step| *step <= last) {
            assert!(running.try_wait().unwrap().is_none(), "the child ended");
            assert!(started.elapsed() < Duration::from_secs(60), "nothing was saved");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(rng.u64(0..30_000)));
        running.kill().unwrap();
        running.wait().unwrap();
        let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
        interrupted += entries.filter(|name| name.to_string_lossy().ends_with(".part")).count().min(1);
        let found = saves.restore(types()).unwrap().expect("a step is complete");
        assert!(found.skipped.is_empty() && found.step > last);
        assert_eq!(found.value::<u64>("offset").unwrap(), 10 * found.step);
        for w in &found.tree {
            assert!(w.to_vec::<f32>().unwrap().iter().all(|x| *x == found.step as f32));
        }
        last = found.step;
    }
    println!("step {last}; {interrupted} saves were interrupted");
}

/// A save needs the memory of one tensor at most, also for arrays that are views of others.
#[test]
fn a_save_takes_the_memory_of_one_tensor() {
    let Some(folder) = std::env::var_os(CHILD) else {
        let folder = Scratch::folder("memory");
        let status = child("killed::a_save_takes_the_memory_of_one_tensor", &folder.0).wait().unwrap();
        assert!(status.success());
        return;
    };
    // arrays of 1 MiB: larger ones let the recorded peak decay
    const BYTES: usize = 1 << 20;
    let mesh = Mesh::new([("X", 4)]).unwrap();
    let elements = BYTES / 4;
    let plain = |k: usize| Array::from(vec![k as f32; elements]).put(&mesh, p!["X"]);
    let shift = shard_map(&mesh, p!["X"], p!["X"], |x: Array| x.ppermute("X", Permutation::ring(1)));
    let mut state: Vec<Array> = (0..16).map(plain).collect();
    for k in 0..8 {
        state.push(shift.call(&plain(k)).unwrap());
    }
    // the peak so far includes what the calls above needed: arrays that are dropped raise it further
    let ballast: Vec<Array> = (0..8).map(plain).collect();
    let top = memory_stats().peak_bytes_in_use;
    let filled: Vec<Array> = (0..(top - memory_stats().bytes_in_use) / BYTES).map(plain).collect();
    let before = memory_stats();
    assert!(before.peak_bytes_in_use - before.bytes_in_use < BYTES);
    let mut saves = Checkpoints::new(Path::new(&folder).join("steps")).unwrap();
    saves.save_with(1, &state, SaveOptions::default().max_file_bytes(5 * BYTES)).unwrap();
    saves.wait().unwrap();
    let after = memory_stats();
    assert!(after.peak_bytes_in_use <= before.bytes_in_use + BYTES + 4096, "{before:?}, {after:?}");
    assert!(after.bytes_in_use <= before.bytes_in_use + 4096, "{before:?}, {after:?}");
    let found = saves.restore(&state).unwrap().unwrap();
    assert_eq!(found.tree[15].to_vec::<f32>().unwrap()[7], 15.0);
    drop((ballast, filled));
}
