//! Files of arrays, which one process or several write and read.
//!
//! | file | contents |
//! |---|---|
//! | `atomic_file` | files that are replaced when their new contents are complete |
//! | `peers` | the processes that write or read a file together, and what they tell each other |
//! | `blocks` | the blocks of an array that a process writes, and blocks within a file |
//! | `npy`, `npy_header` | `.npy` files |

pub(crate) mod atomic_file;
pub(crate) mod blocks;
pub(crate) mod npy;
mod npy_header;
pub(crate) mod peers;
