//! The policy for implicit resharding, which is data movement that a program does not request.
//!
//! The policy allows such data movement, warns about it, or rejects the program.

use crate::core::{Error, ErrorKind, Fault, Result};
use crate::partition::{Collective, CollectiveKind, Collectives};

/// How to handle implicit resharding: data movement that the program does not request.
///
/// It occurs if an operation needs its operand in another sharding, so that the operand is
/// gathered, exchanged or sent. Sums of partial values and halos do not count, since they belong to
/// the operation itself. Data movement that the program requests does not count either: `reshard`,
/// `constrain`, and collectives in per-device code.
///
/// The limit is in bytes that a device receives in one call, for each row of the
/// [report](crate::Collectives).
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::ImplicitReshard;
/// let mesh = Mesh::without_devices([("X", 8)])?;
/// let x = || F32.array_type([64, 16]).on(&mesh, p!["X", _]);
/// let w = || F32.array_type([16, 32]).on(&mesh, p!["X", _]);
/// // the product needs all of w on each device
/// let deny = ImplicitReshard::Deny(1024);
/// let implicit = jit(|x: &Array, w: &Array| x.dot(w)).implicit_reshard(deny);
/// assert!(implicit.lower((x(), w())).is_err());
/// // now the program requests the movement
/// let requested = jit(|x: &Array, w: &Array| x.dot(w.reshard(p![]))).implicit_reshard(deny);
/// assert!(requested.lower((x(), w())).is_ok());
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImplicitReshard {
    /// Allows implicit resharding. This is the default.
    #[default]
    Allow,
    /// Prints a warning for each implicit movement of more than this many bytes.
    ///
    /// Warnings go to stderr at lowering, with the source location.
    Warn(u64),
    /// Rejects a program with an implicit movement of more than this many bytes.
    ///
    /// The error lists the source locations of all of them.
    Deny(u64),
}

/// Returns true if the collective is implicit resharding.
fn is_implicit(c: &Collective) -> bool {
    matches!(
        c.kind,
        CollectiveKind::AllGather
            | CollectiveKind::AllToAll
            | CollectiveKind::Permute
            | CollectiveKind::Exchange
    ) && !c.requested
}

impl ImplicitReshard {
    /// Returns an error for, or warns about, implicit movements above the limit.
    pub(super) fn check(self, all: &Collectives) -> Result<()> {
        let most = match self {
            ImplicitReshard::Allow => return Ok(()),
            ImplicitReshard::Warn(most) | ImplicitReshard::Deny(most) => most,
        };
        let bytes = |c: &Collective| c.bytes_per_device.saturating_mul(c.count);
        let rows: Vec<&Collective> = all.iter().filter(|c| is_implicit(c) && bytes(c) > most).collect();
        let message = |c: &&Collective| {
            let times = if c.count == 1 { String::new() } else { format!(", {} times", c.count) };
            format!(
                "{} over {} of {} bytes per device{times}, which the program does not ask for: {}",
                c.kind, c.axes, c.bytes_per_device, c.reason
            )
        };
        if let ImplicitReshard::Warn(_) = self {
            for c in &rows {
                let line = c.location.map_or(String::new(), |p| format!("{}:{}: ", p.file(), p.line()));
                eprintln!("warning: {line}{}: {}", c.op, message(c));
            }
            return Ok(());
        }
        let error = |c: &&Collective| {
            let fault = Fault::new(ErrorKind::Sharding, message(c))
                .help("say that it is meant: `.reshard(p![…])`, over auto axes `.constrain(p![…])`, on the operand")
                .help("what would avoid it: `jit(f).explain(args, i)`")
                .help(format!("or allow it: `.implicit_reshard(ImplicitReshard::Deny({}))`", bytes(c)));
            Error::new(fault, &c.op, Vec::new(), c.location)
        };
        if rows.is_empty() { Ok(()) } else { Err(Error::combine(rows.iter().map(error).collect::<Vec<_>>())) }
    }
}
