//! Tests of device code under many thread interleavings, with the model checker shuttle.

use super::spmd;
use crate::Error;
use crate::exec::{runtime::device_threads::end_idle_threads, runtime::sync::explore};
use crate::prelude::*;
use ndarray::{Array1, ArrayView1, array};
use shuttle::thread;

fn line(n: usize) -> Mesh {
    Mesh::new([("x", n)]).unwrap()
}
fn iota(n: usize) -> Array {
    Array::from((0..n).map(|i| i as f32).collect::<Vec<_>>())
}
/// Returns the text of the error of code that must fail on some device.
fn error_text(n: usize, code: impl Fn(&Device) -> Result<()> + Sync) -> String {
    let error = spmd(&line(n), (), (), |dev: &Device| code(dev)).call(()).unwrap_err();
    end_idle_threads();
    error.to_string()
}

/// Sums, gathers and exchanges give the same bits in every interleaving.
#[test]
fn collectives_agree() {
    explore(|| {
        let run = spmd(&line(3), p!["x"], p!["x"], |dev: &Device, x: ArrayView1<f32>| {
            let sum = dev.psum(&x, "x")?;
            dev.barrier("x")?;
            let all = dev.all_gather(&sum, "x", 0)?;
            let scattered = dev.psum_scatter(&all, "x", 0)?;
            let turned = dev.ppermute(&scattered, "x", Permutation::ring(1))?;
            let back =
                dev.all_to_all(&dev.all_gather(&turned, "x", 0)?, "x", AllToAll::split(0).concat(0))?;
            let me = dev.axis_index("x")? as f32;
            Ok(back.mapv(|y| y + me))
        });
        let got = run.call(&iota(6)).unwrap().to_vec::<f32>().unwrap();
        let want = [18.0, 27.0].repeat(3);
        let want: Vec<f32> = (0..3).flat_map(|d| want.iter().map(move |y| y + d as f32)).collect();
        assert_eq!(got, want);
        end_idle_threads();
    });
}

/// Sums above the size limit are reduced in shares, and gathered.
#[test]
fn large_sums_agree() {
    explore(|| {
        let n = 5000;
        let run = spmd(&line(2), (), p![], |dev: &Device| {
            dev.psum(&Array1::from_elem(n, 1.0f32 + dev.position() as f32), "x")
        });
        assert_eq!(run.call(()).unwrap().to_vec::<f32>().unwrap(), vec![3.0; n]);
        end_idle_threads();
    });
}

/// Sums over rows and over columns of devices do not receive each other's messages.
#[test]
fn groups_do_not_mix() {
    explore(|| {
        let mesh = Mesh::new([("x", 2), ("y", 2)]).unwrap();
        let run = spmd(&mesh, (), p![("x", "y")], |dev: &Device| {
            let me = 1i32 << dev.position();
            Ok(array![dev.psum_scalar(me, "x")?, dev.psum_scalar(me, "y")?, dev.psum_scalar(me, ("x", "y"))?])
        });
        let got = run.call(()).unwrap().to_vec::<i32>().unwrap();
        assert_eq!(got, [5, 3, 15, 10, 3, 15, 5, 12, 15, 10, 12, 15]);
        end_idle_threads();
    });
}

/// Different collectives give the same error in every interleaving.
#[test]
fn a_mismatch_is_found() {
    explore(|| {
        let text = error_text(3, |dev| {
            let x = array![1.0f32];
            if dev.position() == 1 { dev.pmax(&x, "x") } else { dev.psum(&x, "x") }.map(|_| ())
        });
        assert!(text.contains("called different collectives"), "{text}");
    });
}

