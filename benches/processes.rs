//! Measures small calls of a program of one process, with and without `distributed::init`.
//!
//! `cargo bench --bench processes`
use atmesh::prelude::*;
use std::process::Command;
use std::time::Instant;

/// The environment variable that makes this program a child, and says whether it calls `init`.
const CHILD: &str = "ATMESH_BENCH_INIT";
const ROUNDS: usize = 60;
const REPEATS: usize = 400;
/// The number of calls that are timed together: one takes less than a microsecond.
const CALLS: usize = 8;

type Answer<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Answer<()> {
    if let Ok(init) = std::env::var(CHILD) {
        let cluster = if init == "yes" { Some(atmesh::distributed::init()?) } else { None };
        times()?.iter().for_each(|(name, nanoseconds)| println!("{nanoseconds} {name}"));
        drop(cluster);
        return Ok(());
    }
    let mut rows: Vec<(String, [f64; 2])> = Vec::new();
    // The two kinds of runs alternate, so that other load on the machine affects both.
    for _ in 0..ROUNDS {
        for (k, init) in ["no", "yes"].into_iter().enumerate() {
            let out = Command::new(std::env::current_exe()?).env(CHILD, init).output()?;
            for line in String::from_utf8(out.stdout)?.lines() {
                let (time, name) = line.split_once(' ').ok_or("a line of a child has a time and a name")?;
                let time: f64 = time.parse()?;
                match rows.iter_mut().find(|(known, _)| known == name) {
                    Some((_, times)) => times[k] = times[k].min(time),
                    None => {
                        rows.push((name.into(), [f64::INFINITY; 2]));
                        rows.last_mut().ok_or("a row")?.1[k] = time;
                    }
                }
            }
        }
    }
    println!("| call | without `init`, µs | with `init`, µs | ratio |\n|---|---|---|---|");
    for (name, [without, with]) in rows {
        println!("| {name} | {:.3} | {:.3} | {:.3} |", without / 1e3, with / 1e3, with / without);
    }
    Ok(())
}

/// Returns the minimum time of each small call, in nanoseconds.
fn times() -> Result<Vec<(&'static str, f64)>> {
    let mesh = Mesh::new([("X", 2)])?;
    let (x, y) = (Array::ones([4]), Array::ones([4]));
    let placed = Array::ones([4]).put(&mesh, p!["X"]);
    let step = jit(|x: &Array, y: &Array| (x * 2.0 + y).sum(..));
    Ok(vec![
        ("eager `x + y` of 4 elements", least(|| (&x + &y).ready().map(drop))?),
        ("eager `x + x` on 2 devices", least(|| (&placed + &placed).ready().map(drop))?),
        ("`jit` call of 3 operations", least(|| step.call((&x, &y)).map(drop))?),
        ("`put` of 4 elements", least(|| x.put(&mesh, p!["X"]).ready().map(drop))?),
        ("`to_vec` of 4 elements", least(|| placed.to_vec::<f32>().map(drop))?),
    ])
}

/// Returns the minimum time of a call, in nanoseconds.
fn least(mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    for _ in 0..100 {
        call()?;
    }
    let mut min = f64::INFINITY;
    for _ in 0..REPEATS {
        let start = Instant::now();
        for _ in 0..CALLS {
            call()?;
        }
        min = min.min(start.elapsed().as_nanos() as f64 / CALLS as f64);
    }
    Ok(min)
}
