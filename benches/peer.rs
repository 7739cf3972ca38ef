//! Benchmarks side by side with the peer.
fn main() {}