/// A device that returns early, fails or panics aborts those that wait for it, and is named.
#[test]
fn ends_of_one_device_end_all() {
    explore(|| {
        let early = error_text(3, |dev| if dev.position() == 1 { Ok(()) } else { dev.barrier("x") });
        assert!(early.contains("device 1 (x=1) returned early"), "{early}");
        let wrong =
            error_text(
                3,
                |dev| if dev.position() == 2 { Err(Error::other("sorry")) } else { dev.barrier("x") },
            );
        assert!(wrong.contains("device 2 (x=2) returned an error: sorry"), "{wrong}");
        let panic = error_text(3, |dev| {
            if dev.position() == 0 {
                std::panic::resume_unwind(Box::new("as told"));
            }
            dev.barrier("x")
        });
        assert!(panic.contains("device 0 (x=0) panicked: as told"), "{panic}");
    });
}

/// If several devices fail, the first one that failed in this interleaving is named.
#[test]
fn several_failures_are_one_error() {
    explore(|| {
        let text = error_text(3, |dev| Err(Error::other(format!("no {}", dev.position()))));
        assert!(
            (0..3).any(|d| text.contains(&format!("device {d} (x={d}) returned an error: no {d}"))),
            "{text}"
        );
    });
}

/// Devices that wait for messages that no device sends are detected.
#[test]
fn receiving_in_vain_is_found() {
    explore(|| {
        let text = error_text(2, |dev| {
            let other = dev.peer(1 - dev.position()).unwrap();
            if dev.position() == 0 {
                dev.send(other, &array![1.0f32])?;
            }
            dev.recv::<f32, ndarray::Ix1>(other).map(|_| ())
        });
        assert!(text.contains("device 0 (x=0) waits in recv for device 1"), "{text}");
        assert!(text.contains("device 1 (x=1) has returned"), "{text}");
    });
}

/// Runs of several callers may overlap in time.
#[test]
fn runs_may_overlap() {
    explore(|| {
        let callers: Vec<_> = (1i32..3)
            .map(|k| {
                thread::spawn(move || {
                    let run = spmd(&line(2), (), p![], |dev: &Device| dev.psum_scalar(k, "x"));
                    assert_eq!(run.call(()).unwrap().to_vec::<i32>().unwrap(), [2 * k]);
                })
            })
            .collect();
        callers.into_iter().for_each(|c| c.join().unwrap());
        end_idle_threads();
    });
}

/// Collectives of many devices, which use trees, give the right results and errors.
#[test]
fn trees_agree() {
    explore(|| {
        let run = spmd(&line(5), p!["x"], p!["x"], |dev: &Device, x: ArrayView1<f32>| {
            dev.barrier("x")?;
            let sum = dev.psum(&x, "x")?;
            dev.psum_scatter(&dev.all_gather(&sum, "x", 0)?, "x", 0)
        });
        assert_eq!(run.call(&iota(5)).unwrap().to_vec::<f32>().unwrap(), [50.0; 5]);
        let early = error_text(6, |dev| if dev.position() == 3 { Ok(()) } else { dev.barrier("x") });
        assert!(early.contains("device 3 (x=3) returned early"), "{early}");
        let text = error_text(5, |dev| {
            if dev.position() == 3 { dev.barrier("x") } else { dev.psum_scalar(1, "x").map(|_| ()) }
        });
        assert!(text.contains("called different collectives"), "{text}");
    });
}

/// Device code may ignore errors and receive again after another device failed.
#[test]
fn errors_may_be_ignored() {
    explore(|| {
        let text = error_text(3, |dev| {
            if dev.position() == 0 {
                return Err(Error::other("disk full"));
            }
            let (first, me) = (dev.peer(0).unwrap(), dev.position() as i32);
            for _ in 0..2 {
                let _ = dev.recv::<f32, ndarray::Ix1>(first);
                let _ = dev.ppermute(&array![me], "x", Permutation::ring(1));
            }
            Ok(())
        });
        assert!(text.contains("disk full"), "{text}");
    });
}

/// Permutations that differ are reported in every interleaving.
#[test]
fn permutations_that_differ_are_found() {
    explore(|| {
        let text = error_text(3, |dev| {
            dev.ppermute(&array![1.0f32], "x", Permutation::ring(if dev.position() == 1 { 2 } else { 1 }))
                .map(|_| ())
        });
        assert!(text.contains("ring(1)") && text.contains("ring(2)"), "{text}");
    });
}
