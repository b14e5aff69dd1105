//! A real control plane and simulated Bottlerocket hosts, for the demo, the tests and the benchmarks.
