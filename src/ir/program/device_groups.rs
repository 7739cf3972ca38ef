//! Groups of the devices along the axes of a collective (JAX: `axis_index_groups`).

use crate::core::{Axes, Fault};
use std::fmt;
use std::sync::Arc;

/// Groups of devices that run one collective each: lists of device indices along its axes.
///
/// A group communicates in the order of its list.
///
/// ```
/// use atmesh::program::DeviceGroups;
/// let groups = DeviceGroups::new(vec![vec![0, 3, 1], vec![2]]);
/// assert_eq!(groups.to_string(), "[[0,3,1],[2]]");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct DeviceGroups(Arc<[Vec<usize>]>);

/// The indices `index / stride % size` of the devices along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AxisDigit {
    /// The position of the axis among the axes of the collective.
    pub(crate) axis: usize,
    /// The distance, along the axis, between devices of successive indices.
    pub(crate) stride: usize,
    /// The number of indices.
    pub(crate) size: usize,
}

impl DeviceGroups {
    /// Creates groups from lists of device indices.
    ///
    /// ```
    /// use atmesh::program::DeviceGroups;
    /// let pairs = DeviceGroups::new(vec![vec![0, 1], vec![2, 3]]);
    /// assert_eq!(pairs.lists().len(), 2);
    /// ```
    pub fn new(groups: Vec<Vec<usize>>) -> DeviceGroups {
        DeviceGroups(groups.into())
    }
    /// Returns the list of each group.
    ///
    /// ```
    /// use atmesh::program::DeviceGroups;
    /// let groups = DeviceGroups::new(vec![vec![0, 3, 1], vec![2]]);
    /// assert_eq!(groups.lists(), [vec![0, 3, 1], vec![2]]);
    /// ```
    pub fn lists(&self) -> &[Vec<usize>] {
        &self.0
    }
    /// Returns the number of devices of the largest group.
    ///
    /// ```
    /// use atmesh::program::DeviceGroups;
    /// let groups = DeviceGroups::new(vec![vec![0, 3, 1], vec![2]]);
    /// assert_eq!(groups.max_size(), 3);
    /// ```
    pub fn max_size(&self) -> usize {
        self.0.iter().map(Vec::len).max().unwrap_or(0)
    }
    /// Returns true if all groups have the same number of devices.
    ///
    /// ```
    /// use atmesh::program::DeviceGroups;
    /// let groups = DeviceGroups::new(vec![vec![0, 3, 1], vec![2]]);
    /// assert!(!groups.have_one_size());
    /// ```
    pub fn have_one_size(&self) -> bool {
        self.0.windows(2).all(|w| w[0].len() == w[1].len())
    }
    /// Returns the groups with their devices in ascending order.
    pub(crate) fn sorted(&self) -> DeviceGroups {
        let sorted = self.0.iter().map(|group| {
            let mut group = group.clone();
            group.sort_unstable();
            group
        });
        DeviceGroups(sorted.collect())
    }
    /// Returns an error if the groups do not hold each of `n` devices exactly once.
    pub(crate) fn check(&self, n: usize, axes: &Axes) -> Result<(), Fault> {
        let help = || format!("each of the devices 0 to {} is in exactly one group", n.saturating_sub(1));
        let mut seen = vec![false; n];
        for device in self.0.iter().flatten() {
            match seen.get_mut(*device) {
                None => {
                    return Err(fault!(
                        Mesh,
                        "the groups {self} name device {device}, but there are {n} devices along {axes}"
                    )
                    .help(help()));
                }
                Some(true) => {
                    return Err(fault!(Mesh, "the groups {self} name device {device} twice").help(help()));
                }
                Some(seen) => *seen = true,
            }
        }
        if let Some(device) = seen.iter().position(|seen| !seen) {
            return Err(
                fault!(Mesh, "the groups {self} leave out device {device} of {n} along {axes}").help(help())
            );
        }
        if self.0.iter().any(Vec::is_empty) {
            return Err(fault!(Mesh, "one of the groups {self} is empty").help("leave it out"));
        }
        Ok(())
    }

