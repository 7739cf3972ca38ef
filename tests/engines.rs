//! Engines that a program registers: they run the same programs as the built-in ones, and their
//! faults are errors.

mod error_checks;

use atmesh::engine::{CompileRequest, Engine, Executable, ExecutionReport, Failure};
use atmesh::prelude::*;
use atmesh::program::{Input, Op};
use atmesh::runtime::ArrayData;
use atmesh::{Error, ErrorKind};
use error_checks::Unquoted as _;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

/// An engine that runs each program in lock-step and on device threads, and compares the bits.
struct Twice;
struct Both([Arc<dyn Executable>; 2]);
static CALLS: AtomicUsize = AtomicUsize::new(0);

impl Engine for Twice {
    fn compile(&self, job: CompileRequest<'_>) -> Result<Arc<dyn Executable>> {
        assert_eq!(job.program().outputs.len(), job.spmd().outs.len());
        let one = |engine| job.delegate_to(engine);
        Ok(Arc::new(Both([one(EngineKind::Lockstep)?, one(EngineKind::Threads)?])))
    }
}
impl Executable for Both {
    fn call(&self, args: &mut [ArrayData]) -> Result<Vec<ArrayData>, Failure> {
        CALLS.fetch_add(1, Relaxed);
        let first = self.0[1].call(&mut args.to_vec())?;
        let second = self.0[0].call(args)?;
        let bits = |all: &[ArrayData]| {
            all.iter().map(|s| Ok(format!("{:?}", words(s)?))).collect::<Result<Vec<_>>>()
        };
        assert_eq!(bits(&first)?, bits(&second)?, "one program");
        Ok(second)
    }
    fn report(&self) -> ExecutionReport {
        self.0[0].report()
    }
}
/// Formats the elements as they are printed.
fn words(s: &ArrayData) -> Result<Vec<String>> {
    s.contiguous()?;
    Ok(match s.dtype() {
        F32 => s.elements::<f32>().iter().map(|x| x.to_bits().to_string()).collect(),
        I32 => s.elements::<i32>().iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    })
}

fn twice() -> EngineKind {
    static TWICE: LazyLock<EngineKind> =
        LazyLock::new(|| EngineKind::register("twice", Twice).unwrap_or_else(|e| panic!("{e}")));
    *TWICE
}

#[test]
fn an_engine_of_ones_own_runs_all_programs() -> Result<()> {
    let engine = twice();
    assert_eq!((engine.to_string(), format!("{engine:?}")), ("twice".into(), "Custom(twice)".into()));
    assert_eq!("twice".parse::<EngineKind>()?, engine);
    assert_ne!(engine, EngineKind::Lockstep);
    let before = CALLS.load(Relaxed);
    for mesh in [Mesh::auto([("X", 4)])?, Mesh::new([("X", 4)])?] {
        let x = (Array::arange(0..32).astype(F32) * 0.37).reshape([8, 4]).put(&mesh, p!["X"]);
        let f = |x: &Array| grad(x, |x| fori_loop(0..3, x, |_, x| (x.sin() * 1.1).tanh()).square().sum(..));
        let g = jit(f).engine(engine);
        assert_eq!(g.call(&x)?.to_vec::<f32>()?, jit(f).call(&x)?.to_vec::<f32>()?);
        let report = jit(f).engine(engine).lower(&x)?.compile()?.report();
        assert_eq!(report.engine, "twice");
        let donated = jit(|x: &Array| x * 2.0).engine(engine).donate(0);
        assert_eq!(donated.call(&x + 0.0)?.to_vec::<f32>()?, (&x * 2.0).to_vec::<f32>()?);
        let body =
            |x: &Array| x.all_gather("X", CollectiveDim::tiled(0)).psum_scatter("X", CollectiveDim::tiled(0));
        let f = shard_map(&mesh, p!["X"], p!["X"], body).engine(engine);
        assert_eq!(f.call(&x)?.to_vec::<f32>()?, (&x * 4.0).to_vec::<f32>()?);
    }
    // An unreduced result.
    let mesh = Mesh::new([("X", 2)])?;
    let x = Array::arange(0..8).reshape([2, 4]).put(&mesh, p!["X"]);
    let parts = jit(|x: &Array| x.sum_to(0, p![_; U: "X"])).engine(engine).call(&x)?;
    assert_eq!(type_of(&parts), "int32[4]{U:X}");
    assert_eq!(parts.reshard(p![]).to_vec::<i32>()?, [4, 6, 8, 10]);
    assert_eq!(CALLS.load(Relaxed) - before, 7);
    Ok(())
}

