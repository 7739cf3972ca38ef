//! Compares atmesh with other ways of writing the same program, and with the limits of the machine.
//!
//! `cargo run --release -- [--lines NAME,…] [--sides NAME,…] [--seconds S] [--rounds N]`, in this
//! folder. Each workload of each implementation runs in a separate process; the implementations
//! alternate, round by round. A table of the minimum times follows. Prefix the command with
//! `taskset -c 1` to measure on one core.

mod bench;
mod candle;
mod faer;
mod hand;
mod limit;
mod ndarray;
mod ours;

use bench::{Case, Figure};
use std::collections::BTreeMap;
use std::process::Command;

type Side = fn(&str) -> Option<Case>;

const SIDES: &[(&str, Side)] = &[
    ("limit", limit::line),
    ("atmesh", ours::one),
    ("atmesh-8", ours::eight),
    ("atmesh-eager", ours::eager),
    ("hand", hand::line),
    ("ndarray", ndarray::line),
    ("faer", faer::line),
    ("candle", candle::line),
];

/// All workloads. An implementation may lack some of them.
const LINES: &[&str] = &[
    "affine/64",
    "affine/4096",
    "affine/8192",
    "sin/64",
    "sin/4096",
    "sin/8192",
    "sum/8192",
    "matmul/256",
    "matmul/1024",
    "matmul/2048",
    "matvec/4096",
    "logistic",
    "mlp",
    "heat1d",
    "stencil2d",
    "softmax",
    "softmax_grad",
    "layernorm",
    "layernorm_grad",
    "attention",
    "attention_grad",
    "transformer",
    "from_vec",
    "to_vec",
    "add",
    "chain",
];

struct Options {
    lines: Vec<String>,
    sides: Vec<String>,
    seconds: f64,
    rounds: usize,
    /// Measures one workload of one implementation in this process, and prints the result.
    here: bool,
}

fn options() -> Options {
    let mut o = Options { lines: vec![], sides: vec![], seconds: 0.4, rounds: 2, here: false };
    let mut args = std::env::args().skip(1);
    let list = |s: Option<String>| s.unwrap_or_default().split(',').map(str::to_string).collect();
    while let Some(a) = args.next() {
        match a.as_str() {
            "--lines" => o.lines = list(args.next()),
            "--sides" => o.sides = list(args.next()),
            "--seconds" => {
                o.seconds = args.next().and_then(|s| s.parse().ok()).expect("--seconds takes a number")
            }
            "--rounds" => {
                o.rounds = args.next().and_then(|s| s.parse().ok()).expect("--rounds takes a number")
            }
            "--here" => o.here = true,
            _ => panic!("{a}: this option is not known"),
        }
    }
    o
}

fn main() {
    let o = options();
    let asked = |list: &[String], name: &str| {
        list.is_empty() || list.iter().any(|n| n == name || name.split('/').next() == Some(n))
    };
    if o.here {
        let (_, side) = SIDES.iter().find(|s| s.0 == o.sides[0]).expect("a side of the list");
        if let Some(case) = side(&o.lines[0]) {
            let f = case.measure(o.seconds);
            println!("{:e} {:e} {:e} {:e} {:e}", f.median, f.least, f.cpu, f.first, f.check);
        }
        return;
    }
    let sides: Vec<&str> = SIDES.iter().map(|s| s.0).filter(|s| asked(&o.sides, s)).collect();
    println!("{} workers", std::thread::available_parallelism().map_or(1, usize::from));
    for name in limit::NAMES {
        if sides.contains(&"limit") {
            let all: Vec<Figure> =
                (0..o.rounds).filter_map(|_| elsewhere("limit", name, o.seconds)).collect();
            let least = all.iter().map(|f| f.least).fold(f64::INFINITY, f64::min);
            println!("limit {name}: {:.1} {}", limit::amount(name) / least / 1e9, limit::unit(name));
        }
    }
    println!("\n| line | {} | check |\n|{}", sides[1..].join(" | "), "---|".repeat(sides.len() + 1));
    for line in LINES.iter().filter(|l| asked(&o.lines, l)) {
        let mut best: BTreeMap<&str, Figure> = BTreeMap::new();
        for round in 0..o.rounds {
            for k in 0..sides.len() {
                let side = sides[(k + round) % sides.len()];
                let Some(f) = elsewhere(side, line, o.seconds) else { continue };
                let b = best.entry(side).or_insert(f);
                b.least = b.least.min(f.least);
                b.median = b.median.min(f.median);
                b.cpu = b.cpu.min(f.cpu);
            }
        }
        let cell = |s: &&str| {
            best.get(*s).map_or(String::new(), |f| format!("{} ({})", micros(f.least), micros(f.cpu)))
        };
        let cells: Vec<String> = sides.iter().filter(|s| **s != "limit").map(cell).collect();
        let checks: Vec<f64> = best.values().map(|f| f.check).filter(|c| *c != 0.0).collect();
        let (low, high) = checks.iter().fold((f64::INFINITY, 0f64), |(l, h), c| (l.min(*c), h.max(*c)));
        let same = if checks.is_empty() || high - low <= 1e-4 * high { "equal" } else { "DIFFERENT" };
        println!("| {line} | {} | {same} |", cells.join(" | "));
    }
    println!(
        "\nMicroseconds a call, least wall time; in brackets CPU time of all threads, the least mean of a round."
    );
}

/// Measures a workload in a separate process, so that no implementation inherits memory from
/// another one.
fn elsewhere(side: &str, line: &str, seconds: f64) -> Option<Figure> {
    let me = std::env::current_exe().expect("the program's own path");
    let seconds = seconds.to_string();
    let out =
        Command::new(me).args(["--here", "--sides", side, "--lines", line, "--seconds", &seconds]).output();
    let out = out.expect("the program runs itself");
    if !out.status.success() {
        eprintln!("{side}, {line}: {}", String::from_utf8_lossy(&out.stderr));
        return None;
    }
    let text = String::from_utf8(out.stdout).ok()?;
    let v: Vec<f64> = text.split_whitespace().filter_map(|x| x.parse().ok()).collect();
    let [median, least, cpu, first, check] = v[..] else { return None };
    Some(Figure { median, least, cpu, first, check })
}

fn micros(seconds: f64) -> String {
    let x = seconds * 1e6;
    match x {
        x if x < 10.0 => format!("{x:.2}"),
        x if x < 100.0 => format!("{x:.1}"),
        x => format!("{x:.0}"),
    }
}