    /// Returns the digits that distinguish the devices of a group, major first, if every group
    /// lists all devices that agree in the other digits, in ascending order.
    ///
    /// `sizes` are the sizes of the axes, major first. The groups hold each device exactly once.
    pub(crate) fn digits(&self, sizes: &[usize]) -> Option<Vec<AxisDigit>> {
        let first = self.0.iter().find(|group| group.first() == Some(&0))?;
        let mut strides = axis_strides(sizes);
        strides.reverse();
        let (mut digits, mut count) = (Vec::new(), 1);
        while count < first.len() {
            let stride = first[count];
            let ends = |k: &usize| first.get(count * k) != Some(&(k * stride));
            let size = (1..).find(ends)?;
            count *= size;
            // a digit that crosses the end of an axis becomes a digit of each axis
            let (mut low, mut left) = (stride, size);
            for end in strides.iter().copied().filter(|end| stride < *end && *end < stride * size) {
                if end % low != 0 || left % (end / low) != 0 {
                    return None;
                }
                digits.push((low, end / low));
                (left, low) = (left / (end / low), end);
            }
            digits.push((low, left));
        }
        digits.reverse();
        let nested = digits.windows(2).all(|w| w[0].0 % (w[1].0 * w[1].1) == 0);
        (nested && count == first.len() && self.have_one_size()).then_some(())?;
        let base = |device: usize| digits.iter().fold(device, |d, (s, n)| d - device / s % n * s);
        let fits = |group: &Vec<usize>| {
            group.iter().zip(first).all(|(device, offset)| *device == base(*device) + offset)
                && group.iter().all(|device| base(*device) == base(group[0]))
        };
        self.0.iter().all(fits).then(|| digits.iter().map(|d| of_axis(*d, sizes)).collect())?
    }
}

/// Returns the digit of the combined index as one of an axis, if it divides the axis.
fn of_axis((stride, size): (usize, usize), sizes: &[usize]) -> Option<AxisDigit> {
    let strides = axis_strides(sizes);
    let axis = (0..sizes.len()).find(|k| strides[*k] <= stride && stride < strides[*k] * sizes[*k])?;
    let fits =
        stride.is_multiple_of(strides[axis]) && sizes[axis].is_multiple_of(stride / strides[axis] * size);
    fits.then(|| AxisDigit { axis, stride: stride / strides[axis], size })
}

/// Returns the distance between neighbours along each axis, in the combined index.
fn axis_strides(sizes: &[usize]) -> Vec<usize> {
    (0..sizes.len()).map(|k| sizes[k + 1..].iter().product()).collect()
}

/// Prints `[[0,1],[2,3]]`.
impl fmt::Display for DeviceGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |all: &mut dyn Iterator<Item = String>| format!("[{}]", all.collect::<Vec<_>>().join(","));
        let groups = self.0.iter().map(|group| list(&mut group.iter().map(usize::to_string)));
        f.write_str(&list(&mut { groups }))
    }
}
debug_as_display! { [] DeviceGroups }

#[cfg(test)]
mod tests {
    use super::*;

    fn digits(groups: &[&[usize]], sizes: &[usize]) -> Option<Vec<(usize, usize, usize)>> {
        let groups = DeviceGroups::new(groups.iter().map(|g| g.to_vec()).collect());
        groups.digits(sizes).map(|d| d.iter().map(|d| (d.axis, d.stride, d.size)).collect())
    }

    #[test]
    fn regular_groups_are_digits_of_axes() {
        assert_eq!(digits(&[&[0, 1], &[2, 3]], &[4]), Some(vec![(0, 1, 2)]));
        assert_eq!(digits(&[&[0, 2], &[1, 3]], &[4]), Some(vec![(0, 2, 2)]));
        assert_eq!(digits(&[&[1, 3], &[0, 2]], &[2, 2]), Some(vec![(0, 1, 2)]));
        assert_eq!(digits(&[&[0, 1, 4, 5], &[2, 3, 6, 7]], &[8]), Some(vec![(0, 4, 2), (0, 1, 2)]));
        assert_eq!(digits(&[&[0, 1, 2, 3, 4, 5, 6, 7]], &[2, 4]), Some(vec![(0, 1, 2), (1, 1, 4)]));
        assert_eq!(digits(&[&[0], &[1]], &[2]), Some(vec![]));
        assert_eq!(digits(&[&[0, 3], &[1, 4], &[2, 5]], &[6]), Some(vec![(0, 3, 2)]));
    }
    #[test]
    fn other_groups_are_not() {
        for groups in
            [&[&[1, 0][..], &[2, 3]][..], &[&[0, 3], &[1, 2]], &[&[0], &[1, 2, 3]], &[&[0, 2, 1, 3]]]
        {
            assert_eq!(digits(groups, &[4]), None, "{groups:?}");
        }
        assert_eq!(digits(&[&[0, 1, 2], &[3, 4, 5]], &[2, 3]), Some(vec![(1, 1, 3)]));
        assert_eq!(digits(&[&[0, 1], &[2, 3], &[4, 5]], &[2, 3]), None, "they cross the axis");
    }
}