/// An engine that adds two float32 arrays, and delegates all other programs to the reference
/// engine.
struct Adds;
struct Added;

impl Engine for Adds {
    fn compile(&self, job: CompileRequest<'_>) -> Result<Arc<dyn Executable>> {
        let program = job.program();
        let sum = match &program.equations[..] {
            [e] => {
                matches!(&e.op, Op::Prim(p) if p.name() == "add")
                    && e.inputs.iter().all(|i| matches!(i, Input::Var(_)))
            }
            _ => false,
        };
        let plain = program.inputs.iter().all(|v| program.ty(*v).dtype == F32);
        if sum && plain && program.inputs.len() == 2 {
            Ok(Arc::new(Added))
        } else {
            job.delegate_to(EngineKind::Reference)
        }
    }
}
impl Executable for Added {
    fn call(&self, args: &mut [ArrayData]) -> Result<Vec<ArrayData>, Failure> {
        let [a, b] = args else { unreachable!("a sum of two") };
        a.contiguous()?;
        b.contiguous()?;
        let sums: Vec<f32> =
            a.elements::<f32>().iter().zip(b.elements::<f32>()).map(|(a, b)| a + b).collect();
        Ok(vec![ArrayData::from_elements(a.shape().clone(), &sums)?])
    }
    fn report(&self) -> ExecutionReport {
        ExecutionReport::default()
    }
}

#[test]
fn an_engine_may_compute_by_itself() -> Result<()> {
    let adds = EngineKind::register("adds", Adds)?;
    let mesh = Mesh::new([("X", 2)])?;
    let (x, y) =
        (Array::arange(0.0..4.0f32).put(&mesh, p!["X"]), Array::arange(1.0..5.0f32).put(&mesh, p!["X"]));
    let f = jit(|x: &Array, y: &Array| x + y).engine(adds);
    let z = f.call((&x, &y))?;
    assert_eq!(type_of(&z), "float32[4@X]");
    assert_eq!(z.to_vec::<f32>()?, [1.0, 3.0, 5.0, 7.0]);
    assert_eq!(f.lower((&x, &y))?.compile()?.report().engine, "adds");
    let f = jit(|x: &Array, y: &Array| x * y + 1.0).engine(adds);
    assert_eq!(f.call((&x, &y))?.to_vec::<f32>()?, [1.0, 3.0, 7.0, 13.0]);
    Ok(())
}

