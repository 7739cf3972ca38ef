//! The programs of the child processes.

use crate::supervisor::now_ms;
use atmesh::distributed::{Cluster, init};
use atmesh::{Array, Mesh, Result};
use std::time::{Duration, Instant};

/// Runs a role, and returns the exit code: 3 after an error, which is printed with its time.
pub(crate) fn run(role: &str) -> i32 {
    let result = match role {
        "calls" => calls(),
        "alone" => alone(),
        "barriers" => barriers(),
        "idle" => idle(),
        "slow" => slow(),
        "differ" => differ(),
        "early end" => early_end(),
        "panic" => panic_in_one(),
        "exit" => exit_of_one(),
        "twice" => twice(),
        "join" => join_only(),
        "mesh" => mesh_without_plugin(),
        _ => panic!("there is no role {role}"),
    };
    match result {
        Ok(()) => 0,
        Err(error) => {
            println!("failed at {}: {error}", now_ms());
            3
        }
    }
}

fn joined() -> Result<Cluster> {
    let cluster = init()?;
    println!("joined {cluster:?}");
    Ok(cluster)
}

fn join_only() -> Result<()> {
    joined().map(drop)
}

/// Arrays on no mesh are computed in each process; there is no engine for a mesh.
fn mesh_without_plugin() -> Result<()> {
    let cluster = joined()?;
    let rank = cluster.process() as i32;
    assert_eq!((Array::arange(0..3) + rank).to_vec::<i32>()?, [rank, rank + 1, rank + 2]);
    assert!(Mesh::without_devices([("X", 64)]).is_ok());
    cluster.barrier("arrays on no mesh")?;
    Mesh::new([("X", cluster.devices())]).map(drop)
}

/// A few calls, whose results are checked.
fn calls() -> Result<()> {
    let cluster = joined()?;
    for round in 0..20u8 {
        cluster.barrier("round")?;
        let own = [cluster.process() as u8, round];
        assert_eq!(cluster.broadcast(&own)?, [0, round]);
    }
    let large = cluster.broadcast(&vec![7; 3 << 20])?;
    assert!(large.len() == 3 << 20 && large.iter().all(|b| *b == 7));
    println!("done");
    Ok(())
}

/// Counts threads and sockets before and after.
fn alone() -> Result<()> {
    let count = || {
        let entries = |folder: &str| std::fs::read_dir(folder).unwrap().flatten().map(|e| e.path());
        let sockets = entries("/proc/self/fd").filter(|path| {
            std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("socket"))
        });
        (entries("/proc/self/task").count(), sockets.count())
    };
    let before = count();
    let cluster = joined()?;
    cluster.barrier("alone")?;
    assert_eq!(cluster.broadcast(b"bytes")?, b"bytes");
    assert_eq!((cluster.process(), cluster.processes(), cluster.local_process()), (0, 1, 0));
    println!("counts {before:?} {:?}", count());
    Ok(())
}

/// Barriers until something fails.
fn barriers() -> Result<()> {
    let cluster = joined()?;
    let seconds = std::env::var("ATMESH_TEST_SECONDS").map_or(60.0, |s| s.parse().unwrap());
    let start = Instant::now();
    loop {
        // all processes must agree on the last round
        let goes_on = cluster.broadcast(&[u8::from(start.elapsed().as_secs_f64() < seconds)])?;
        cluster.barrier("step")?;
        if goes_on == [0] {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Host code that asks from time to time whether the others live.
fn idle() -> Result<()> {
    let cluster = joined()?;
    for _ in 0..6000 {
        cluster.check()?;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// One process needs 3 s of host code.
fn slow() -> Result<()> {
    let cluster = joined()?;
    cluster.barrier("first")?;
    if cluster.process() == 1 {
        std::thread::sleep(Duration::from_secs(3));
    }
    cluster.barrier("second")
}

/// Process 1 makes another call.
fn differ() -> Result<()> {
    let cluster = joined()?;
    cluster.barrier("same")?;
    match cluster.process() {
        1 => cluster.barrier("other"),
        _ => cluster.barrier("usual"),
    }
}

/// The last process makes one call less.
fn early_end() -> Result<()> {
    let cluster = joined()?;
    cluster.barrier("same")?;
    if cluster.process() + 1 < cluster.processes() { cluster.barrier("one more") } else { Ok(()) }
}

fn panic_in_one() -> Result<()> {
    let cluster = joined()?;
    cluster.barrier("same")?;
    assert!(cluster.process() != 1, "a panic of process 1");
    cluster.barrier("after it")
}

/// A process that ends without dropping its cluster.
fn exit_of_one() -> Result<()> {
    let cluster = joined()?;
    cluster.barrier("same")?;
    if cluster.process() == 1 {
        std::process::exit(5);
    }
    cluster.barrier("after it")
}

fn twice() -> Result<()> {
    let _cluster = joined()?;
    init().map(drop)
}
