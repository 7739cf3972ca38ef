//! Measures copies of large data to and from the host on all cores and on one: "Host data" in `benches/history/2026-11.md`.
//! "Host data" of `benches/README.md`.
//!
//! `cargo bench --bench host`
use atmesh::prelude::*;
use ndarray::Array2;
use std::process::Command;
use std::time::Instant;

/// The rows and columns of the array: 64 MiB of float32.
const N: usize = 4096;

type Answer<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Answer<()> {
    // A child process runs this program again with the given number of threads.
    if std::env::var_os("RAYON_NUM_THREADS").is_some() {
        times()?.iter().for_each(|(name, least)| println!("{least} {name}"));
        return Ok(());
    }
    let this = std::env::current_exe()?;
    let run = |threads: &str| -> Answer<Vec<(f64, String)>> {
        let out = Command::new(&this).env("RAYON_NUM_THREADS", threads).output()?;
        let lines = String::from_utf8(out.stdout)?;
        let line =
            |l: &str| l.split_once(' ').and_then(|(t, name)| Some((t.parse().ok()?, name.to_string())));
        Ok(lines.lines().filter_map(line).collect())
    };
    let all = std::thread::available_parallelism()?.to_string();
    let mut rows = Vec::new();
    // The two runs alternate, so that other load on the machine affects both.
    for _ in 0..5 {
        let (of_all, of_one) = (run(&all)?, run("1")?);
        rows.resize(of_all.len(), (String::new(), f64::INFINITY, f64::INFINITY));
        for ((row, (all, name)), (one, _)) in rows.iter_mut().zip(of_all).zip(of_one) {
            *row = (name, row.1.min(all), row.2.min(one));
        }
    }
    println!("| 64 MiB of float32 | {all} cores, ms | 1 core, ms |\n|---|---|---|");
    rows.iter().for_each(|(name, all, one)| println!("| {name} | {all:.1} | {one:.1} |"));
    Ok(())
}

/// Returns the minimum time of each way of loading or storing data, in milliseconds.
fn times() -> Result<Vec<(&'static str, f64)>> {
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    let x = Key::new(0).uniform([N, N]);
    let (columns, y) = (x.put(&mesh, p![_, "Y"]), &x + 1e-9);
    let host = Array2::<f32>::from_shape_fn((N, N), |(i, j)| (i * 3 + j) as f32);
    let sharding = Sharding::new(&mesh, p![_, "Y"], &[N, N])?;
    let pieces: Vec<Array> = columns.shards()?.into_iter().map(|s| s.data).collect();
    let path = std::env::temp_dir().join(format!("atmesh-host-{}.npy", std::process::id()));
    let turned = fortran(&host);
    std::fs::write(&path, turned).map_err(atmesh::Error::other)?;
    let times = vec![
        ("`to_vec`", least(|| x.to_vec::<f32>().map(drop))?),
        ("`to_ndarray`", least(|| x.to_ndarray::<f32>().map(drop))?),
        ("`Array::from` of a transposed `ndarray`", least(|| Array::from(host.t()).ready().map(drop))?),
        ("`allclose`", least(|| x.allclose(&y).map(drop))?),
        (
            "`from_shards`, columns over 4 of 8 devices",
            least(|| Array::from_shards([N, N], &sharding, pieces.clone()).map(drop))?,
        ),
        ("`load_npy`, first dimension fastest, bytes turned", least(|| Array::load_npy(&path).map(drop))?),
    ];
    std::fs::remove_file(&path).map_err(atmesh::Error::other)?;
    Ok(times)
}

/// Returns the minimum time of a few calls, in milliseconds.
fn least(mut f: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..12 {
        let start = Instant::now();
        f()?;
        best = best.min(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(best)
}

/// Returns the bytes of a big-endian `.npy` file in Fortran order.
fn fortran(x: &Array2<f32>) -> Vec<u8> {
    let header = format!("{{'descr': '>f4', 'fortran_order': True, 'shape': ({N}, {N}), }}");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&118u16.to_le_bytes());
    bytes.extend_from_slice(format!("{header:<117}\n").as_bytes());
    bytes.extend(x.t().iter().flat_map(|x| x.to_be_bytes()));
    bytes
}