/// The possible faults of an engine.
#[derive(Clone, Copy)]
enum Wrong {
    FailsToCompile,
    PanicsAtCompile,
    CompilesByItself,
    Fails,
    Panics,
    Few,
    Dtype,
    Shape,
}
struct Bad(Wrong, &'static str);
struct Worse(Wrong);

impl Engine for Bad {
    fn compile(&self, job: CompileRequest<'_>) -> Result<Arc<dyn Executable>> {
        match self.0 {
            Wrong::FailsToCompile => {
                "no such engine".parse::<EngineKind>().map(|_| unreachable!("it is none"))
            }
            Wrong::PanicsAtCompile => panic!("out of luck"),
            Wrong::CompilesByItself => job.delegate_to(self.1.parse()?),
            wrong => Ok(Arc::new(Worse(wrong))),
        }
    }
}
impl Executable for Worse {
    fn call(&self, args: &mut [ArrayData]) -> Result<Vec<ArrayData>, Failure> {
        let shape = args[0].shape().clone();
        Ok(match self.0 {
            Wrong::Fails => return Err(Failure::from("x".parse::<EngineKind>().expect_err("it is none"))),
            Wrong::Panics => panic!("out of {}", "reach"),
            Wrong::Few => Vec::new(),
            Wrong::Dtype => vec![ArrayData::from_elements(shape, &[1.0f64; 4])?],
            _ => vec![ArrayData::from_elements([2].into_iter().collect(), &[1.0f32; 2])?],
        })
    }
    fn report(&self) -> ExecutionReport {
        ExecutionReport::default()
    }
}

#[test]
fn what_an_engine_does_wrong_is_an_error() -> Result<()> {
    let x = Array::arange(0.0..4.0f32);
    for (name, wrong, words) in [
        ("rejects", Wrong::FailsToCompile, "there is no engine \"no such engine\""),
        ("panics-early", Wrong::PanicsAtCompile, "the engine panics-early panicked: out of luck"),
        ("itself", Wrong::CompilesByItself, "the engine itself delegates to itself without end"),
        ("fails", Wrong::Fails, "there is no engine \"x\""),
        ("panics", Wrong::Panics, "the engine panics panicked: out of reach"),
        ("few", Wrong::Few, "the engine few returned 0 results, and the program has 1"),
        ("dtype", Wrong::Dtype, "the engine dtype returned float64[4] for result 0, which is float32[4]"),
        ("shape", Wrong::Shape, "the engine shape returned float32[2] for result 0, which is float32[4]"),
    ] {
        let engine = EngineKind::register(name, Bad(wrong, name))?;
        let e = jit(|x: &Array| x.sin()).engine(engine).call(&x).expect_err(name);
        assert!(e.unquoted().contains(words), "{name}: {e}");
    }
    let error_of = |e: Result<EngineKind>| -> Error { e.expect_err("no such name") };
    for name in ["lockstep", "xla", "few"] {
        let e = error_of(EngineKind::register(name, Twice));
        assert_eq!(e.kind(), ErrorKind::Syntax);
        assert!(e.unquoted().contains(&format!("an engine {name:?} is already registered")), "{e}");
    }
    for name in ["", "two words", "a,b"] {
        assert!(
            error_of(EngineKind::register(name, Twice)).unquoted().contains("is not a valid engine name")
        );
    }
    let e = error_of("fewer".parse());
    assert!(
        e.unquoted().contains("engines are lockstep, threads, reference, xla, ")
            && e.unquoted().contains("few"),
        "{e}"
    );
    Ok(())
}

/// Runs in a separate process: the environment may name an engine that the program registers.
#[test]
fn an_added_engine_may_be_the_default() -> Result<()> {
    const CHILD: &str = "ATMESH_ENGINES_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let x = Array::arange(0.0..4.0f32);
        let early = (&x + 1.0).ty().err().map(|e| e.unquoted().replace('\n', " "));
        let engine = twice();
        assert_eq!(EngineKind::default(), engine);
        let y = (&x + 1.0).to_vec::<f32>()?;
        println!("it says: {} {y:?} {}", early.unwrap_or_default(), CALLS.load(Relaxed));
        return Ok(());
    }
    let out = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "an_added_engine_may_be_the_default", "--nocapture"])
        .envs([(CHILD, "1"), ("ATMESH_ENGINE", "twice")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let said = said.lines().find_map(|l| Some(l.split_once("it says: ")?.1)).unwrap_or_default();
    assert!(said.contains("there is no engine \"twice\""), "{said}");
    assert!(said.contains("[1.0, 2.0, 3.0, 4.0]") && !said.ends_with(" 0"), "{said}");
    Ok(())
}
