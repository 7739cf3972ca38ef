//! Prints execution plans.

use super::ExecutionPlan;
use std::fmt;

/// Prints the nodes of each level, with those of nested plans after their loop or branch.
impl fmt::Display for ExecutionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_plan(self, 0, f)
    }
}

fn write_plan(p: &ExecutionPlan, indent: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for l in &p.levels {
        for (k, n) in l.nodes.iter().enumerate() {
            let head = if k == 0 { format!("{:>3}", l.id) } else { "   ".into() };
            let tasks = if n.num_tasks == 1 { "1 task".into() } else { format!("{} tasks", n.num_tasks) };
            write!(f, "{:indent$}{head}  {}; {tasks}, about {:.1} us", "", n.info, n.cost_us)?;
            match n.implementation() {
                Some(how) => writeln!(f, "; {how}")?,
                None => writeln!(f)?,
            }
            n.nested_plans().into_iter().try_for_each(|p| write_plan(p, indent + 4, f))?;
        }
    }
    Ok(())
}
