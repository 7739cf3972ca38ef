//! The memory limits of a Linux process: physical memory, cgroup limits and resource limits.

use rustix::process::{Resource, getrlimit};
use std::fs::read_to_string;

/// Returns the minimum of all limits, in bytes.
pub(super) fn min_limit_bytes() -> usize {
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = cgroup_limit(&groups, |file| read_to_string(file).ok());
    [physical_memory(), group, resource_limit(Resource::As), resource_limit(Resource::Data)]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(usize::MAX)
}

fn physical_memory() -> Option<usize> {
    let system = rustix::system::sysinfo();
    Some(usize::try_from(system.totalram).ok()?.saturating_mul(system.mem_unit as usize))
}

fn resource_limit(which: Resource) -> Option<usize> {
    getrlimit(which).current.and_then(|bytes| usize::try_from(bytes).ok())
}

/// Returns the smallest memory limit of the process's cgroups and their ancestors, version 1 or 2.
///
/// `groups` is the text of `/proc/self/cgroup`; `read` reads a file.
fn cgroup_limit(groups: &str, read: impl Fn(&str) -> Option<String>) -> Option<usize> {
    let mut least = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            c if c.split(',').any(|c| c == "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        // in a container the path may be that of the host, of which only the root is visible
        let mut path = path.trim_end_matches('/');
        loop {
            let limit = read(&format!("{root}{path}/{file}")).and_then(|n| n.trim().parse::<usize>().ok());
            least = [least, limit].into_iter().flatten().min();
            match path.rfind('/') {
                Some(end) => path = &path[..end],
                None => break,
            }
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_all_groups_counts() {
        let files = |file: &str| {
            let n = match file {
                "/sys/fs/cgroup/a/b/memory.max" => "max\n",
                "/sys/fs/cgroup/a/memory.max" => "5000\n",
                "/sys/fs/cgroup/memory/c/memory.limit_in_bytes" => "9223372036854771712\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes" => "7000\n",
                _ => return None,
            };
            Some(n.to_string())
        };
        assert_eq!(cgroup_limit("0::/a/b\n", files), Some(5000));
        assert_eq!(cgroup_limit("5:cpu:/c\n3:memory,hugetlb:/c\n", files), Some(7000));
        assert_eq!(cgroup_limit("3:memory:/c\n0::/a/b\n", files), Some(5000));
        assert_eq!(cgroup_limit("0::/\n", files), None);
        assert!(min_limit_bytes() > 1 << 20);
    }
}
